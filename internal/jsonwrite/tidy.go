package jsonwrite

// maxNesting is how deep a document can be for tidy.
const maxNesting = 200

// tidy tells whether doc is one JSON value that is written as it must stand in a document of encoding/json: no space, no character that is escaped
// there. It may be too strict, never too lenient.
func tidy(doc []byte) bool { return tidyValue(doc, 0, maxNesting) == len(doc) }

// tidyValue is where the value that begins at i ends; -1 if it is not tidy.
func tidyValue(doc []byte, i, depth int) int {
	switch c := at(doc, i); c {
	case '{', '[':
		if depth == 0 {
			return -1
		}
		if at(doc, i+1) == c+2 { // the closing one
			return i + 2
		}
		return tidyMembers(doc, i+1, depth-1, c == '{')
	case '"':
		return tidyString(doc, i+1)
	case 't':
		return tidyWord(doc, i, "true")
	case 'f':
		return tidyWord(doc, i, "false")
	case 'n':
		return tidyWord(doc, i, "null")
	}
	return tidyNumber(doc, i)
}

// at is the byte at i, 0 beyond the end.
func at(doc []byte, i int) byte {
	if i < len(doc) {
		return doc[i]
	}
	return 0
}

// tidyMembers goes through the members of an object, or the elements of an array, that has some.
func tidyMembers(doc []byte, i, depth int, object bool) int {
	for {
		if object {
			if at(doc, i) != '"' {
				return -1
			}
			if i = tidyString(doc, i+1); i < 0 || at(doc, i) != ':' {
				return -1
			}
			i++
		}
		if at(doc, i) == '{' && at(doc, i+1) == '}' { // nearly all there is in lists of fields
			i += 2
		} else if i = tidyValue(doc, i, depth); i < 0 {
			return -1
		}
		switch c := at(doc, i); {
		case c == ',':
			i++
		case c == '}' && object, c == ']' && !object:
			return i + 1
		default:
			return -1
		}
	}
}

// tidyString goes through a string whose quote has been read.
func tidyString(doc []byte, i int) int {
	for i < len(doc) {
		i += ordinary(doc[i:])
		switch c := at(doc, i); {
		case c == '"':
			return i + 1
		case c == '\\':
			if i = tidyEscape(doc, i+1); i < 0 {
				return -1
			}
		case c < 0x80, c == 0xe2 && at(doc, i+1) == 0x80 && at(doc, i+2)&^1 == 0xa8: // a control character, <, >, &; a line's or a paragraph's end
			return -1
		default:
			i++
		}
	}
	return -1
}

// tidyEscape goes through an escape whose backslash has been read.
func tidyEscape(doc []byte, i int) int {
	switch at(doc, i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		for _, c := range []byte{at(doc, i+1), at(doc, i+2), at(doc, i+3), at(doc, i+4)} {
			if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
				return -1
			}
		}
		return i + 5
	}
	return -1
}

func tidyWord(doc []byte, i int, word string) int {
	if len(doc)-i < len(word) || string(doc[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func tidyNumber(doc []byte, i int) int {
	if at(doc, i) == '-' {
		i++
	}
	if at(doc, i) == '0' {
		i++
	} else if i = tidyDigits(doc, i); i < 0 {
		return -1
	}
	if at(doc, i) == '.' {
		if i = tidyDigits(doc, i+1); i < 0 {
			return -1
		}
	}
	if c := at(doc, i); c == 'e' || c == 'E' {
		if c := at(doc, i+1); c == '+' || c == '-' {
			i++
		}
		return tidyDigits(doc, i+1)
	}
	return i
}

// tidyDigits goes through digits, of which there must be one.
func tidyDigits(doc []byte, i int) int {
	start := i
	for c := at(doc, i); '0' <= c && c <= '9'; c = at(doc, i) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}
