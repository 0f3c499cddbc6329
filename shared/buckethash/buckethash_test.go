package buckethash

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/fault"
)

func sumsOf(things map[string]string) Sums {
	s := Sums{}
	for k, v := range things {
		s.Add(Of(k), Leaf(k, []byte(v)))
	}
	return s
}

// differing asks as the protocol does: first level, then second.
func differing(t interface{ Fatal(...any) }, mine, theirs Sums) []uint16 {
	first, err := mine.DiffFirst(theirs.First())
	if err != nil {
		t.Fatal(err)
	}
	var out []uint16
	for _, b := range first {
		index, sums := theirs.Second(b)
		more, err := mine.DiffSecond(b, index, sums)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, more...)
	}
	return out
}

func TestBuckets(t *testing.T) {
	t.Parallel()
	t.Run("exactly the buckets with differences are found", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			a := rapid.MapOfN(rapid.StringMatching(`[a-h]{1,3}`), rapid.StringMatching(`[xy]`), 0, 60).Draw(t, "a")
			b := maps.Clone(a)
			want := map[uint16]bool{}
			for _, k := range rapid.SliceOfN(rapid.StringMatching(`[a-h]{1,3}`), 0, 8).Draw(t, "changed") {
				switch rapid.IntRange(0, 2).Draw(t, "how") {
				case 0:
					delete(b, k)
				default:
					b[k] = "z" + fmt.Sprint(len(want))
				}
			}
			for k := range a {
				if a[k] != b[k] {
					want[Of(k)] = true
				}
			}
			for k := range b {
				if a[k] != b[k] {
					want[Of(k)] = true
				}
			}
			got := differing(t, sumsOf(a), sumsOf(b))
			if !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
				t.Fatalf("found %v, want %v", got, want)
			}
		})
	})
	t.Run("a removed leaf leaves the sums unchanged", func(t *testing.T) {
		t.Parallel()
		s := sumsOf(map[string]string{"a": "1", "b": "2"})
		s.Add(Of("a"), Leaf("a", []byte("1")))
		s.Add(Of("b"), Leaf("b", []byte("2")))
		if len(s) != 0 {
			t.Errorf("left: %v", s)
		}
	})
	t.Run("SEC-K10 hashes of another size are refused", func(t *testing.T) {
		t.Parallel()
		s := Sums{}
		if _, err := s.DiffFirst(make([]byte, 17)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("first level: %v", err)
		}
		if _, err := s.DiffSecond(0, []byte{1, 2}, make([]byte, 8)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("second level: %v", err)
		}
	})
}
