package packstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// spoolMemory is how much of a received pack is held in memory; a larger one
// goes to a file at once.
const spoolMemory = 256 << 10

// A LimitError names the limit of the operator that a repository exceeded.
type LimitError struct {
	What  string
	Limit int64
}

func (e LimitError) Error() string { return fmt.Sprintf("%s, more than %d", e.What, e.Limit) }

// A Spool holds a pack as it came from the network.
type Spool struct {
	dir  string
	mem  []byte
	file *os.File // once mem would be too small
	size int64
}

// Spool reads a pack of at most so many bytes to its end. The caller closes the
// spool.
func (o *Objects) Spool(r io.Reader, limit int64) (*Spool, error) {
	s := &Spool{dir: o.dir}
	if err := s.fill(r, limit); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Spool) fill(r io.Reader, limit int64) error {
	var head bytes.Buffer
	n, err := io.Copy(&head, io.LimitReader(r, min(spoolMemory, limit)+1))
	s.mem, s.size = head.Bytes(), n
	switch {
	case err != nil:
		return fmt.Errorf("read pack: %w", err)
	case n > limit:
		return LimitError{"the repository has too many bytes", limit}
	case n <= spoolMemory:
		return nil
	}
	return s.toFile(r, limit)
}

func (s *Spool) toFile(r io.Reader, limit int64) error {
	f, err := os.CreateTemp(s.dir, "tmp_pack_")
	if err != nil {
		return fmt.Errorf("create pack: %w", err)
	}
	s.file = f
	if _, err := f.Write(s.mem); err != nil {
		return fmt.Errorf("write pack: %w", err)
	}
	s.mem = nil
	n, err := io.Copy(f, io.LimitReader(r, limit-s.size+1))
	if s.size += n; err != nil {
		return fmt.Errorf("read pack: %w", err)
	}
	if s.size > limit {
		return LimitError{"the repository has too many bytes", limit}
	}
	return nil
}

// A randomReader is a pack that can be read at any place.
type randomReader interface {
	io.ReadSeeker
	io.ReaderAt
}

func (s *Spool) reader() randomReader {
	if s.file != nil {
		return io.NewSectionReader(s.file, 0, s.size)
	}
	return bytes.NewReader(s.mem)
}

// finish renames the pack to its final name and returns it open for reading. It
// is not used before its index exists.
func (s *Spool) finish(name string) (*os.File, error) {
	if s.file != nil {
		if err := rename(s.file.Name(), name); err != nil {
			return nil, err
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("open pack: %w", err)
		}
		return f, nil
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create pack: %w", err)
	}
	if _, err := f.Write(s.mem); err != nil {
		return nil, errors.Join(fmt.Errorf("write pack: %w", err), f.Close())
	}
	return f, nil
}

func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("put file in place: %w", err)
	}
	return nil
}

// Close removes what was not stored.
func (s *Spool) Close() error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if gone := os.Remove(s.file.Name()); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	if err != nil {
		return fmt.Errorf("close spool: %w", err)
	}
	return nil
}

// Limits bound what a pack may cost to ingest.
type Limits struct {
	Objects  int64 // in the pack
	Object   int64 // bytes of one object put together from deltas
	Inflated int64 // bytes of all stored data once inflated
}

// Ingest checks a received pack object by object and adds it to the database.
// Nothing of a pack with an error stays behind.
func (o *Objects) Ingest(ctx context.Context, s *Spool, limits Limits) error {
	p, err := o.lib.ingest(ctx, s, o.dir, limits)
	if err != nil {
		return fmt.Errorf("take in the pack: %w", err)
	}
	return o.swap(p, nil)
}

// ingest puts a received pack and its index in the folder, and opens it.
func (l *Library) ingest(ctx context.Context, s *Spool, dir string, limits Limits) (*pack, error) {
	ix := &indexer{ctx: ctx, src: s.reader(), size: s.size, limits: limits, inflaters: &l.inflaters, waiting: map[plumbing.Hash][]int32{}}
	sum, err := ix.run()
	if err != nil {
		return nil, blame(ctx, err)
	}
	entries := make([]idxEntry, len(ix.objects))
	for i, o := range ix.objects {
		entries[i] = idxEntry{o.hash, o.offset, o.crc}
	}
	p := &pack{id: l.ids.Add(1), name: filepath.Join(dir, "pack-"+hex.EncodeToString(sum[:])), size: s.size}
	if p.file, err = s.finish(p.name + ".pack"); err != nil {
		return nil, err
	}
	if p.idx, err = writeIndex(p.name+".idx", entries, sum); err != nil {
		return nil, errors.Join(err, p.file.Close(), os.Remove(p.name+".pack"))
	}
	return p, nil
}

