package codec

import (
	"encoding/binary"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// maxProtobufDepth is how deep messages may lie in each other, as in the other media types.
const maxProtobufDepth = 10000

var (
	errDeepProtobuf = errors.New("protobuf: exceeded max nested level " + strconv.Itoa(maxProtobufDepth))
	errBadProtobuf  = errors.New("protobuf: unexpected end, or a field of an unknown wire type")
)

// weighProtobuf is weigh for a message: it walks the message as its decoder will, and adds up what the elements of lists and maps will take.
func weighProtobuf(raw []byte, into any) error {
	if len(raw) <= light {
		return nil
	}
	most, err := memory(raw, reflect.TypeOf(into), 0)
	if err == nil && most > heavy*len(raw) {
		return tooHeavy(len(raw), most)
	}
	if errors.Is(err, errBadProtobuf) {
		return nil // the decoder has the words for it, and stops there
	}
	return err
}

// memory is what a message will take, beyond its own type's size.
func memory(raw []byte, t reflect.Type, depth int) (n int, err error) {
	if depth > maxProtobufDepth {
		return 0, errDeepProtobuf
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	fields := messageFields(t)
	for len(raw) > 0 {
		number, inner, rest, err := nextField(raw)
		if err != nil {
			return n, err
		}
		raw = rest
		f, known := fields[number]
		if !known || inner == nil {
			continue
		}
		n += f.size
		if f.message != nil {
			more, err := memory(inner, f.message, depth+1)
			n += more
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// nextField takes a field off a message; inner is nil for what has no length.
func nextField(raw []byte) (number uint64, inner, rest []byte, err error) {
	key, n := binary.Uvarint(raw)
	if n <= 0 {
		return 0, nil, nil, errBadProtobuf
	}
	raw = raw[n:]
	skip := 0
	switch key & 7 {
	case 0:
		if _, skip = binary.Uvarint(raw); skip <= 0 {
			return 0, nil, nil, errBadProtobuf
		}
	case 1:
		skip = 8
	case 5:
		skip = 4
	case 2:
		size, n := binary.Uvarint(raw)
		if n <= 0 || size > uint64(len(raw)-n) {
			return 0, nil, nil, errBadProtobuf
		}
		end := n + int(size)
		return key >> 3, raw[n:end:end], raw[end:], nil
	default:
		return 0, nil, nil, errBadProtobuf
	}
	if skip > len(raw) {
		return 0, nil, nil, errBadProtobuf
	}
	return key >> 3, nil, raw[skip:], nil
}

// messageField is what one value of a field takes, and of what type it is if that is a message.
type messageField struct {
	size    int
	message reflect.Type
}

// messages are the fields that messageFields has found, by number.
var messages sync.Map

func messageFields(t reflect.Type) map[uint64]messageField {
	if known, ok := messages.Load(t); ok {
		return known.(map[uint64]messageField)
	}
	out := map[uint64]messageField{}
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			parts := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
			if len(parts) < 2 {
				continue
			}
			if number, err := strconv.ParseUint(parts[1], 10, 32); err == nil {
				out[number] = fieldOf(t.Field(i).Type)
			}
		}
	}
	messages.Store(t, out)
	return out
}

func fieldOf(t reflect.Type) messageField {
	switch t.Kind() {
	case reflect.Slice:
		f := messageField{size: int(t.Elem().Size())}
		if of := t.Elem(); isMessage(of) {
			f.message = of
		}
		return f
	case reflect.Map: // its entries are messages of a key and a value
		return messageField{size: 2 * int(t.Key().Size()+t.Elem().Size())}
	case reflect.Pointer:
		f := messageField{size: int(t.Elem().Size())}
		if isMessage(t) {
			f.message = t
		}
		return f
	case reflect.Struct:
		return messageField{message: t}
	}
	return messageField{}
}

func isMessage(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}
