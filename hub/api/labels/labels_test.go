package labels_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/labels"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := labels.Parse(" a=b, c==d ,e!=f,g in (h, i),j notin (k),l,!m,n= ")
	want := []hub.LabelTerm{
		{Key: "a", Values: []string{"b"}}, {Key: "c", Values: []string{"d"}}, {Key: "e", Values: []string{"f"}, Not: true},
		{Key: "g", Values: []string{"h", "i"}}, {Key: "j", Values: []string{"k"}, Not: true}, {Key: "l"}, {Key: "m", Not: true},
		{Key: "n", Values: []string{""}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Parse() error %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"=", "a b", "a in b", "a in (b", "in (b)", "a notin", "a=b=c", "!", "a=(b)", "a in (b(c))", "a\x00=b"} {
		if got, err := labels.Parse(bad); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Parse(%q) = %v, %v", bad, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a=b,c in (d,e),!f")
	f.Add(")))(((,,,")
	f.Fuzz(func(t *testing.T, s string) {
		terms, err := labels.Parse(s)
		if err != nil && fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Exceeded {
			t.Fatalf("Parse(%q) = %v, %v", s, terms, err)
		}
	})
}
