package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	r := Record(hub.Caller{Address: "10.0.0.1"}, Entry{Object: strings.Repeat("é", 2000) + "\x00", Reason: "a\xffb", After: strings.Repeat("x", maxDetail)}, time.Now())
	if r.Actor != "(nobody)" {
		t.Errorf("actor of nobody is %q", r.Actor)
	}
	if len(r.Object) > maxText+4 || !strings.HasSuffix(r.Object, "…") || r.Reason != "a\uFFFDb" {
		t.Errorf("texts are not cut: %d bytes, reason %q", len(r.Object), r.Reason)
	}
	if len(r.Detail) > 300 || !strings.Contains(string(r.Detail), "omitted") {
		t.Errorf("a long detail is kept: %d bytes", len(r.Detail))
	}
	if got := Record(hub.Caller{Username: "ann"}, Entry{}, time.Now()).Detail; got != nil {
		t.Errorf("an empty detail is %s", got)
	}
	kept := Record(hub.Caller{Username: "ann"}, Entry{Reason: "see https://u:hunter2@h.test/a", After: map[string]string{"repoURL": "https://u:hunter2@h.test/a"}}, time.Now())
	if text := string(kept.Detail) + kept.Reason; strings.Contains(text, "hunter2") || !strings.Contains(text, "https://h.test/a") {
		t.Errorf("SEC-C1 a password in a URL stays: %s", text)
	}
}
