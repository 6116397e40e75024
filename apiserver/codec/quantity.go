package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

// A quantity is kept exactly: adding 1e999999999 to anything, or comparing the two, takes a number of a billion digits. So one that no machine counts to is
// refused before it is read. No other API server does, and a single request stops them.
const (
	maxDigits         = 1000 // of a quantity
	maxExponentDigits = 4
)

// CheckQuantities refuses a document that gives a quantity of like, wherever it has one, an outsized number. Text of other fields may be whatever it is.
func CheckQuantities(data []byte, like any) error {
	if !hasQuantity(reflect.TypeOf(like)) || !mayBeOutsized(data) {
		return nil
	}
	var doc any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&doc) != nil {
		return nil // it is refused for that
	}
	return quantitiesIn(doc, reflect.TypeOf(like), "")
}

// checkProtobuf looks for the messages that quantities are: of one field, which is text.
func checkProtobuf(data []byte, like any) error {
	if !hasQuantity(reflect.TypeOf(like)) {
		return nil
	}
	for i := 1; ; i++ {
		next := bytes.IndexByte(data[min(i, len(data)):], '\n') // the tag of field 1
		if next < 0 {
			return nil
		}
		i += next
		size, n := binary.Uvarint(data[i+1:])
		if n <= 0 || size <= maxExponentDigits+2 || size > uint64(len(data)-i-1-n) {
			continue
		}
		if first := data[i+1+n]; !digit(first) && first != '-' && first != '+' {
			continue
		}
		text := string(data[i+1+n:][:size])
		if outsized(text) && (size > maxDigits || uint64(data[i-1]) == size+2) {
			return tooBig("", text)
		}
	}
}

func tooBig(path, text string) error {
	if len(text) > 40 {
		text = text[:40] + "..."
	}
	return fmt.Errorf("%s: the quantity %q is out of reach: at most %d digits and an exponent of %d digits are read", strings.TrimPrefix(path, "."), text, maxDigits, maxExponentDigits)
}

func quantitiesIn(doc any, t reflect.Type, path string) error {
	if !hasQuantity(t) {
		return nil
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == quantityType {
		if text := fmt.Sprint(doc); outsized(text) {
			return tooBig(path, text)
		}
		return nil
	}
	switch value := doc.(type) {
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return nil
		}
		for i := range value {
			if err := quantitiesIn(value[i], t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, part := range value {
			of := t
			if t.Kind() == reflect.Map {
				of = t.Elem()
			} else if of = jsonFieldOf(t, name); of == nil {
				continue
			}
			if err := quantitiesIn(part, of, path+"."+name); err != nil {
				return err
			}
		}
	}
	return nil
}

// jsonFieldOf is the type of a struct's field by its name in JSON, also of one that is embedded.
func jsonFieldOf(t reflect.Type, name string) reflect.Type {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f.Type
		}
		if tag == "" && (f.Anonymous || options == "inline") {
			if found := jsonFieldOf(f.Type, name); found != nil {
				return found
			}
		}
	}
	return nil
}

// mayBeOutsized tells whether a document has any number in it that outsized would be true of. It is quick, and may be wrong for what is none.
func mayBeOutsized(data []byte) bool {
	const stride = maxDigits / 2
	for i := stride; i < len(data); i += stride {
		if digit(data[i]) && digit(data[i-stride/2]) {
			return true
		}
	}
	for i := 1; i < len(data)-maxExponentDigits; i++ {
		if data[i]|0x20 == 'e' && digit(data[i-1]) && begins(data, i-1) && outsized(string(data[i-1:min(len(data), i+40)])) {
			return true
		}
	}
	return false
}

// begins tells whether the number whose digit is at i is the beginning of its text, and not of a digest, say.
func begins(data []byte, i int) bool {
	for i >= 0 && (digit(data[i]) || data[i] == '-' || data[i] == '+') {
		i--
	}
	return i < 0 || strings.IndexByte("\":,[ \t\r\n", data[i]) >= 0
}

func digit(c byte) bool { return '0' <= c && c <= '9' || c == '.' }

// outsized tells a number that is too long or has too great an exponent, whatever follows it.
func outsized(text string) bool {
	text = strings.TrimLeft(text, "+-")
	rest := strings.TrimLeft(text, "0123456789.")
	if n := len(text) - len(rest); n == 0 || n > maxDigits {
		return n > maxDigits
	}
	if rest == "" || rest[0]|0x20 != 'e' {
		return false
	}
	exponent := strings.TrimLeft(strings.TrimLeft(rest[1:], "+-"), "0")
	return len(exponent)-len(strings.TrimLeft(exponent, "0123456789")) > maxExponentDigits
}

var (
	quantityType = reflect.TypeFor[resource.Quantity]()
	quantified   sync.Map // by type, whether there is a quantity in it
)

func hasQuantity(t reflect.Type) bool {
	if known, ok := quantified.Load(t); ok {
		return known.(bool)
	}
	found := findQuantity(t, map[reflect.Type]bool{})
	quantified.Store(t, found)
	return found
}

func findQuantity(t reflect.Type, seen map[reflect.Type]bool) bool {
	if t == nil || seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return findQuantity(t.Elem(), seen)
	case reflect.Struct:
		if t == quantityType {
			return true
		}
		for i := range t.NumField() {
			if findQuantity(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
