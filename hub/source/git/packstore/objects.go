// Package packstore is the object database of a Git repository: it ingests
// packs from a server and stores them with their indexes as files that git can
// read. It reads objects, commits and directories from them.
//
// It never talks to a server, knows neither refs nor tenants, and never makes a
// working copy. Every byte of a pack counts as hostile: ingesting one is
// bounded by Limits and by its context, and leaves nothing behind if it fails.
// The Git source has one Library for each replica and one Objects for each
// repository. Files are written once and never changed, so readers need no
// lock.
package packstore

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

// ErrNoObject means that an object is not here.
var ErrNoObject = plumbing.ErrObjectNotFound

// A Library is what all databases of one replica share for reading: the cache,
// idle inflaters, and the numbers that name packs and databases.
type Library struct {
	cache     *lru.Cache[cacheKey, any]
	inflaters inflaters
	ids       atomic.Uint64
	maxDelta  int64 // largest object that is put together from deltas
	log       *slog.Logger
}

// A cacheKey names what is cached: the data at an offset of a pack, or the
// directory with a hash in a database. Owners are packs and databases.
type cacheKey struct {
	owner  uint64
	offset int64
	hash   [20]byte
}

// NewLibrary makes a library with a cache of cacheBytes. Objects of up to
// maxDelta bytes are assembled from deltas.
func NewLibrary(cacheBytes, maxDelta int64, log *slog.Logger) *Library {
	return &Library{cache: lru.New[cacheKey, any](cacheBytes), maxDelta: maxDelta, log: log}
}

// Objects returns the object database whose packs are in a folder, which need
// not exist yet.
func (l *Library) Objects(dir string) *Objects {
	return &Objects{lib: l, id: l.ids.Add(1), dir: dir}
}

// Objects are the object database of one repository: packs that only ever come
// and go as whole files. Any number of goroutines may read it, also while packs
// come and go; one at a time changes it. It opens files when they are first
// needed, and Rest closes them again.
type Objects struct {
	lib *Library
	id  uint64 // names the database in the cache; never used twice
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

func (o *Objects) acquire() (*packSet, error) {
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
func (o *Objects) open() ([]*heldPack, error) {
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
		p, err := openPack(filepath.Join(o.dir, name), &o.lib.ids)
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

func (o *Objects) release(s *packSet) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.releaseLocked(s)
}

func (o *Objects) releaseLocked(s *packSet) {
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
			o.lib.log.Warn("pack not closed", logkey.File, p.name, logkey.Error, err)
		}
	}
	if len(gone) > 0 {
		o.lib.cache.Drop(func(k cacheKey) bool { return gone[k.owner] })
	}
}

