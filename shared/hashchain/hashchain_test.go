package hashchain_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/hashchain"
)

func TestChainIsWhatTheProtocolSays(t *testing.T) {
	t.Parallel()
	first := sha256.Sum256([]byte("capstan desired log v1" + "inc-1"))
	if !bytes.Equal(hashchain.First("inc-1"), first[:]) {
		t.Error("First() is not the hash of the fixed text and the incarnation")
	}
	row := bytes.Join([][]byte{
		first[:], {0, 0, 0, 0, 0, 0, 1, 2}, {0, 0, 0, 1}, {0, 0, 0, 5}, []byte("app-1"), []byte("body"),
	}, nil)
	next := sha256.Sum256(row)
	if got := hashchain.Next(first[:], 258, 1, "app-1", []byte("body")); !bytes.Equal(got, next[:]) {
		t.Errorf("Next() = %x, want %x", got, next)
	}
	leaf := sha256.Sum256([]byte("app-1\x00body"))
	if got := hashchain.Leaf("app-1", []byte("body")); got != leaf {
		t.Errorf("Leaf() = %x, want %x", got, leaf)
	}
	a, b := hashchain.Leaf("a", nil), hashchain.Leaf("b", nil)
	root := sha256.Sum256(bytes.Join([][]byte{[]byte("a\x00"), a[:], []byte("b\x00"), b[:]}, nil))
	if got := hashchain.Root(map[string][32]byte{"b": b, "a": a}); !bytes.Equal(got, root[:]) {
		t.Errorf("Root() = %x, want %x", got, root)
	}
	if got := hex.EncodeToString(hashchain.Root(nil)); got != "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" {
		t.Errorf("the root of nothing is %s", got)
	}
}

func TestNextDistinguishesRows(t *testing.T) {
	t.Parallel()
	type row struct {
		seq       uint64
		kind      int32
		app, body string
	}
	draw := rapid.Custom(func(t *rapid.T) row {
		return row{
			rapid.Uint64Range(0, 3).Draw(t, "seq"), rapid.Int32Range(-1, 4).Draw(t, "kind"),
			rapid.StringN(0, 3, 4).Draw(t, "app"), rapid.StringN(0, 3, 4).Draw(t, "body"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		x, y := draw.Draw(t, "x"), draw.Draw(t, "y")
		prev := hashchain.First("i")
		a := hashchain.Next(prev, x.seq, x.kind, x.app, []byte(x.body))
		b := hashchain.Next(prev, y.seq, y.kind, y.app, []byte(y.body))
		if bytes.Equal(a, b) != (x == y) {
			t.Fatalf("%+v and %+v: equal hashes %v", x, y, bytes.Equal(a, b))
		}
	})
}

func TestNextDoesNotChangeItsInput(t *testing.T) {
	t.Parallel()
	prev := append(make([]byte, 0, 128), hashchain.First("i")...)
	before := bytes.Clone(prev[:cap(prev)])
	hashchain.Next(prev, 1, 1, "app", []byte("body"))
	if !bytes.Equal(prev[:cap(prev)], before) {
		t.Error("Next() wrote into the space behind prev")
	}
}
