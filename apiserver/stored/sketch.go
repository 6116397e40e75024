package stored

// Sketch is a set of labels in one word: each pair sets up to three bits (a Bloom filter). Whether an object has a label is settled by it alone for
// nearly all objects that do not, without touching them: a list by label then passes over thousands at the cost of the few that it finds.
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
	h ^= h >> 32 // values that differ in their last letters alone differ little in the upper bits
	h *= 0x9e3779b97f4a7c15
	return 1<<(h>>58) | 1<<(h>>52&63) | 1<<(h>>46&63)
}

// MayHave reports false if the labels behind s surely do not include those behind other.
func (s Sketch) MayHave(other Sketch) bool { return s&other == other }

func sketch(labels map[string]string) Sketch {
	var s Sketch
	for k, v := range labels {
		s |= SketchOf(k, v)
	}
	return s
}

// Labels is the sketch of the object's labels.
func (o *Object) Labels() Sketch { return o.labels }

// Mark implements store.Marked with the sketch of the object's labels.
func (o *Object) Mark() uint64 { return uint64(o.labels) }
