package codec

import (
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// light is the size in bytes up to which a document is not weighed: whatever it holds, it cannot take much memory.
	light = 64 << 10
	// heavy is how many bytes of memory an object may take for each byte of its document. Containers that say nothing but their names take 80.
	heavy = 128
)

// weigh refuses a JSON document that would take far more memory than it is long: one with a great many elements that say nothing, of a type that is large
// all the same, such as [{},{},{}] for containers.
func weigh(data []byte, into any) error {
	if len(data) <= light {
		return nil
	}
	size := largest(reflect.TypeOf(into))
	if bytes.Count(data, []byte{'{'})*size <= heavy*len(data) {
		return nil
	}
	if most := objects(data) * size; most > heavy*len(data) { // and they are not just within strings
		return tooHeavy(len(data), most)
	}
	return nil
}

func tooHeavy(size, memory int) error {
	return status(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
		fmt.Sprintf("Request entity too large: its %d bytes hold so many empty objects that they could take %d bytes of memory; leave out elements that say nothing", size, memory))
}

// objects counts the objects of a JSON document.
func objects(data []byte) (n int) {
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == '{':
			n++
		}
	}
	return n
}

// elements are the sizes that largest has found.
var elements sync.Map

// largest is the size of the largest element of any list within a type, in bytes.
func largest(t reflect.Type) int {
	if n, known := elements.Load(t); known {
		return n.(int)
	}
	n := largestIn(t, map[reflect.Type]bool{})
	elements.Store(t, n)
	return n
}

func largestIn(t reflect.Type, seen map[reflect.Type]bool) int {
	if seen[t] {
		return 0
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Array:
		return largestIn(t.Elem(), seen)
	case reflect.Slice, reflect.Map:
		if t.Elem().Kind() == reflect.Interface {
			return 0 // without a Go type: as large as what is in it
		}
		return max(int(t.Elem().Size()), largestIn(t.Elem(), seen))
	case reflect.Struct:
		n := 0
		for i := range t.NumField() {
			n = max(n, largestIn(t.Field(i).Type, seen))
		}
		return n
	}
	return 0
}
