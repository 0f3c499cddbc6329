package eventpack_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/api/eventpack"
)

// row resembles an event of the stream.
func row(i int) string {
	return fmt.Sprintf("id: 01a21cad-7ed6-7821-8ef9-%012d\nevent: application\ndata: "+
		`{"kind":"application","id":"01a21cad-8256-79d0-9efc-dd31a72a0ce7","namespace":"argocd","name":"seen","row":{"name":"seen","health":"Healthy","sync":"%s",`+
		`"project":"default","cluster":"in-cluster","source":{"repoURL":"https://git.example.com/shop/deploy.git","path":"app","revision":"8915e80d35d83a5e4c63353d429bc1d5dc3c2476"}}}`+"\n\n",
		i, []string{"Synced", "OutOfSync"}[i%2])
}

func TestWriter(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	for name, pieces := range map[string][]string{
		"nothing":                     nil,
		"one byte":                    {"a"},
		"pieces shorter than a match": {"a", "", "bc", "d", "bcd"},
		"events":                      {row(1), row(2), row(3), row(4)},
		"more than the window":        {strings.Repeat(row(1), 40), row(2), strings.Repeat(row(3), 200), row(4)},
		"one above a block":           {strings.Repeat("x", 40_000), strings.Repeat(row(1), 1000)},
		"what cannot be compressed":   {string(noise[:10]), string(noise[:8192]), string(noise), string(noise[:9000]), row(1)},
	} {
		t.Run(name+" can be read when it was written, and to its end", func(t *testing.T) {
			t.Parallel()
			from, to := io.Pipe()
			w := eventpack.NewWriter(to)
			next := make(chan string)
			go func() {
				for p := range next {
					if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
						t.Errorf("Write() = %d, %v", n, err)
					}
				}
				_ = to.CloseWithError(w.Close())
			}()
			var r *gzip.Reader
			for _, p := range pieces {
				next <- p
				if p == "" {
					continue
				}
				if r == nil {
					var err error
					if r, err = gzip.NewReader(from); err != nil {
						t.Fatal(err)
					}
				}
				got := make([]byte, len(p))
				if _, err := io.ReadFull(r, got); err != nil || string(got) != p {
					t.Fatalf("%d bytes came back as %.60q, %v", len(p), got, err)
				}
			}
			close(next)
			if r == nil {
				var err error
				if r, err = gzip.NewReader(from); err != nil {
					t.Fatal(err)
				}
			}
			if rest, err := io.ReadAll(r); len(rest) > 0 || err != nil {
				t.Errorf("%d bytes more, %v", len(rest), err)
			}
		})
	}
	t.Run("an event that resembles the one before takes a fourth of its bytes", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		w := eventpack.NewWriter(&out)
		for i := range 20 {
			out.Reset()
			if _, err := w.Write([]byte(row(i))); err != nil {
				t.Fatal(err)
			}
			if i > 1 && out.Len() > len(row(i))/4 {
				t.Errorf("event %d of %d bytes takes %d", i, len(row(i)), out.Len())
			}
		}
	})
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]bool{
		"": false, "br": false, "identity": false, "gzip": true, "GZIP": true, "br, gzip": true, "gzip;q=0": false, "gzip; q=0.0": false,
		"gzip;q=0.5, br": true, "deflate, gzip;q=1.0, *;q=0.5": true, "gzipped": false, "gzip;q=none": false,
	} {
		if got := eventpack.Accepted([]string{values}); got != want {
			t.Errorf("Accepted(%q) = %t", values, got)
		}
	}
	if !eventpack.Accepted([]string{"br", "gzip"}) {
		t.Error("the second header is not read")
	}
}

func BenchmarkWrite(b *testing.B) {
	w := eventpack.NewWriter(io.Discard)
	for i := range 20 {
		_, _ = w.Write([]byte(row(i)))
	}
	events := [][]byte{[]byte(row(1)), []byte(row(2))}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, _ = w.Write(events[i%2])
	}
}
