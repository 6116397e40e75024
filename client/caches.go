package client

// Caches makes and runs the caches of one process over one transport; a kind asked for twice with the same options is one cache.
type Caches struct{}

// CacheOf returns the cache of T with these options, made on first use.
func CacheOf[T Object](c *Caches, opts CacheOptions) Cache[T] { panic("to be written") }

// Of returns the typed client of T over t.
func Of[T Object](t Transport) API[T] { panic("to be written") }
