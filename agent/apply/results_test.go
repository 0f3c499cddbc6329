package apply

import (
	"fmt"
	"testing"

	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/wave"
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
