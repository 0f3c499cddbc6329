package packstore

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

func TestMain(m *testing.M) { runtest.Main(m) }

// A packBuilder writes packs, also such as git would never write.
type packBuilder struct {
	body  bytes.Buffer
	count uint32
}

func (b *packBuilder) head(kind plumbing.ObjectType, size int) {
	c := byte(kind)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b.body.WriteByte(c | 0x80)
		c = byte(size & 0x7f)
	}
	b.body.WriteByte(c)
}

func (b *packBuilder) deflate(data []byte) {
	w := zlib.NewWriter(&b.body)
	_, _ = w.Write(data)
	_ = w.Close()
	b.count++
}

// add adds an object as it is and returns its offset.
func (b *packBuilder) add(kind plumbing.ObjectType, data []byte) int64 {
	at := int64(packHead + b.body.Len())
	b.head(kind, len(data))
	b.deflate(data)
	return at
}

func (b *packBuilder) addRef(base plumbing.Hash, delta []byte) int64 {
	at := int64(packHead + b.body.Len())
	b.head(plumbing.REFDeltaObject, len(delta))
	b.body.Write(base[:])
	b.deflate(delta)
	return at
}

func (b *packBuilder) addOffset(base int64, delta []byte) int64 {
	at := int64(packHead + b.body.Len())
	b.head(plumbing.OFSDeltaObject, len(delta))
	back := at - base
	enc := []byte{byte(back & 0x7f)}
	for back >>= 7; back > 0; back >>= 7 {
		back--
		enc = append([]byte{byte(back&0x7f) | 0x80}, enc...)
	}
	b.body.Write(enc)
	b.deflate(delta)
	return at
}

