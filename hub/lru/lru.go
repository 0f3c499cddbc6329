// Package lru is a cache of the most recently used values, bounded in bytes.
// Values are never changed once they are in it. The caller passes the size of a
// value. Losing one costs the work of getting it again.
package lru

import (
	"container/list"
	"sync"
)

// own is the size of an entry itself, in bytes.
const own = 200

// A Cache stores values of one kind. It is safe for many goroutines.
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

// Get returns the value of a key.
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

// Put stores a value of so many bytes, replacing the key's former value, unless
// it alone would fill an eighth of the cache.
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

// Len is the number of values.
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
