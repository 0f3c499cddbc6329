package encryption_test

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

func key(t testing.TB) encryption.Key {
	t.Helper()
	k, err := encryption.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSeal(t *testing.T) {
	t.Parallel()
	k, ad, plain := key(t), []byte("tenant||repository"), []byte("hunter2")
	sealed, err := encryption.Seal(k, ad, plain)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("OpensWithTheSameKeyAndData", func(t *testing.T) {
		got, err := encryption.Open(k, ad, sealed)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("Open() = %q, %v", got, err)
		}
	})
	t.Run("NeverTheSameTwice", func(t *testing.T) {
		again, err := encryption.Seal(k, ad, plain)
		if err != nil || bytes.Equal(again, sealed) {
			t.Fatalf("two sealings are equal (%v)", err)
		}
	})
	t.Run("EmptyText", func(t *testing.T) {
		s, err := encryption.Seal(k, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := encryption.Open(k, nil, s); err != nil || len(got) != 0 {
			t.Fatalf("Open() = %q, %v", got, err)
		}
	})
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		key        encryption.Key
		ad, sealed []byte
	}{
		"OtherKey":    {key(t), ad, sealed},
		"OtherData":   {k, []byte("tenant||other"), sealed},
		"ChangedByte": {k, ad, flipped},
		"CutShort":    {k, ad, sealed[:20]},
		"Nothing":     {k, ad, nil},
	} {
		t.Run("Refuses"+name, func(t *testing.T) {
			got, err := encryption.Open(c.key, c.ad, c.sealed)
			if fault.KindOf(err) != fault.Invalid || got != nil {
				t.Fatalf("Open() = %q, %v; want Invalid", got, err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Fatal("the error holds the secret")
			}
		})
	}
}

func TestBlob(t *testing.T) {
	t.Parallel()
	k := key(t)
	plain := []byte(strings.Repeat(`{"kind":"ConfigMap"}`, 1000))
	digest := encryption.Digest(k, plain)
	sealed, err := encryption.SealBlob(k, digest, plain)
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) > len(plain)/10 {
		t.Errorf("a repetitive object of %d bytes takes %d sealed", len(plain), len(sealed))
	}
	got, err := encryption.OpenBlob(k, digest, sealed)
	if err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("OpenBlob() gives %d bytes, %v", len(got), err)
	}
	t.Run("BytesThatOpenAreTheOnesTheDigestNames", func(t *testing.T) {
		other := encryption.Digest(k, []byte("something else"))
		if _, err := encryption.OpenBlob(k, other, sealed); fault.KindOf(err) != fault.Invalid {
			t.Fatalf("OpenBlob() under another digest: %v", err)
		}
	})
	t.Run("SEC-A a decompression bomb is refused before it is decompressed", func(t *testing.T) {
		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		bomb := enc.EncodeAll(make([]byte, encryption.MaxBlob+1), nil)
		s, err := encryption.Seal(k, digest[:], bomb)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := encryption.OpenBlob(k, digest, s); fault.KindOf(err) != fault.Exceeded {
			t.Fatalf("OpenBlob() of a bomb: %v; want Exceeded", err)
		}
	})
	t.Run("TooLargeToSeal", func(t *testing.T) {
		if _, err := encryption.SealBlob(k, digest, make([]byte, encryption.MaxBlob+1)); fault.KindOf(err) != fault.Exceeded {
			t.Fatalf("SealBlob() of too much: %v; want Exceeded", err)
		}
	})
	t.Run("NotCompressed", func(t *testing.T) {
		s, err := encryption.Seal(k, digest[:], []byte("plain text"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := encryption.OpenBlob(k, digest, s); fault.KindOf(err) != fault.Invalid {
			t.Fatalf("OpenBlob() of what is not zstd: %v; want Invalid", err)
		}
	})
}

func TestDeriveIsHKDF(t *testing.T) {
	t.Parallel()
	k := key(t)
	for _, purpose := range []string{encryption.ObjectKey, encryption.CredentialKey, ""} {
		want, err := hkdf.Key(sha256.New, k[:], nil, purpose, encryption.KeySize)
		if err != nil {
			t.Fatal(err)
		}
		if got := encryption.Derive(k, purpose); !bytes.Equal(got[:], want) {
			t.Errorf("Derive(%q) differs from HKDF-SHA-256", purpose)
		}
	}
	if encryption.Derive(k, encryption.ObjectKey) == encryption.Derive(k, encryption.CredentialKey) {
		t.Error("two purposes share a key")
	}
}

func TestDigestIsHMAC(t *testing.T) {
	t.Parallel()
	// RFC 4231, test case 1, with the key padded to 32 bytes by zeros, which
	// HMAC does itself.
	var k [32]byte
	copy(k[:], bytes.Repeat([]byte{0x0b}, 20))
	got := encryption.Digest(k, []byte("Hi There"))
	if want := "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"; hex.EncodeToString(got[:]) != want {
		t.Errorf("Digest() = %x, want %s", got, want)
	}
}

func TestKeyIsNeverPrinted(t *testing.T) {
	t.Parallel()
	k := key(t)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", k)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", k, "in", struct{ K encryption.Key }{k})
	_, err := json.Marshal(map[string]any{"k": k})
	if err == nil {
		t.Error("a key was encoded as JSON")
	}
	all := fmt.Sprintf("%v %+v %#v %s %x %X %d %q", k, k, k, k, k, k, k, k) + fmt.Sprint(struct{ K encryption.Key }{k}) + log.String()
	for _, form := range []string{hex.EncodeToString(k[:]), strings.ToUpper(hex.EncodeToString(k[:])), fmt.Sprint(k[0], " ", k[1], " ", k[2])} {
		if strings.Contains(all, form) {
			t.Errorf("a key was printed: %s", all)
		}
	}
	if _, err := encryption.KeyFrom(k[:31]); fault.KindOf(err) != fault.Invalid {
		t.Errorf("KeyFrom(31 bytes): %v", err)
	}
	if got, err := encryption.KeyFrom(k[:]); err != nil || got != k {
		t.Errorf("KeyFrom() loses the key: %v", err)
	}
}