func (b *packBuilder) bytes() []byte {
	out := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), b.count)
	out = append(out, b.body.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

func uvarint(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }

// appending is the delta that appends text to a base.
func appending(base int, text string) []byte {
	d := append(uvarint(base), uvarint(base+len(text))...)
	if base > 0 {
		d = append(d, 0x80|0x10|0x20|0x40, byte(base), byte(base>>8), byte(base>>16))
	}
	return append(append(d, byte(len(text))), text...)
}

func testLimits() Limits { return Limits{Objects: 1000, Object: 1 << 20, Inflated: 8 << 20} }

func testLibrary() *Library { return NewLibrary(1<<20, 1<<20, slog.New(slog.DiscardHandler)) }

func takeBytes(t testing.TB, ctx context.Context, dir string, data []byte, l Limits) (*pack, *Library, error) {
	t.Helper()
	lib := testLibrary()
	s, err := lib.Objects(dir).Spool(bytes.NewReader(data), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	p, err := lib.ingest(ctx, s, dir, l)
	if closeErr := s.Close(); closeErr != nil {
		t.Error(closeErr)
	}
	return p, lib, err
}

func TestTakeResolvesDeltas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var b packBuilder
	var want []string
	text := strings.Repeat("base ", 200)
	base := plumbing.ComputeHash(plumbing.BlobObject, []byte(text))
	want = append(want, text+"ref")
	// The base of this one comes after it.
	b.addRef(base, appending(len(text), "ref"))
	at := b.add(plumbing.BlobObject, []byte(text))
	want = append(want, text)
	long := text
	for i := range 300 {
		add := fmt.Sprint(" ", i)
		at = b.addOffset(at, appending(len(long), add))
		long += add
		want = append(want, long)
		if i%50 == 0 {
			want = append(want, long+"side")
			b.addRef(plumbing.ComputeHash(plumbing.BlobObject, []byte(long)), appending(len(long), "side"))
		}
	}
	limits := testLimits()
	limits.Object = 5000 // so that the way down is let go again and again
	p, lib, err := takeBytes(t, context.Background(), dir, b.bytes(), limits)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	o := lib.Objects(dir)
	defer o.Rest()
	for _, text := range want {
		h := plumbing.ComputeHash(plumbing.BlobObject, []byte(text))
		obj, err := o.Read(h, 1<<20)
		if err != nil || string(obj.Data) != text || obj.Kind != plumbing.BlobObject {
			t.Fatalf("object of %d bytes: %d bytes, %v", len(text), len(obj.Data), err)
		}
		if size, err := o.Size(h); err != nil || size != int64(len(text)) {
			t.Fatalf("size %d, %v; want %d", size, err, len(text))
		}
		if _, err := o.Read(h, int64(len(text)-1)); !errors.As(err, new(TooLargeError)) {
			t.Fatalf("read of %d bytes with a limit one below = %v", len(text), err)
		}
	}
}

func TestTakeRefuses(t *testing.T) {
	t.Parallel()
	text := []byte("some text\n")
	hash := plumbing.ComputeHash(plumbing.BlobObject, text)
	build := func(f func(b *packBuilder)) []byte {
		var b packBuilder
		b.add(plumbing.BlobObject, text)
		f(&b)
		return b.bytes()
	}
	bomb := func(b *packBuilder) { // 1 MB from few bytes, again and again
		at := b.add(plumbing.BlobObject, bytes.Repeat([]byte("x"), 60_000))
		size := 60_000
		for range 8 {
			d := append(uvarint(size), uvarint(size*3)...)
			for range 3 {
				d = append(d, 0x80|0x10|0x20|0x40, byte(size), byte(size>>8), byte(size>>16))
			}
			at = b.addOffset(at, d)
			size *= 3
		}
	}
	good := build(func(*packBuilder) {})
	flipped := bytes.Clone(good)
	flipped[len(flipped)-25] ^= 1
	for name, c := range map[string]struct {
		data  []byte
		limit bool
	}{
		"SEC-B12 nothing":                 {nil, false},
		"SEC-B12 no pack":                 {[]byte("<html>not a pack, but long enough to be one</html>"), false},
		"SEC-B12 cut off":                 {good[:len(good)-21], false},
		"SEC-B12 cut off in the checksum": {good[:len(good)-3], false},
		"SEC-B12 flipped bit":             {flipped, false},
		"SEC-B12 fewer objects than said": {append([]byte("PACK\x00\x00\x00\x02\x00\x00\x00\x09"), good[12:]...), false},
		"SEC-B12 four billion objects":    {append([]byte("PACK\x00\x00\x00\x02\xff\xff\xff\xff"), good[12:]...), true},
		"SEC-B12 base that is not there":  {build(func(b *packBuilder) { b.addRef(plumbing.NewHash("12"), appending(3, "x")) }), false},
		"SEC-B12 deltas upon each other": {build(func(b *packBuilder) {
			b.addRef(hash, appending(10, "x"))
			b.addRef(plumbing.NewHash("34"), appending(11, "x"))
		}), false},
		"SEC-B12 base before the pack":  {build(func(b *packBuilder) { b.addOffset(-500, appending(10, "x")) }), false},
		"SEC-B12 base inside an object": {build(func(b *packBuilder) { b.addOffset(13, appending(10, "x")) }), false},
		"SEC-B12 delta of another size": {build(func(b *packBuilder) { b.addRef(hash, appending(11, "x")) }), false},
		"SEC-B12 delta beyond its base": {build(func(b *packBuilder) { b.addRef(hash, append(append(uvarint(10), uvarint(99)...), 0x90, 99)) }), false},
		"SEC-B12 empty delta":           {build(func(b *packBuilder) { b.addRef(hash, nil) }), false},
		"SEC-B12 unknown kind":          {build(func(b *packBuilder) { b.add(5, text) }), false},
		"SEC-B12 shorter than said":     {build(func(b *packBuilder) { b.head(plumbing.BlobObject, 99); b.deflate(text) }), false},
		"SEC-B12 longer than said":      {build(func(b *packBuilder) { b.head(plumbing.BlobObject, 3); b.deflate(text) }), false},
		"SEC-B12 said to be 2^50 bytes": {build(func(b *packBuilder) { b.head(plumbing.BlobObject, 1<<50); b.deflate(text) }), true},
		"SEC-B12 no zlib":               {build(func(b *packBuilder) { b.head(plumbing.BlobObject, 9); b.body.WriteString("rubbish here"); b.count++ }), false},
		"SEC-B12 delta bomb":            {build(bomb), true},
		"SEC-B12 zlib bomb":             {build(func(b *packBuilder) { b.add(plumbing.BlobObject, make([]byte, 9<<20)) }), true},
		"SEC-B12 many small bombs": {build(func(b *packBuilder) {
			for range 20 {
				b.add(plumbing.BlobObject, make([]byte, 1<<20))
			}
		}), true},
		"SEC-B12 large delta": {build(func(b *packBuilder) { b.addRef(hash, make([]byte, 2<<20)) }), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, _, err := takeBytes(t, context.Background(), dir, c.data, testLimits())
			if err == nil {
				t.Fatal("taken in")
			}
			if limit := errors.As(err, new(LimitError)); limit != c.limit {
				t.Errorf("error %v, limit %v", err, c.limit)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("FT-G6 left behind: %v, %v", left, err)
			}
			if !c.limit && !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v does not say that the pack is malformed", err)
			}
		})
	}
	t.Run("SEC-B12 work ends with its context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithDeadline(context.Background(), time.Now())
		defer cancel()
		if _, _, err := takeBytes(t, ctx, t.TempDir(), good, testLimits()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("take() = %v", err)
		}
	})
}

