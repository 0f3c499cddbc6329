package source

import (
	"container/list"
	"sync"
)

// A cacheKey names what is kept: the data at an offset of a pack, or the tree
// with a hash in a mirror. Owners are packs and mirrors.
type cacheKey struct {
	owner  uint64
	offset int64
	hash   [20]byte
}

// An lru keeps what was used last, up to a number of bytes, for all mirrors
// together. Values are never changed once they are in it.
type lru struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	order *list.List // newest first
	items map[cacheKey]*list.Element
}

type cached struct {
	key   cacheKey
	value any
	size  int64
}

func newLRU(limit int64) *lru {
	return &lru{limit: limit, order: list.New(), items: map[cacheKey]*list.Element{}}
}

func (c *lru) get(key cacheKey) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[key]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).value, true //nolint:forcetypeassert // only put fills the list
}

// put keeps a value unless it alone would fill an eighth of the cache.
func (c *lru) put(key cacheKey, value any, size int64) {
	size += 200 // what the entry itself takes
	if size > c.limit/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.items[key]; ok {
		return
	}
	c.items[key] = c.order.PushFront(&cached{key, value, size})
	c.bytes += size
	for c.bytes > c.limit {
		c.remove(c.order.Back())
	}
}

// drop forgets everything of some owners.
func (c *lru) drop(owners map[uint64]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if owners[e.Value.(*cached).key.owner] { //nolint:forcetypeassert // as above
			c.remove(e)
		}
		e = next
	}
}

func (c *lru) remove(e *list.Element) {
	v := e.Value.(*cached) //nolint:forcetypeassert // as above
	c.order.Remove(e)
	delete(c.items, v.key)
	c.bytes -= v.size
}