func BenchmarkBlob(b *testing.B) {
	k := key(b)
	plain := []byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"registry.example.org/shop/web:v1.2.3","name":"web","ports":[{"containerPort":8080}]}]}}}}`)
	digest := encryption.Digest(k, plain)
	sealed, err := encryption.SealBlob(k, digest, plain)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("Seal", func(b *testing.B) {
		for b.Loop() {
			if _, err := encryption.SealBlob(k, digest, plain); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Open", func(b *testing.B) {
		for b.Loop() {
			if _, err := encryption.OpenBlob(k, digest, sealed); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	one, other := key(t), key(t)
	for _, plain := range []string{"", "4711", strings.Repeat("long ", 100)} {
		a, err := encryption.SealToken(one, []byte(plain))
		if err != nil {
			t.Fatal(err)
		}
		b, err := encryption.SealToken(one, []byte(plain))
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("the same text gives other bytes: %v", err)
		}
		if got, err := encryption.OpenToken(one, a); err != nil || string(got) != plain {
			t.Errorf("it opens to %q, %v", got, err)
		}
		if plain != "" && bytes.Contains(a, []byte(plain)) {
			t.Error("the text can be read")
		}
		if _, err := encryption.OpenToken(other, a); fault.KindOf(err) != fault.Invalid {
			t.Errorf("under another key: %v", err)
		}
		for i := range a {
			bad := bytes.Clone(a)
			bad[i] ^= 1
			if _, err := encryption.OpenToken(one, bad); fault.KindOf(err) != fault.Invalid {
				t.Fatalf("byte %d is changed: %v", i, err)
			}
		}
		if _, err := encryption.OpenToken(one, a[:15]); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a part of it: %v", err)
		}
	}
}
