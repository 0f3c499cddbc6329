package packstore

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha1" //nolint:gosec // the format of Git's index files demands it
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"

	"github.com/go-git/go-git/v5/plumbing"
)

// ErrDamaged marks what is wrong with the files of the database itself; what
// was fetched into it has to be fetched again.
var ErrDamaged = errors.New("the mirror is damaged")

// Layout of a pack index, version 2.
const (
	idxHeader   = 8
	idxNames    = idxHeader + 256*4 // names start here
	idxTrailer  = 40                // checksum of the pack, checksum of the index
	idxInMemory = 1 << 20           // indexes up to this size are held in memory
)

// An idxEntry is one object of a pack.
type idxEntry struct {
	hash   plumbing.Hash
	offset int64
	crc    uint32
}

// An index finds objects in one pack. It never changes, so that any number of
// goroutines may use it; a large one stays on disk.
type index struct {
	fanout [256]uint32
	count  int64
	src    io.ReaderAt
	file   *os.File // nil when held in memory
	size   int64
	pack   [20]byte // checksum of the pack
}

// openIndex reads and checks an index file.
func openIndex(name string) (*index, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open index: %w", err)
	}
	x, err := readIndex(f)
	if err != nil || x.file == nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("index %q: %w", f.Name(), err)
	}
	return x, nil
}

func readIndex(f *os.File) (*index, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat: %w", err)
	}
	x := &index{size: info.Size(), src: f, file: f}
	if x.size < idxNames+idxTrailer {
		return nil, fmt.Errorf("%w: index of %d bytes", ErrDamaged, x.size)
	}
	hash := sha1.New() //nolint:gosec // as above
	if x.size <= idxInMemory {
		data := make([]byte, x.size)
		if _, err := io.ReadFull(f, data); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		hash.Write(data[:x.size-20])
		x.src, x.file = bytes.NewReader(data), nil
	} else if _, err := io.Copy(hash, io.NewSectionReader(f, 0, x.size-20)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return x, x.check(hash.Sum(nil))
}

func (x *index) check(sum []byte) error {
	var head [idxNames]byte
	var tail [idxTrailer]byte
	if _, err := x.src.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if _, err := x.src.ReadAt(tail[:], x.size-idxTrailer); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if !bytes.Equal(head[:idxHeader], []byte("\xfftOc\x00\x00\x00\x02")) || !bytes.Equal(tail[20:], sum) {
		return fmt.Errorf("%w: wrong signature or checksum of an index", ErrDamaged)
	}
	copy(x.pack[:], tail[:20])
	last := uint32(0)
	for i := range x.fanout {
		n := binary.BigEndian.Uint32(head[idxHeader+4*i:])
		if n < last {
			return fmt.Errorf("%w: index out of order", ErrDamaged)
		}
		x.fanout[i], last = n, n
	}
	x.count = int64(last)
	if x.size < idxNames+28*x.count+idxTrailer {
		return fmt.Errorf("%w: index too short for %d objects", ErrDamaged, x.count)
	}
	return nil
}

func (x *index) close() error {
	if x.file == nil {
		return nil
	}
	return x.file.Close()
}

// bucket is the range of positions whose names start with b.
func (x *index) bucket(b byte) (from, to int64) {
	if b > 0 {
		from = int64(x.fanout[b-1])
	}
	return from, int64(x.fanout[b])
}

// names reads the names of positions from to to.
func (x *index) names(from, to int64) ([]byte, error) {
	data := make([]byte, 20*(to-from))
	if _, err := x.src.ReadAt(data, idxNames+20*from); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return data, nil
}

// find returns the offset of an object in the pack.
func (x *index) find(h plumbing.Hash) (offset int64, found bool, err error) {
	from, to := x.bucket(h[0])
	for to-from > 512 { // narrow down before reading the rest at once
		mid := (from + to) / 2
		name, err := x.names(mid, mid+1)
		if err != nil {
			return 0, false, err
		}
		if bytes.Compare(h[:], name) < 0 {
			to = mid
		} else {
			from = mid
		}
	}
	if from == to {
		return 0, false, nil
	}
	names, err := x.names(from, to)
	if err != nil {
		return 0, false, err
	}
	n := int(to - from)
	i := sort.Search(n, func(i int) bool { return bytes.Compare(names[20*i:20*i+20], h[:]) >= 0 })
	if i == n || !bytes.Equal(names[20*i:20*i+20], h[:]) {
		return 0, false, nil
	}
	offset, err = x.offset(from + int64(i))
	return offset, err == nil, err
}

func (x *index) offset(pos int64) (int64, error) {
	var b [8]byte
	if _, err := x.src.ReadAt(b[:4], idxNames+24*x.count+4*pos); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	short := binary.BigEndian.Uint32(b[:4])
	if short>>31 == 0 {
		return int64(short), nil
	}
	at := idxNames + 28*x.count + 8*int64(short&^(1<<31))
	if at+8 > x.size-idxTrailer {
		return 0, fmt.Errorf("%w: offset beyond the index", ErrDamaged)
	}
	if _, err := x.src.ReadAt(b[:], at); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return int64(binary.BigEndian.Uint64(b[:]) &^ (1 << 63)), nil
}