// ErrMalformed means that a pack is not what Git would have sent.
var ErrMalformed = errors.New("the pack is malformed")

// blame marks an error as the server's unless a limit, the end of the context
// or the hub's own disk made it.
func blame(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.As(err, new(LimitError)) || errors.As(err, new(*os.PathError)) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrMalformed, err)
}

// An indexer finds out the name of every object in a pack. All work on bytes
// of a server is bounded by the limits and by the context.
type indexer struct {
	ctx       context.Context //nolint:containedctx // an indexer lives for one call of run
	src       randomReader
	size      int64
	limits    Limits
	inflaters *inflaters

	objects []packed
	waiting map[plumbing.Hash][]int32 // deltas by the name of a base that is not known yet
	done    int
}

// packed is one object of the pack in hand.
type packed struct {
	offset  int64
	hash    plumbing.Hash
	crc     uint32
	base    int32 // index of its base; -1: none, or only its name is known
	child   int32 // first delta upon it, -1: none
	sibling int32 // next delta upon the same base, -1: none
	kind    plumbing.ObjectType
}

func (x *indexer) run() (sum [20]byte, err error) {
	scan := packfile.NewScanner(x.src)
	_, count, err := scan.Header()
	if err != nil {
		return sum, fmt.Errorf("pack header: %w", err)
	}
	if int64(count) > x.limits.Objects {
		return sum, LimitError{"the repository has too many objects", x.limits.Objects}
	}
	var inflated int64
	for range count {
		n, err := x.scan(scan)
		if err != nil {
			return sum, fmt.Errorf("object %d of the pack: %w", len(x.objects)+1, err)
		}
		if inflated += n; inflated > x.limits.Inflated {
			return sum, LimitError{"the repository inflates to too many bytes", x.limits.Inflated}
		}
	}
	if sum, err = scan.Checksum(); err != nil {
		return sum, fmt.Errorf("pack checksum: %w", err)
	}
	return sum, x.resolve()
}

// scan reads one stored object from front to back.
func (x *indexer) scan(scan *packfile.Scanner) (int64, error) {
	if err := x.ctx.Err(); err != nil {
		return 0, err
	}
	h, err := scan.NextObjectHeader()
	if err != nil {
		return 0, fmt.Errorf("header: %w", err)
	}
	o := packed{offset: h.Offset, base: -1, child: -1, sibling: -1, kind: h.Type}
	self := int32(len(x.objects))
	hasher := plumbing.NewHasher(h.Type, h.Length)
	to := &pacedWriter{x.ctx, hasher}
	switch h.Type {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
	case plumbing.OFSDeltaObject:
		base, found := slices.BinarySearchFunc(x.objects, h.OffsetReference, func(p packed, at int64) int { return cmp.Compare(p.offset, at) })
		if !found {
			return 0, fmt.Errorf("delta without a base: %w", packfile.ErrMalformedPackFile)
		}
		o.base, o.sibling = int32(base), x.objects[base].child
		x.objects[base].child = self
		to.w = io.Discard
	case plumbing.REFDeltaObject:
		x.waiting[h.Reference] = append(x.waiting[h.Reference], self)
		to.w = io.Discard
	default:
		return 0, fmt.Errorf("object of kind %d: %w", h.Type, packfile.ErrMalformedPackFile)
	}
	if o.kind.IsDelta() && h.Length > x.limits.Object || !o.kind.IsDelta() && h.Length > x.limits.Inflated {
		return 0, LimitError{"the repository has an object with too many bytes", x.limits.Object}
	}
	n, crc, err := scan.NextObject(to)
	if err != nil {
		return 0, fmt.Errorf("data: %w", err)
	}
	if n != h.Length {
		return 0, fmt.Errorf("object shorter than declared: %w", packfile.ErrMalformedPackFile)
	}
	if o.crc = crc; !o.kind.IsDelta() {
		o.hash = hasher.Sum()
	}
	x.objects = append(x.objects, o)
	return n, nil
}

// A pacedWriter fails once its context is over.
type pacedWriter struct {
	ctx context.Context //nolint:containedctx // lives for one object
	w   io.Writer
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.w.Write(p)
}

