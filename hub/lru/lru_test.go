package lru_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub/lru"
)

type key struct{ owner, n int }

func TestCache(t *testing.T) {
	t.Parallel()
	c := lru.New[key, int](8000)
	for i := range 100 {
		c.Put(key{i % 2, i}, i, 500)
		c.Get(key{})
	}
	if c.Bytes() > 8000 || c.Len() != 11 {
		t.Errorf("%d bytes in %d values, want the 11 that fit", c.Bytes(), c.Len())
	}
	if _, ok := c.Get(key{}); !ok {
		t.Error("what is used all the time was dropped")
	}
	if got, ok := c.Get(key{1, 99}); !ok || got != 99 {
		t.Errorf("the newest value is %d, %v", got, ok)
	}
	if _, ok := c.Get(key{1, 1}); ok {
		t.Error("what was not used for longest is still there")
	}
	if c.Put(key{0, 1000}, 1, 7000); c.Len() != 11 {
		t.Error("one large value pushes all others out")
	}
	c.Put(key{1, 99}, 1, 600)
	if got, _ := c.Get(key{1, 99}); got != 1 || c.Len() != 11 || c.Bytes() != 11*700+100 {
		t.Errorf("put again: %d, with %d values of %d bytes", got, c.Len(), c.Bytes())
	}
	if c.Drop(func(k key) bool { return k.owner == 1 }); c.Len() == 0 {
		t.Error("values of others were dropped as well")
	}
	if c.Drop(func(key) bool { return true }); c.Bytes() != 0 || c.Len() != 0 {
		t.Errorf("%d bytes in %d values after all were dropped", c.Bytes(), c.Len())
	}
}
