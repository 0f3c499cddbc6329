package compress_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/compress"
	"github.com/capstan-cd/capstan/shared/fault"
)

func noise(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestPack(t *testing.T) {
	t.Parallel()
	base := noise(1, 20_000)
	text := append(append(bytes.Clone(base[:9_000]), noise(2, 32)...), base[9_000:]...)
	t.Run("B16 a change of 32 in 20,000 incompressible bytes takes a hundred bytes", func(t *testing.T) {
		t.Parallel()
		packed, name, ok, err := compress.Pack(text, base)
		if err != nil || !ok || len(packed) > 150 {
			t.Fatalf("%d bytes, %v, %v", len(packed), ok, err)
		}
		if got, err := compress.Unpack(packed, base, name); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d bytes come back: %v", len(got), err)
		}
	})
	t.Run("another base is detected", func(t *testing.T) {
		t.Parallel()
		packed, name, _, err := compress.Pack(text, base)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range [][]byte{nil, base[1:], noise(3, 20_000)} {
			if _, err := compress.Unpack(packed, other, name); !errors.Is(err, compress.ErrBase) {
				t.Errorf("a base of %d bytes: %v", len(other), err)
			}
		}
	})
	t.Run("a text that is short or does not get shorter is not compressed", func(t *testing.T) {
		t.Parallel()
		for _, text := range [][]byte{nil, []byte("short"), noise(4, 5_000)} {
			if _, _, ok, err := compress.Pack(text, nil); ok || err != nil {
				t.Errorf("%d bytes: %v, %v", len(text), ok, err)
			}
		}
	})
	t.Run("SEC-B2 a decompression bomb is refused", func(t *testing.T) {
		t.Parallel()
		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		bomb := enc.EncodeAll(make([]byte, compress.MaxText+1), nil)
		if _, err := compress.Unpack(bomb, nil, nil); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("error %v", err)
		}
	})
	t.Run("an invalid text is an error", func(t *testing.T) {
		t.Parallel()
		if _, err := compress.Unpack([]byte("nonsense"), nil, nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("error %v", err)
		}
	})
}

func TestAnyTextIsRestored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.SliceOfN(rapid.Byte(), 0, 3_000).Draw(t, "base")
		text := bytes.Repeat(append(rapid.SliceOfN(rapid.Byte(), 1, 500).Draw(t, "text"), base...), rapid.IntRange(1, 20).Draw(t, "times"))
		packed, name, ok, err := compress.Pack(text, base)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return
		}
		if got, err := compress.Unpack(packed, base, name); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%d of %d bytes come back: %v", len(got), len(text), err)
		}
	})
}
