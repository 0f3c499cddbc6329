package api

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

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