// prefixed returns up to limit objects whose names start with a prefix of
// hexadecimal digits.
func (x *index) prefixed(prefix string, limit int) ([]plumbing.Hash, error) {
	low, high := prefixRange(prefix)
	from, _ := x.bucket(low[0])
	_, to := x.bucket(high[0])
	var found []plumbing.Hash
	for from < to && len(found) < limit {
		end := min(from+512, to)
		names, err := x.names(from, end)
		if err != nil {
			return nil, err
		}
		for ; len(names) > 0; names = names[20:] {
			if h := plumbing.Hash(names[:20]); bytes.Compare(h[:], low[:]) >= 0 && bytes.Compare(h[:], high[:]) <= 0 {
				found = append(found, h)
			}
		}
		from = end
	}
	return found, nil
}

// prefixRange is the lowest and the highest hash with a prefix.
func prefixRange(prefix string) (low, high plumbing.Hash) {
	const zeros, effs = "0000000000000000000000000000000000000000", "ffffffffffffffffffffffffffffffffffffffff"
	return plumbing.NewHash(prefix + zeros[len(prefix):]), plumbing.NewHash(prefix + effs[len(prefix):])
}

// writeIndex puts an index of entries in place, which it sorts, and opens it.
// Of two entries for one object the first counts.
func writeIndex(name string, entries []idxEntry, pack [20]byte) (*index, error) {
	slices.SortStableFunc(entries, func(a, b idxEntry) int { return bytes.Compare(a.hash[:], b.hash[:]) })
	entries = slices.CompactFunc(entries, func(a, b idxEntry) bool { return a.hash == b.hash })
	tmp := name + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create index: %w", err)
	}
	data, err := fillIndex(f, entries, pack)
	if err := cmp.Or(err, f.Close()); err != nil {
		return nil, fmt.Errorf("write index: %w", err)
	}
	if err := rename(tmp, name); err != nil {
		return nil, err
	}
	if data == nil {
		return openIndex(name)
	}
	x := &index{size: int64(len(data)), src: bytes.NewReader(data)}
	return x, x.check(data[len(data)-20:])
}

// fillIndex writes an index to a file. A small one is also returned, to be used
// from memory.
func fillIndex(f io.Writer, entries []idxEntry, pack [20]byte) ([]byte, error) {
	var memory bytes.Buffer
	small := idxNames+36*len(entries)+idxTrailer <= idxInMemory
	hash := sha1.New() //nolint:gosec // as above
	to := io.MultiWriter(f, hash)
	if small {
		to = io.MultiWriter(&memory, hash)
	}
	w := bufio.NewWriterSize(to, 1<<16)
	if err := encodeIndex(w, entries); err != nil {
		return nil, err
	}
	_, _ = w.Write(pack[:]) // Flush reports the first error
	if err := w.Flush(); err != nil {
		return nil, fmt.Errorf("flush: %w", err)
	}
	if !small {
		_, err := f.Write(hash.Sum(nil))
		return nil, err
	}
	memory.Write(hash.Sum(nil))
	_, err := f.Write(memory.Bytes())
	return memory.Bytes(), err
}

// encodeIndex writes the tables. A bufio.Writer returns its first error from
// Flush, so the single writes need no check.
func encodeIndex(w *bufio.Writer, entries []idxEntry) error {
	var b [8]byte
	put32 := func(v uint32) {
		binary.BigEndian.PutUint32(b[:4], v)
		_, _ = w.Write(b[:4])
	}
	_, _ = w.WriteString("\xfftOc\x00\x00\x00\x02")
	n := 0
	for first := range 256 {
		for n < len(entries) && int(entries[n].hash[0]) == first {
			n++
		}
		put32(uint32(n))
	}
	for _, e := range entries {
		_, _ = w.Write(e.hash[:])
	}
	for _, e := range entries {
		put32(e.crc)
	}
	var long []int64
	for _, e := range entries {
		if e.offset < 1<<31 {
			put32(uint32(e.offset))
			continue
		}
		put32(1<<31 | uint32(len(long)))
		long = append(long, e.offset)
	}
	for _, o := range long {
		binary.BigEndian.PutUint64(b[:], uint64(o))
		_, _ = w.Write(b[:])
	}
	if len(entries) > 1<<30 {
		return fmt.Errorf("index of %d objects", len(entries))
	}
	return nil
}

// entries lists all objects of the pack.
func (x *index) entries() ([]idxEntry, error) {
	list := make([]idxEntry, x.count)
	names := bufio.NewReaderSize(io.NewSectionReader(x.src, idxNames, 20*x.count), 1<<16)
	crcs := bufio.NewReaderSize(io.NewSectionReader(x.src, idxNames+20*x.count, 4*x.count), 1<<16)
	var b [4]byte
	for i := range list {
		if _, err := io.ReadFull(names, list[i].hash[:]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if _, err := io.ReadFull(crcs, b[:]); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		list[i].crc = binary.BigEndian.Uint32(b[:])
		var err error
		if list[i].offset, err = x.offset(int64(i)); err != nil {
			return nil, err
		}
	}
	return list, nil
}
