package apply

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/wave"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A report has every object of a small operation, and of a large one what
// something was done to.
func TestResults(t *testing.T) {
	t.Parallel()
	items := func(unchangedOnes int) []wave.ItemResult {
		out := []wave.ItemResult{
			{Item: wave.Item{Key: manifest.Key{Kind: "ConfigMap", Name: "changed"}}, Status: wave.Synced, Message: "configured"},
			{Item: wave.Item{Key: manifest.Key{Kind: "ConfigMap", Name: "refused"}}, Status: wave.SyncFailed, Message: "denied"},
			{Item: wave.Item{Key: manifest.Key{Kind: "Job", Name: "hook"}, Hook: true, Phase: wave.PreSync}, Status: wave.Synced, Message: unchanged},
			{Item: wave.Item{Key: manifest.Key{Kind: "ConfigMap", Name: "pruned"}, Prune: true}, Status: wave.Pruned, Message: "pruned"},
		}
		for i := range unchangedOnes {
			out = append(out, wave.ItemResult{Item: wave.Item{Key: manifest.Key{Kind: "ConfigMap", Name: fmt.Sprint(i)}}, Status: wave.Synced, Message: unchanged})
		}
		return out
	}
	for name, c := range map[string]struct{ idle, listed, unlisted int }{
		"APP-16 a small operation lists every object":                    {mostUnchanged, 4 + mostUnchanged, 0},
		"APP-16 a large one lists what something was done to, and hooks": {mostUnchanged + 1, 4, mostUnchanged + 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listed, unlisted := results(items(c.idle))
			if len(listed) != c.listed || unlisted != c.unlisted {
				t.Errorf("%d objects are listed and %d not, want %d and %d", len(listed), unlisted, c.listed, c.unlisted)
			}
		})
	}
}

// A report that the link does not take would keep all others from the hub.
func TestBoundedResults(t *testing.T) {
	t.Parallel()
	var items []wave.ItemResult
	for i := range 20_000 {
		r := wave.ItemResult{Item: wave.Item{Key: manifest.Key{Kind: "ConfigMap", Namespace: "n", Name: fmt.Sprint(strings.Repeat("x", 240), i)}, Prune: true}, Status: wave.Pruned, Message: "pruned"}
		if i%5000 == 4999 {
			r.Status, r.Message = wave.SyncFailed, strings.Repeat("é", 50_000)
		}
		items = append(items, r)
	}
	listed, _ := results(items)
	kept := truncateResults(listed)
	if size := proto.Size(&linkv1.OperationReport{Results: kept}); size > mostResults+1000 || len(kept) < 1000 {
		t.Errorf("%d results of %d bytes are kept", len(kept), size)
	}
	failed := 0
	for _, r := range kept {
		if r.GetStatus() == wave.SyncFailed {
			failed++
		}
	}
	if failed != 4 {
		t.Errorf("APP-16 %d failures are listed, want all 4", failed)
	}
	if few := truncateResults(listed[:50]); len(few) != 50 {
		t.Errorf("of a small operation %d of 50 are listed", len(few))
	}
}

// Until the claims of a state stand in the table, whoever would delete one of
// its objects must look into the state itself.
func TestUnread(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a    *app
		want bool
	}{
		"TRK-07 a state that waits is not read":        {&app{newState: true}, true},
		"TRK-07 one that is being resolved is not":     {&app{taking: true}, true},
		"TRK-07 one that could not be resolved is not": {&app{unresolved: true}, true},
		"TRK-07 one that was taken up is":              {&app{}, false},
		"TRK-07 a closed application lists nothing":    {&app{newState: true, taking: true, closed: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.a.unread(); got != c.want {
				t.Errorf("unread() = %v", got)
			}
		})
	}
}