func FuzzTake(f *testing.F) {
	var b packBuilder
	at := b.add(plumbing.BlobObject, []byte("some text"))
	b.addOffset(at, appending(9, "more"))
	b.addRef(plumbing.ComputeHash(plumbing.BlobObject, []byte("some text")), appending(9, "other"))
	f.Add(b.bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 20 { // a right checksum, so that the rest is checked
			sum := sha1.Sum(data[:len(data)-20])
			data = append(data[:len(data)-20:len(data)-20], sum[:]...)
		}
		dir := t.TempDir()
		p, lib, err := takeBytes(t, context.Background(), dir, data, Limits{Objects: 100, Object: 1 << 16, Inflated: 1 << 18})
		if err != nil {
			return
		}
		defer p.close()
		o := lib.Objects(dir)
		defer o.Rest()
		entries, err := p.idx.entries()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			obj, err := o.Read(e.hash, 1<<20)
			if err != nil {
				t.Fatalf("object %s was taken in and cannot be read: %v", e.hash, err)
			}
			if plumbing.ComputeHash(obj.Kind, obj.Data) != e.hash {
				t.Fatalf("object %s has another content", e.hash)
			}
		}
	})
}

func FuzzParseTree(f *testing.F) {
	f.Add([]byte("100644 a\x0012345678901234567890" + "40000 b\x0012345678901234567890"))
	f.Add([]byte("100644 ..\x0012345678901234567890"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseTree(data)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("unclassified: %v", err)
			}
			return
		}
		for _, n := range d {
			if n.Name == "" || n.Name == "." || n.Name == ".." || strings.ContainsAny(n.Name, "/\x00") {
				t.Fatalf("name %q", n.Name)
			}
			if got, ok := d.Find(n.Name); !ok || got != n {
				t.Fatalf("%q is not found again", n.Name)
			}
		}
	})
}

// TestIndex compares both ways of holding an index with a map.
func TestIndex(t *testing.T) {
	t.Parallel()
	for _, count := range []int{0, 1, 300, 60_000} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, uint64(count)))
			all := map[plumbing.Hash]int64{}
			var entries []idxEntry
			for i := range count {
				e := idxEntry{hash: plumbing.ComputeHash(plumbing.BlobObject, fmt.Append(nil, i)), offset: random.Int64N(1 << 33)}
				if count == 300 {
					e.hash[0], e.hash[1] = 7, byte(i) // all in one bucket
				}
				all[e.hash] = e.offset
				entries = append(entries, e)
			}
			for _, e := range entries[:min(count, 5)] {
				entries = append(entries, idxEntry{hash: e.hash, offset: 1}) // again; the first counts
			}
			name := filepath.Join(t.TempDir(), "x.idx")
			written, err := writeIndex(name, entries, [20]byte{1})
			if err != nil {
				t.Fatal(err)
			}
			read, err := openIndex(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []*index{written, read} {
				if x.count != int64(len(all)) || x.pack != [20]byte{1} {
					t.Errorf("count %d, want %d", x.count, len(all))
				}
				for h, want := range all {
					if got, found, err := x.find(h); err != nil || !found || got != want {
						t.Fatalf("find(%s) = %d, %v, %v; want %d", h, got, found, err, want)
					}
				}
				for i := range 1000 {
					h := plumbing.ComputeHash(plumbing.TreeObject, fmt.Append(nil, i))
					if _, found, err := x.find(h); found || err != nil {
						t.Fatalf("find of what is not there = %v, %v", found, err)
					}
				}
				for h := range all {
					got, err := x.prefixed(h.String()[:9], 10)
					if err != nil || len(got) != 1 || got[0] != h {
						t.Fatalf("prefixed(%s) = %v, %v", h.String()[:9], got, err)
					}
					break
				}
				if err := x.close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
