package stored

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/store"
)

// Sealer turns the bytes of one resource's objects into what the disk holds, and back. It is safe for concurrent use.
type Sealer interface {
	// Current is how a write that is made now is sealed; nil: it stays plain. Error: nothing can be sealed now.
	Current() (Seal, error)
	// Stale tells whether an object that was sealed under id would be sealed otherwise now. The id of what is plain is "".
	Stale(id string) bool
	// Open gives the plain bytes of what was stored under key, and the id of what sealed them.
	Open(key string, data []byte) (plain []byte, id string, err error)
}

// Seal is one way to seal, settled: sealing does not fail for what happens elsewhere.
type Seal interface {
	ID() string
	Seal(key string, plain []byte) ([]byte, error)
}

// sealed is how an object is on disk, where that is not plain.
type sealed struct {
	key string
	id  string
	// seal is set for what this process wrote, sealer for what it read.
	seal   Seal
	sealer Sealer
	// raw are the bytes of an object that could not be read, for the reason fault.
	raw   []byte
	fault error
}

// SealWith settles how the object is written to disk under key. It is for the store's Write.Make alone, as Stamp is.
func (o *Object) SealWith(s Seal, key string) *Object {
	o.sealed = &sealed{key: key, id: s.ID(), seal: s}
	return o
}

// SealID names what the object is sealed with on disk; "" if it is plain there.
func (o *Object) SealID() string {
	if o.sealed == nil {
		return ""
	}
	return o.sealed.id
}

// Again is the same object for another write: its top level is its own, all below is shared.
func (o *Object) Again() *Object {
	again := &Object{kind: o.kind, object: Shallow(o.object)}
	again.size.Store(o.size.Load())
	return again
}

// Fault is why the object could not be read from disk, nil if it was. An object with a fault has a namespace and a name, and nothing else.
func (o *Object) Fault() error {
	if o.sealed == nil {
		return nil
	}
	return o.sealed.fault
}

// Retry reads an object with a fault once more.
func (o *Object) Retry() (*Object, error) {
	s := o.sealed
	if s == nil || s.fault == nil {
		return o, nil
	}
	return unseal(o.kind, s.sealer, s.key, o.revision, s.raw)
}

// close seals an encoded object, or gives back what could not be opened.
func (s *sealed) close(plain []byte) ([]byte, error) {
	seal := s.seal
	if seal == nil {
		var err error
		if seal, err = s.sealer.Current(); err != nil {
			return nil, err
		}
		if seal == nil {
			return plain, nil
		}
	}
	return seal.Seal(s.key, plain)
}

// SealedDecoder is Decoder for a resource whose values may be sealed. What cannot be opened becomes an object with a fault, and unreadable is set.
func SealedDecoder(k *kind.Kind, sealer Sealer, unreadable *atomic.Bool) func(key string, rev store.Revision, data []byte) (store.Value, error) {
	plain := Decoder(k)
	return func(key string, rev store.Revision, data []byte) (store.Value, error) {
		o, err := unseal(k, sealer, key, rev, data)
		if err == nil {
			return o, nil
		}
		if !strings.HasPrefix(string(data[:min(len(data), len(sealPrefix))]), sealPrefix) {
			if _, _, refused := sealer.Open(key, data); refused == nil {
				return plain(key, rev, data) // damaged, not sealed: the same error as ever
			}
		}
		unreadable.Store(true)
		return unread(k, sealer, key, rev, data, err), nil
	}
}

// sealPrefix begins every sealed value.
const sealPrefix = "k8s:enc:"

func unseal(k *kind.Kind, sealer Sealer, key string, rev store.Revision, data []byte) (*Object, error) {
	plain, id, err := sealer.Open(key, data)
	if err != nil {
		return nil, err
	}
	v, err := Decoder(k)(key, rev, plain)
	if err != nil {
		return nil, err
	}
	o := v.(*Object)
	if id != "" {
		o.sealed = &sealed{key: key, id: id, sealer: sealer}
	}
	return o, nil
}

// unread stands for an object that cannot be read.
func unread(k *kind.Kind, sealer Sealer, key string, rev store.Revision, data []byte, fault error) *Object {
	obj := k.New()
	obj.GetObjectKind().SetGroupVersionKind(k.Hub)
	namespace, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		namespace, name = "", key
	}
	obj.SetNamespace(namespace)
	obj.SetName(name)
	o := New(k, obj).Stamp(rev)
	o.sealed = &sealed{key: key, sealer: sealer, raw: data, fault: fmt.Errorf("the stored %s %q cannot be read: %w", k.Names.Singular, key, fault)}
	return o
}
