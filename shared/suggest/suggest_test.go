package suggest

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"list", "get", "sync", "wait", "history", "confirm-deletion"}
	for word, want := range map[string]string{
		"lst":     "list",
		"lsit":    "list",
		"SYNC":    "sync",
		"hist":    "history", // a beginning
		"histroy": "history",
		"xyz":     "",
		"":        "",
		"wiat":    "wait",
		"g":       "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestQuestion(t *testing.T) {
	t.Parallel()
	if got := Question("htp", []string{"http", "database"}); got != `; did you mean "http"?` {
		t.Error(got)
	}
	if got := Question("zzzz", []string{"http"}); got != "" {
		t.Error(got)
	}
}
