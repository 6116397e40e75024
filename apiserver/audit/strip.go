package audit

import "bytes"

// withoutManagedFields returns a JSON document without metadata.managedFields: of the object, of a list's items, and of the objects in a table's rows.
// The document is read once and copied at most once; one that is not well formed is returned as it is.
func withoutManagedFields(doc []byte) []byte {
	if !bytes.Contains(doc, []byte(`"managedFields"`)) {
		return doc
	}
	c := &cutter{doc: doc}
	if !c.value(object) {
		return doc
	}
	return append(c.out, doc[c.from:]...)
}

// place is what a value of the document is.
type place uint8

const (
	other    place = iota
	object         // an API object, a list or a table
	metadata       // of an object
	items          // of a list
	rows           // of a table
	row
)

// below is the place of a member of a value.
func below(at place, key string) place {
	switch {
	case at == object && key == "metadata":
		return metadata
	case at == object && key == "items":
		return items
	case at == object && key == "rows":
		return rows
	case at == row && key == "object":
		return object
	}
	return other
}

// cutter copies a document but for what is cut out.
type cutter struct {
	doc  []byte
	at   int
	out  []byte
	from int // what of doc is copied from here on
}

// value reads one value.
func (c *cutter) value(at place) bool {
	c.space()
	if c.at >= len(c.doc) {
		return false
	}
	switch c.doc[c.at] {
	case '{':
		return c.members(at)
	case '[':
		return c.elements(at)
	case '"':
		_, ok := c.text()
		return ok
	}
	start := c.at
	for c.at < len(c.doc) && !bytes.ContainsRune([]byte(",]} \t\r\n"), rune(c.doc[c.at])) {
		c.at++
	}
	return c.at > start
}

func (c *cutter) members(at place) bool {
	c.at++
	kept := false // a member before this one
	for first := true; ; first = false {
		c.space()
		start := c.at
		if c.take('}') {
			return true
		}
		if !first && !c.take(',') {
			return false
		}
		c.space()
		if first {
			start = c.at
		}
		key, ok := c.text()
		c.space()
		if !ok || !c.take(':') || !c.value(below(at, key)) {
			return false
		}
		if at == metadata && key == "managedFields" {
			c.cut(start, !kept)
		} else {
			kept = true
		}
	}
}

// cut drops what was read since start: with the comma before it or, where none is left before it, the one after it.
func (c *cutter) cut(start int, leads bool) {
	c.out = append(c.out, c.doc[c.from:max(start, c.from)]...)
	c.from = c.at
	if c.space(); leads && c.take(',') {
		c.from = c.at
		c.at-- // the next member is read from its comma on, as others are
	}
}

func (c *cutter) elements(at place) bool {
	inner := other
	switch at {
	case items:
		inner = object
	case rows:
		inner = row
	}
	c.at++
	for first := true; ; first = false {
		c.space()
		if c.take(']') {
			return true
		}
		if !first && !c.take(',') || !c.value(inner) {
			return false
		}
	}
}

// text reads a string and returns its bytes as written; keys of the API have no escapes.
func (c *cutter) text() (string, bool) {
	if !c.take('"') {
		return "", false
	}
	for start := c.at; c.at < len(c.doc); c.at++ {
		switch c.doc[c.at] {
		case '\\':
			c.at++
		case '"':
			s := string(c.doc[start:c.at])
			c.at++
			return s, true
		}
	}
	return "", false
}

func (c *cutter) space() {
	for c.at < len(c.doc) {
		switch c.doc[c.at] {
		case ' ', '\t', '\r', '\n':
			c.at++
		default:
			return
		}
	}
}

func (c *cutter) take(b byte) bool {
	if c.at < len(c.doc) && c.doc[c.at] == b {
		c.at++
		return true
	}
	return false
}