// swap puts a pack in place of others, which may be none.
func (o *Objects) swap(in *pack, out []*heldPack) error {
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

// Rest closes all files as soon as no reader needs them, and releases memory.
func (o *Objects) Rest() {
	o.lib.cache.Drop(func(k cacheKey) bool { return k.owner == o.id })
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.set != nil {
		old := o.set
		o.set = nil
		o.releaseLocked(old)
	}
}

// Bytes is how large all packs are together.
func (o *Objects) Bytes() (int64, error) {
	s, err := o.acquire()
	if err != nil {
		return 0, err
	}
	defer o.release(s)
	var sum int64
	for _, p := range s.packs {
		sum += p.size
	}
	return sum, nil
}

// Has reports whether an object is here.
func (o *Objects) Has(h plumbing.Hash) (bool, error) {
	s, err := o.acquire()
	if err != nil {
		return false, err
	}
	defer o.release(s)
	_, _, err = s.find(h)
	if errors.Is(err, ErrNoObject) {
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
	return nil, 0, ErrNoObject
}

// Prefixed returns up to limit objects of each pack whose names start with a
// prefix of hexadecimal digits.
func (o *Objects) Prefixed(prefix string, limit int) ([]plumbing.Hash, error) {
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

// An Object is what a hash refers to. Its data is shared and never changed.
type Object struct {
	Kind plumbing.ObjectType
	Data []byte
}

// Read returns an object of at most limit bytes; a larger one is a TooLargeError.
func (o *Objects) Read(h plumbing.Hash, limit int64) (Object, error) {
	s, err := o.acquire()
	if err != nil {
		return Object{}, err
	}
	defer o.release(s)
	p, offset, err := s.find(h)
	if err != nil {
		return Object{}, fmt.Errorf("object %s: %w", h, err)
	}
	obj, err := o.readAt(s, p, offset, limit)
	if err != nil {
		return Object{}, fmt.Errorf("object %s: %w", h, err)
	}
	return obj, nil
}

// Size returns how many bytes an object has.
func (o *Objects) Size(h plumbing.Hash) (int64, error) {
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
	_, size, err := o.lib.inflaters.deltaSizes(p.file, e, p.size)
	return size, err
}

// A step is one delta on the way from a base to an object.
type step struct {
	p      *pack
	offset int64
	entry  entry
}

// readAt puts an object together from what its pack holds: it follows deltas
// down to an object that is cached or stored whole, and applies them to it.
func (o *Objects) readAt(s *packSet, p *pack, offset, limit int64) (Object, error) {
	var steps []step
	var obj Object
	for {
		e, found, err := o.wholeAt(p, offset, limit, len(steps) > 0, &obj)
		if err != nil {
			return Object{}, err
		}
		if found {
			break
		}
		if steps = append(steps, step{p, offset, e}); len(steps) > maxChain {
			return Object{}, fmt.Errorf("%w: chain of more than %d deltas", ErrDamaged, maxChain)
		}
		if p, offset, err = s.base(p, e); err != nil {
			return Object{}, err
		}
	}
	if len(steps) == 0 && int64(len(obj.Data)) > limit {
		return Object{}, TooLargeError{int64(len(obj.Data))}
	}
	return o.apply(obj, steps)
}

// wholeAt sets obj to what is at an offset, if it is cached or stored whole;
// base says that a delta is applied to it. Otherwise it returns the delta,
// which makes an object within the limit.
func (o *Objects) wholeAt(p *pack, offset, limit int64, base bool, obj *Object) (e entry, found bool, err error) {
	if kept, ok := o.lib.cache.Get(cacheKey{owner: p.id, offset: offset}); ok {
		*obj, _ = kept.(Object)
		return entry{}, true, nil
	}
	if e, err = entryAt(p.file, offset, p.size); err != nil {
		return e, false, err
	}
	if !e.delta() {
		*obj, err = o.whole(p, offset, e, limit, base)
		return e, true, err
	}
	if !base {
		if _, size, err := o.lib.inflaters.deltaSizes(p.file, e, p.size); err != nil || size > limit {
			return e, false, errors.Join(err, tooLarge(size, limit))
		}
	}
	return e, false, nil
}

// base returns where the base of a delta is.
func (s *packSet) base(p *pack, delta entry) (*pack, int64, error) {
	if delta.kind == plumbing.OFSDeltaObject {
		return p, delta.base, nil
	}
	p, offset, err := s.find(delta.ref)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: base %s: %w", ErrDamaged, delta.ref, err)
	}
	return p, offset, nil
}

func tooLarge(size, limit int64) error {
	if size > limit {
		return TooLargeError{size}
	}
	return nil
}

// whole reads an object that is stored as it is.
func (o *Objects) whole(p *pack, offset int64, e entry, limit int64, base bool) (Object, error) {
	if base {
		limit = o.lib.maxDelta
	}
	if e.size > limit {
		return Object{}, TooLargeError{e.size}
	}
	data, err := o.lib.inflaters.inflate(p.file, e, p.size)
	if err != nil {
		return Object{}, err
	}
	obj := Object{e.kind, data}
	if base || e.kind != plumbing.BlobObject {
		o.lib.cache.Put(cacheKey{owner: p.id, offset: offset}, obj, e.size)
	}
	return obj, nil
}

// apply applies deltas, the last one first.
func (o *Objects) apply(obj Object, steps []step) (Object, error) {
	for i := len(steps) - 1; i >= 0; i-- {
		st := steps[i]
		if st.entry.size > o.lib.maxDelta {
			return Object{}, TooLargeError{st.entry.size}
		}
		delta, err := o.lib.inflaters.inflate(st.p.file, st.entry, st.p.size)
		if err != nil {
			return Object{}, err
		}
		if obj.Data, err = patch(obj.Data, delta, o.lib.maxDelta); err != nil {
			return Object{}, err
		}
		o.lib.cache.Put(cacheKey{owner: st.p.id, offset: st.offset}, obj, int64(len(obj.Data)))
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
		return nil, fmt.Errorf("%w: delta for a base of another size", ErrDamaged)
	}
	if result > limit {
		return nil, TooLargeError{result}
	}
	data, err := packfile.PatchDelta(base, delta)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return data, nil
}
