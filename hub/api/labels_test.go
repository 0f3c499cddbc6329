package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestParseLabels(t *testing.T) {
	t.Parallel()
	got, err := parseLabels(" a=b, c==d ,e!=f,g in (h, i),j notin (k),l,!m,n= ")
	want := []hub.LabelTerm{
		{Key: "a", Values: []string{"b"}}, {Key: "c", Values: []string{"d"}}, {Key: "e", Values: []string{"f"}, Not: true},
		{Key: "g", Values: []string{"h", "i"}}, {Key: "j", Values: []string{"k"}, Not: true}, {Key: "l"}, {Key: "m", Not: true},
		{Key: "n", Values: []string{""}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("parseLabels() error %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"=", "a b", "a in b", "a in (b", "in (b)", "a notin", "a=b=c", "!", "a=(b)", "a in (b(c))", "a\x00=b"} {
		if got, err := parseLabels(bad); fault.KindOf(err) != fault.Invalid {
			t.Errorf("parseLabels(%q) = %v, %v", bad, got, err)
		}
	}
}

func FuzzParseLabels(f *testing.F) {
	f.Add("a=b,c in (d,e),!f")
	f.Add(")))(((,,,")
	f.Fuzz(func(t *testing.T, s string) {
		terms, err := parseLabels(s)
		if err != nil && fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Exceeded {
			t.Fatalf("parseLabels(%q) = %v, %v", s, terms, err)
		}
	})
}

func FuzzParsePage(f *testing.F) {
	f.Add(pageCursor(hub.ApplicationKey{Namespace: "argocd", Name: "web"}))
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := parsePage(s); err == nil && s != "" && k.Name == "" {
			t.Fatalf("parsePage(%q) = %+v", s, k)
		}
	})
}

func TestPageCursor(t *testing.T) {
	t.Parallel()
	want := hub.ApplicationKey{Namespace: "team-a", Name: "web.example"}
	if got, err := parsePage(pageCursor(want)); got != want || err != nil {
		t.Errorf("the cursor came back as %+v, %v", got, err)
	}
}
