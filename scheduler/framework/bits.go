package framework

import (
	"iter"
	"math/bits"
)

// Bits is a set of node slots.
type Bits []uint64

// Grow returns b with room for slot i.
func (b Bits) Grow(i int) Bits {
	for len(b) <= i>>6 {
		b = append(b, 0)
	}
	return b
}

// Has tells whether slot i is in the set.
func (b Bits) Has(i int) bool { return i>>6 < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

// Set adds slot i, for which there must be room.
func (b Bits) Set(i int) { b[i>>6] |= 1 << (i & 63) }

// Clear removes slot i.
func (b Bits) Clear(i int) {
	if i>>6 < len(b) {
		b[i>>6] &^= 1 << (i & 63)
	}
}

// Put adds or removes slot i.
func (b Bits) Put(i int, in bool) {
	if in {
		b.Set(i)
	} else {
		b.Clear(i)
	}
}

// word is the k-th 64 slots.
func (b Bits) word(k int) uint64 {
	if k < len(b) {
		return b[k]
	}
	return 0
}

// Count is the size of the set.
func (b Bits) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// All yields the slots in rising order. The set may shrink meanwhile at the slot just yielded.
func (b Bits) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for k, w := range b {
			for w != 0 {
				if !yield(k<<6 + bits.TrailingZeros64(w)) {
					return
				}
				w &= w - 1
			}
		}
	}
}

// CopyFrom makes b equal to o, reusing b's memory.
func (b Bits) CopyFrom(o Bits) Bits { return append(b[:0], o...) }
