package stored

import "sync"

// recentBytes is how much of lately encoded documents is kept against the next collections: enough that what a busy cluster's clients read is not
// encoded for each collection anew, little beside what the objects themselves take.
const recentBytes = 32 << 20

// recent keeps the newest encodings alive. Like a sync.Pool it is the process's, and of no consequence but for the time it saves.
var recent = keeper{budget: recentBytes}

// keeper holds on to documents, the oldest of which it lets go when they are too much.
type keeper struct {
	mu     sync.Mutex
	budget int
	size   int
	queue  []*Bytes
	head   int
}

func (k *keeper) add(b *Bytes) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.queue = append(k.queue, b)
	k.size += len(b.Whole)
	for k.size > k.budget && k.head < len(k.queue) {
		k.size -= len(k.queue[k.head].Whole)
		k.queue[k.head] = nil
		k.head++
	}
	if k.head > 1024 && k.head > len(k.queue)/2 {
		k.queue = append([]*Bytes(nil), k.queue[k.head:]...)
		k.head = 0
	}
}

// Forget lets go of all lately encoded documents that nobody reads at the moment: for a process that has become quiet.
func Forget() {
	recent.mu.Lock()
	defer recent.mu.Unlock()
	recent.queue, recent.head, recent.size = nil, 0, 0
}
