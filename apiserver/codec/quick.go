package codec

import "github.com/yare-project/yare/internal/jsonread"

// quick reads a document without oddities into an object with a Go type, or as a tree, in a fraction of the time that the API's own decoder takes. It reports
// false, leaving obj empty, for any other: then that decoder finds the words for what is wrong, or knows why it is right.
func quick(data []byte, obj any) bool {
	if tree, ok := obj.(*map[string]any); ok {
		if tree == nil || *tree != nil {
			return false
		}
		read, plain := jsonread.Object(data)
		*tree = read
		return plain
	}
	return jsonread.Struct(data, obj)
}
