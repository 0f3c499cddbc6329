package source

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"github.com/capstan-cd/capstan/hub/lru"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// errNoObject says that a mirror does not have an object.
var errNoObject = plumbing.ErrObjectNotFound

// A library is what the mirrors of one replica share for reading: the cache,
// idle inflaters, and the numbers that name packs and mirrors.
type library struct {
	cache     *lru.Cache[cacheKey, any]
	inflaters inflaters
	ids       atomic.Uint64
	maxDelta  int64 // largest object that is put together from deltas
	log       *slog.Logger
}

// A cacheKey names what is kept: the data at an offset of a pack, or the tree
// with a hash in a mirror. Owners are packs and mirrors.
type cacheKey struct {
	owner  uint64
	offset int64
	hash   [20]byte
}

// An odb is the object database of one mirror: packs that only ever come and
// go as whole files. Any number of goroutines may read it, also while packs
// come and go. It opens files when they are first needed, and rest closes
// them again.
type odb struct {
	*library
	dir string // objects/pack

	mu  sync.Mutex
	set *packSet // nil: at rest
}

// A packSet is the packs at one moment, newest first. Readers hold it while
// they read, so that the files stay open though a newer set is in place.
type packSet struct {
	packs []*heldPack
	held  int // readers, and one for being the current set
}

// A heldPack counts the sets that it is in.
type heldPack struct {
	*pack
	sets int
}

func (o *odb) acquire() (*packSet, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set == nil {
		packs, err := o.open()
		if err != nil {
			return nil, err
		}
		o.set = newSet(packs)
	}
	o.set.held++
	return o.set, nil
}

func newSet(packs []*heldPack) *packSet {
	for _, p := range packs {
		p.sets++
	}
	return &packSet{packs: packs, held: 1}
}

// open opens all packs of the folder and removes what an interrupted write
// left behind.
func (o *odb) open() ([]*heldPack, error) {
	list, err := os.ReadDir(o.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list packs: %w", err)
	}
	var packs []*heldPack
	for _, e := range list {
		name, isIndex := strings.CutSuffix(e.Name(), ".idx")
		if !isIndex || !strings.HasPrefix(name, "pack-") {
			continue
		}
		p, err := openPack(filepath.Join(o.dir, name), &o.ids)
		if err != nil {
			return nil, errors.Join(err, closePacks(packs))
		}
		packs = append(packs, &heldPack{pack: p})
	}
	return packs, nil
}

