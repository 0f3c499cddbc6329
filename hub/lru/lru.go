// Package lru keeps in memory what was used last, up to a number of bytes.
// Values are never changed once they are in it. It knows nothing of what it
// keeps: whoever puts a value says how large it is. Losing one costs the work
// of getting it again.
package lru

import (
	"container/list"
	"sync"
)

// own is what an entry itself takes, in bytes.
const own = 200

// A Cache keeps values of one kind. It is safe for many goroutines.
type Cache[K comparable, V any] struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	order *list.List // of *entry, newest first
	items map[K]*list.Element
}

type entry[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

// New makes a cache of so many bytes, the entries' own included.
func New[K comparable, V any](limit int64) *Cache[K, V] {
	return &Cache[K, V]{limit: limit, order: list.New(), items: map[K]*list.Element{}}
}

// Get returns what is kept for a key.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[key]
	if !ok {
		var none V
		return none, false
	}
	c.order.MoveToFront(e)
	return held[K, V](e).value, true
}

// Put keeps a value of so many bytes in place of the one that there may be for
// the key, unless it alone would fill an eighth of the cache.
func (c *Cache[K, V]) Put(key K, value V, size int64) {
	size += own
	if size > c.limit/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.items[key]; ok {
		c.remove(old)
	}
	c.items[key] = c.order.PushFront(&entry[K, V]{key, value, size})
	c.bytes += size
	for c.bytes > c.limit {
		c.remove(c.order.Back())
	}
}

// Drop forgets everything under some keys.
func (c *Cache[K, V]) Drop(of func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if of(held[K, V](e).key) {
			c.remove(e)
		}
		e = next
	}
}

// Len is how many values are kept.
func (c *Cache[K, V]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.items)
}

// Bytes is how large they are together.
func (c *Cache[K, V]) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *Cache[K, V]) remove(e *list.Element) {
	v := held[K, V](e)
	c.order.Remove(e)
	delete(c.items, v.key)
	c.bytes -= v.size
}

func held[K comparable, V any](e *list.Element) *entry[K, V] {
	return e.Value.(*entry[K, V])
}
