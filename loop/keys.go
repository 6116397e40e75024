package loop

import "github.com/yare-project/yare/client"

// KeyOf is an object's namespace and name.
func KeyOf(o client.Object) Key { return Key{Namespace: o.GetNamespace(), Name: o.GetName()} }

// EnqueueSelf asks for a pass over each object of cache that changes.
func EnqueueSelf[T client.Object](cache client.Cache[T], enqueue func(Key)) {
	cache.OnChange(func(old, new T) { enqueue(KeyOf(client.Newest(old, new))) })
}
