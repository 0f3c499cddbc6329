package packstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/klauspost/compress/zlib"
)

const (
	packHead    = 12   // bytes before the first object
	packTail    = 20   // bytes after the last one: the checksum
	maxChain    = 4096 // longest chain of deltas that is followed
	entryHead   = 32   // most bytes before the compressed data of an object
	inflateRead = 4096
)

// TooLargeError means that an object has more bytes than the reader wants.
type TooLargeError struct{ Size int64 }

func (e TooLargeError) Error() string { return fmt.Sprintf("object of %d bytes", e.Size) }

// A pack is one immutable pack file with its index. Any number of goroutines
// may read it.
type pack struct {
	id   uint64 // names the pack in caches; never used twice
	name string // path without its ending
	file *os.File
	size int64
	idx  *index
}

// openPack opens a pack and checks that file and index belong together.
func openPack(name string, ids *atomic.Uint64) (*pack, error) {
	idx, err := openIndex(name + ".idx")
	if err != nil {
		return nil, err
	}
	p := &pack{id: ids.Add(1), name: name, idx: idx}
	if err := p.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("pack %q: %w", name, err), p.close())
	}
	return p, nil
}

func (p *pack) open() error {
	f, err := os.Open(p.name + ".pack")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	p.file = f
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	p.size = info.Size()
	if p.size < packHead+packTail {
		return fmt.Errorf("%w: pack of %d bytes", ErrDamaged, p.size)
	}
	var sum [packTail]byte
	if _, err := f.ReadAt(sum[:], p.size-packTail); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if sum != p.idx.pack {
		return fmt.Errorf("%w: pack and index do not belong together", ErrDamaged)
	}
	return nil
}

func (p *pack) close() error {
	err := p.idx.close()
	if p.file != nil {
		err = errors.Join(err, p.file.Close())
	}
	return err
}

// An entry is one object as it is stored: whole, or as a difference from a
// base at an earlier offset or of a name.
type entry struct {
	kind plumbing.ObjectType
	size int64 // of the data once inflated; of a delta, not of its result
	data int64 // where the compressed data starts
	base int64 // offset of the base of an offset delta
	ref  plumbing.Hash
}

func (e entry) delta() bool {
	return e.kind == plumbing.OFSDeltaObject || e.kind == plumbing.REFDeltaObject
}

// entryAt reads what is stored at an offset of a pack.
func entryAt(r io.ReaderAt, offset, size int64) (entry, error) {
	if offset < packHead || offset >= size-packTail {
		return entry{}, fmt.Errorf("%w: offset %d outside the pack", ErrDamaged, offset)
	}
	var buf [entryHead]byte
	n, err := r.ReadAt(buf[:min(entryHead, size-offset)], offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return entry{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return parseEntry(buf[:n], offset)
}

func parseEntry(b []byte, offset int64) (entry, error) {
	bad := fmt.Errorf("%w: malformed object at offset %d", ErrDamaged, offset)
	if len(b) == 0 {
		return entry{}, bad
	}
	e := entry{kind: plumbing.ObjectType(b[0] >> 4 & 7), size: int64(b[0] & 15)}
	i := 1
	for shift := 4; b[i-1]&0x80 != 0; shift += 7 {
		if i >= len(b) || shift > 53 {
			return entry{}, bad
		}
		e.size |= int64(b[i]&0x7f) << shift
		i++
	}
	switch e.kind {
	case plumbing.CommitObject, plumbing.TreeObject, plumbing.BlobObject, plumbing.TagObject:
	case plumbing.OFSDeltaObject:
		back, used := backOffset(b[i:])
		if used == 0 || back <= 0 || back > offset-packHead {
			return entry{}, bad
		}
		e.base, i = offset-back, i+used
	case plumbing.REFDeltaObject:
		if len(b) < i+20 {
			return entry{}, bad
		}
		e.ref, i = plumbing.Hash(b[i:i+20]), i+20
	default:
		return entry{}, bad
	}
	e.data = offset + int64(i)
	return e, nil
}

// backOffset decodes how far before a delta its base is; used is 0 if it
// is malformed.
func backOffset(b []byte) (back int64, used int) {
	for i, c := range b[:min(len(b), 9)] {
		if i > 0 {
			back++
		}
		back = back<<7 | int64(c&0x7f)
		if c&0x80 == 0 {
			return back, i + 1
		}
	}
	return 0, 0
}

// An inflater is the reusable state of one decompression.
type inflater struct {
	buf *bufio.Reader
	z   io.ReadCloser
}

// inflaters is a pool of idle inflaters of one owner.
type inflaters struct{ pool sync.Pool }

func (s *inflaters) get(r io.Reader) (*inflater, error) {
	in, _ := s.pool.Get().(*inflater)
	if in == nil {
		in = &inflater{buf: bufio.NewReaderSize(nil, inflateRead)}
	}
	in.buf.Reset(r)
	var err error
	if in.z == nil {
		in.z, err = zlib.NewReader(in.buf)
	} else if z, ok := in.z.(zlib.Resetter); ok {
		err = z.Reset(in.buf, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return in, nil
}

func (s *inflaters) put(in *inflater) {
	in.buf.Reset(bytes.NewReader(nil))
	s.pool.Put(in)
}

// inflate returns the whole data of an entry, checked by its checksum.
func (s *inflaters) inflate(r io.ReaderAt, e entry, size int64) ([]byte, error) {
	in, err := s.get(io.NewSectionReader(r, e.data, size-packTail-e.data))
	if err != nil {
		return nil, err
	}
	defer s.put(in)
	data := make([]byte, e.size)
	if _, err := io.ReadFull(in.z, data); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	// The checksum is compared when the reader meets the end.
	var end [1]byte
	if n, err := in.z.Read(end[:]); n != 0 || !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: object longer than declared or with a wrong checksum", ErrDamaged)
	}
	return data, nil
}

// deltaSizes reads how long base and result of a delta are, without reading
// more than its beginning.
func (s *inflaters) deltaSizes(r io.ReaderAt, e entry, size int64) (base, result int64, err error) {
	in, err := s.get(io.NewSectionReader(r, e.data, size-packTail-e.data))
	if err != nil {
		return 0, 0, err
	}
	defer s.put(in)
	var head [20]byte
	n, err := io.ReadFull(in.z, head[:min(int64(len(head)), e.size)])
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return parseDeltaSizes(head[:n])
}

func parseDeltaSizes(b []byte) (base, result int64, err error) {
	base, used := leb128(b)
	result, more := leb128(b[used:])
	if used == 0 || more == 0 {
		return 0, 0, fmt.Errorf("%w: malformed delta", ErrDamaged)
	}
	return base, result, nil
}

func leb128(b []byte) (v int64, used int) {
	for i, c := range b[:min(len(b), 9)] {
		v |= int64(c&0x7f) << (7 * i)
		if c&0x80 == 0 {
			return v, i + 1
		}
	}
	return 0, 0
}