// resolve names all deltas, base before delta.
func (x *indexer) resolve() error {
	for i := range x.objects {
		if o := &x.objects[i]; !o.kind.IsDelta() {
			x.done++
			x.adopt(int32(i))
		}
	}
	for i := range x.objects {
		if o := &x.objects[i]; !o.kind.IsDelta() && o.child >= 0 {
			if err := x.descend(int32(i)); err != nil {
				return err
			}
		}
	}
	if x.done != len(x.objects) {
		return fmt.Errorf("%d deltas without a base: %w", len(x.objects)-x.done, packfile.ErrMalformedPackFile)
	}
	return nil
}

// adopt hangs the deltas that know their base only by name below it.
func (x *indexer) adopt(base int32) {
	o := &x.objects[base]
	if len(x.waiting) == 0 {
		return
	}
	for _, i := range x.waiting[o.hash] {
		x.objects[i].base, x.objects[i].sibling = base, o.child
		o.child = i
	}
	delete(x.waiting, o.hash)
}

// A level is one object on the way down a tree of deltas.
type level struct {
	object int32
	next   int32 // its delta that comes next
	data   []byte
}

// descend names every delta below a whole object, depth first. The data of
// the way down is held up to a few objects; what was let go is put together
// again when it is needed.
func (x *indexer) descend(top int32) error {
	data, kind, err := x.whole(top)
	if err != nil {
		return err
	}
	d := descent{limit: 2 * x.limits.Object}
	d.push(level{top, x.objects[top].child, data})
	for len(d.way) > 0 {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		at := &d.way[len(d.way)-1]
		if at.next < 0 {
			d.pop()
			continue
		}
		child := at.next
		at.next = x.objects[child].sibling
		base, err := x.dataOf(&d, at)
		if err != nil {
			return err
		}
		result, err := x.patch(child, base)
		if err != nil {
			return err
		}
		o := &x.objects[child]
		o.hash = plumbing.ComputeHash(kind, result)
		x.done++
		if x.adopt(child); o.child < 0 {
			continue
		}
		if len(d.way) >= maxChain {
			return fmt.Errorf("chain of more than %d deltas: %w", maxChain, packfile.ErrMalformedPackFile)
		}
		d.push(level{child, o.child, result})
	}
	return nil
}

// A descent is the way from a whole object to a delta, with the data of its
// levels up to a limit in bytes.
type descent struct {
	way   []level
	held  int64 // bytes of data
	limit int64
}

// push adds a level. Where that is too much data, the levels above lose theirs.
func (d *descent) push(l level) {
	d.way = append(d.way, l)
	if d.held += int64(len(l.data)); d.held > d.limit {
		d.held -= letGo(d.way[:len(d.way)-1])
	}
}

func (d *descent) pop() {
	last := len(d.way) - 1
	d.held -= int64(len(d.way[last].data))
	d.way = d.way[:last]
}

// dataOf returns the data of the last level, put together anew if it was let
// go.
func (x *indexer) dataOf(d *descent, last *level) ([]byte, error) {
	if last.data == nil {
		data, err := x.rebuild(d.way)
		if err != nil {
			return nil, err
		}
		last.data = data
		d.held += int64(len(data))
	}
	return last.data, nil
}

// letGo releases the data of levels and returns its size.
func letGo(way []level) (bytes int64) {
	for i := range way {
		bytes += int64(len(way[i].data))
		way[i].data = nil
	}
	return bytes
}

// rebuild assembles the data of the last level again.
func (x *indexer) rebuild(way []level) ([]byte, error) {
	data, _, err := x.whole(way[0].object)
	for _, l := range way[1:] {
		if err != nil {
			return nil, err
		}
		data, err = x.patch(l.object, data)
	}
	return data, err
}

func (x *indexer) whole(i int32) ([]byte, plumbing.ObjectType, error) {
	e, err := entryAt(x.src, x.objects[i].offset, x.size)
	if err != nil {
		return nil, 0, err
	}
	if e.size > x.limits.Object {
		return nil, 0, LimitError{"the repository has an object with too many bytes", x.limits.Object}
	}
	data, err := x.inflaters.inflate(x.src, e, x.size)
	return data, e.kind, err
}

func (x *indexer) patch(i int32, base []byte) ([]byte, error) {
	e, err := entryAt(x.src, x.objects[i].offset, x.size)
	if err != nil {
		return nil, err
	}
	delta, err := x.inflaters.inflate(x.src, e, x.size)
	if err != nil {
		return nil, err
	}
	data, err := patch(base, delta, x.limits.Object)
	if large := (TooLargeError{}); errors.As(err, &large) {
		return nil, LimitError{"the repository has an object with too many bytes", x.limits.Object}
	}
	return data, err
}