func closePacks(packs []*heldPack) error {
	var errs []error
	for _, p := range packs {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

func (o *odb) release(s *packSet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseLocked(s)
}

func (o *odb) releaseLocked(s *packSet) {
	s.held--
	if s.held > 0 {
		return
	}
	gone := map[uint64]bool{}
	for _, p := range s.packs {
		p.sets--
		if p.sets > 0 {
			continue
		}
		gone[p.id] = true
		if err := p.close(); err != nil {
			o.log.Warn("pack not closed", logkey.File, p.name, logkey.Error, err)
		}
	}
	if len(gone) > 0 {
		o.cache.Drop(func(k cacheKey) bool { return gone[k.owner] })
	}
}

// swap puts a pack in place of others, which may be none.
func (o *odb) swap(in *pack, out []*heldPack) error {
	held, err := o.acquire()
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.releaseLocked(held)
	drop := map[*heldPack]bool{}
	for _, p := range out {
		drop[p] = true
	}
	packs := []*heldPack{{pack: in}}
	for _, p := range o.set.packs {
		if p.name == in.name {
			// The folder was opened after the new pack was put there.
			drop[p] = true
		}
		if !drop[p] {
			packs = append(packs, p)
		}
	}
	old := o.set
	o.set = newSet(packs)
	o.releaseLocked(old)
	return nil
}

// rest closes all files as soon as no reader needs them.
func (o *odb) rest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set != nil {
		old := o.set
		o.set = nil
		o.releaseLocked(old)
	}
}

// has reports whether an object is here.
func (o *odb) has(h plumbing.Hash) (bool, error) {
	s, err := o.acquire()
	if err != nil {
		return false, err
	}
	defer o.release(s)
	_, _, err = s.find(h)
	if errors.Is(err, errNoObject) {
		return false, nil
	}
	return err == nil, err
}

func (s *packSet) find(h plumbing.Hash) (*pack, int64, error) {
	for _, p := range s.packs {
		offset, found, err := p.idx.find(h)
		if err != nil || found {
			return p.pack, offset, err
		}
	}
	return nil, 0, errNoObject
}

// prefixed gives up to limit objects whose names start with a prefix.
func (o *odb) prefixed(prefix string, limit int) ([]plumbing.Hash, error) {
	s, err := o.acquire()
	if err != nil {
		return nil, err
	}
	defer o.release(s)
	seen := map[plumbing.Hash]bool{}
	var all []plumbing.Hash
	for _, p := range s.packs {
		found, err := p.idx.prefixed(prefix, limit)
		if err != nil {
			return nil, err
		}
		for _, h := range found {
			if !seen[h] {
				seen[h] = true
				all = append(all, h)
			}
		}
	}
	return all, nil
}

// A rawObject is what a name stands for. Its data is shared and never changed.
type rawObject struct {
	kind plumbing.ObjectType
	data []byte
}

// read returns an object of at most limit bytes; a larger one is an errTooLarge.
func (o *odb) read(h plumbing.Hash, limit int64) (rawObject, error) {
	s, err := o.acquire()
	if err != nil {
		return rawObject{}, err
	}
	defer o.release(s)
	p, offset, err := s.find(h)
	if err != nil {
		return rawObject{}, fmt.Errorf("object %s: %w", h, err)
	}
	obj, err := o.readAt(s, p, offset, limit)
	if err != nil {
		return rawObject{}, fmt.Errorf("object %s: %w", h, err)
	}
	return obj, nil
}

// size returns how many bytes an object has.
func (o *odb) size(h plumbing.Hash) (int64, error) {
	s, err := o.acquire()
	if err != nil {
		return 0, err
	}
	defer o.release(s)
	p, offset, err := s.find(h)
	if err != nil {
		return 0, fmt.Errorf("object %s: %w", h, err)
	}
	e, err := entryAt(p.file, offset, p.size)
	if err != nil || !e.delta() {
		return e.size, err
	}
	_, size, err := o.inflaters.deltaSizes(p.file, e, p.size)
	return size, err
}

// A step is one delta on the way from a base to an object.
type step struct {
	p      *pack
	offset int64
	entry  entry
}

// readAt puts an object together from what its pack holds.
func (o *odb) readAt(s *packSet, p *pack, offset, limit int64) (rawObject, error) {
	var steps []step
	var obj rawObject
	for {
		if kept, ok := o.cache.Get(cacheKey{owner: p.id, offset: offset}); ok {
			obj, _ = kept.(rawObject)
			break
		}
		e, err := entryAt(p.file, offset, p.size)
		if err != nil {
			return rawObject{}, err
		}
		if !e.delta() {
			if obj, err = o.whole(p, offset, e, limit, len(steps) > 0); err != nil {
				return rawObject{}, err
			}
			break
		}
		if len(steps) == 0 {
			if _, size, err := o.inflaters.deltaSizes(p.file, e, p.size); err != nil || size > limit {
				return rawObject{}, errors.Join(err, tooLarge(size, limit))
			}
		}
		if steps = append(steps, step{p, offset, e}); len(steps) > maxChain {
			return rawObject{}, fmt.Errorf("%w: chain of more than %d deltas", errDamaged, maxChain)
		}
		if e.kind == plumbing.OFSDeltaObject {
			offset = e.base
		} else if p, offset, err = s.find(e.ref); err != nil {
			return rawObject{}, fmt.Errorf("%w: base %s: %w", errDamaged, e.ref, err)
		}
	}
	if len(steps) == 0 && int64(len(obj.data)) > limit {
		return rawObject{}, errTooLarge{int64(len(obj.data))}
	}
	return o.apply(obj, steps)
}

func tooLarge(size, limit int64) error {
	if size > limit {
		return errTooLarge{size}
	}
	return nil
}

// whole reads an object that is stored as it is.
func (o *odb) whole(p *pack, offset int64, e entry, limit int64, base bool) (rawObject, error) {
	if base {
		limit = o.maxDelta
	}
	if e.size > limit {
		return rawObject{}, errTooLarge{e.size}
	}
	data, err := o.inflaters.inflate(p.file, e, p.size)
	if err != nil {
		return rawObject{}, err
	}
	obj := rawObject{e.kind, data}
	if base || e.kind != plumbing.BlobObject {
		o.cache.Put(cacheKey{owner: p.id, offset: offset}, obj, e.size)
	}
	return obj, nil
}

// apply applies deltas, the last one first.
func (o *odb) apply(obj rawObject, steps []step) (rawObject, error) {
	for i := len(steps) - 1; i >= 0; i-- {
		st := steps[i]
		if st.entry.size > o.maxDelta {
			return rawObject{}, errTooLarge{st.entry.size}
		}
		delta, err := o.inflaters.inflate(st.p.file, st.entry, st.p.size)
		if err != nil {
			return rawObject{}, err
		}
		if obj.data, err = patch(obj.data, delta, o.maxDelta); err != nil {
			return rawObject{}, err
		}
		o.cache.Put(cacheKey{owner: st.p.id, offset: st.offset}, obj, int64(len(obj.data)))
	}
	return obj, nil
}

// patch returns the result of a delta, which must not be larger than limit.
func patch(base, delta []byte, limit int64) ([]byte, error) {
	size, result, err := parseDeltaSizes(delta)
	if err != nil {
		return nil, err
	}
	if size != int64(len(base)) {
		return nil, fmt.Errorf("%w: delta for a base of another size", errDamaged)
	}
	if result > limit {
		return nil, errTooLarge{result}
	}
	data, err := packfile.PatchDelta(base, delta)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	return data, nil
}
