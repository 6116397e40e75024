package verbs

import (
	"sync/atomic"

	"github.com/yare-project/yare/kind"
)

// templates remembers, of a kind whose objects are made in numbers, one new object for each template, for the next to share its memory and its
// judgement. It is as large as it will ever be: a template that comes takes the place of one with the same remainder.
type templates [256]atomic.Pointer[template]

type template struct {
	key    uint64
	object kind.Object
}

func (t *templates) at(key uint64) *atomic.Pointer[template] { return &t[key%uint64(len(t))] }

// share gives obj the memory of one of its template, if there is one, and tells whether that one's judgement holds for obj too.
func (t *templates) share(k *kind.Kind, obj kind.Object) bool {
	if k.Share == nil {
		return false
	}
	key := k.TemplateKey(obj)
	like := t.at(key).Load()
	return like != nil && like.key == key && k.Share(obj, like.object)
}

// keep remembers an object about which its kind's rules found nothing.
func (t *templates) keep(k *kind.Kind, obj kind.Object) {
	if k.Share != nil {
		key := k.TemplateKey(obj)
		t.at(key).Store(&template{key: key, object: obj})
	}
}
