package stored

// Sketch is a set of labels in one word: each pair sets one bit. Whether an object has a label is settled by it alone for nearly all objects that
// do not, without touching them: a list by label then passes over thousands at the cost of the few that it finds.
type Sketch uint64

// SketchOf is the sketch of one label.
func SketchOf(key, value string) Sketch {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	h := uint64(offset)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	h = (h ^ '=') * prime
	for i := range len(value) {
		h = (h ^ uint64(value[i])) * prime
	}
	return 1 << (h >> 58)
}

// MayHave reports false if the labels behind s surely hold none of those behind any.
func (s Sketch) MayHave(any Sketch) bool { return s&any != 0 }

func sketch(labels map[string]string) Sketch {
	var s Sketch
	for k, v := range labels {
		s |= SketchOf(k, v)
	}
	return s
}

// Labels is the sketch of the object's labels.
func (o *Object) Labels() Sketch { return o.labels }
