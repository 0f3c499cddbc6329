package stories_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// A bulk request is finished by a hub that was killed over it.
func TestBulkRequests(t *testing.T) {
	const many = 300
	var all strings.Builder
	for i := range many {
		fmt.Fprintf(&all, "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: bulk-%03d, namespace: argocd, labels: {of: bulk}}\nspec:\n"+
			"  project: default\n  source: {repoURL: 'https://git.invalid/bulk.git', path: x}\n  destination: {name: no-such-cluster, namespace: bulk}\n"+
			"  syncPolicy: {automated: {}}\n", i)
	}
	if _, err := s.API.Apply(within(t, waitLimit), all.String()); err != nil {
		t.Fatal(err)
	}
	type state struct {
		ID, FinishedAt string
		Total          int
		Counts         struct{ Pending, Done, Refused, Failed int }
	}
	finished := func(t *testing.T, id string) (b state) {
		t.Helper()
		err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			if err := s.API.Do(ctx, http.MethodGet, "/api/v1/bulk/"+id, nil, &b); err != nil {
				return err
			}
			if b.FinishedAt == "" {
				return fmt.Errorf("%d of %d are left", b.Counts.Pending, b.Total)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	t.Run("UI-03 FT-H1 a hub that is killed over a request goes on with it, and does each application once", func(t *testing.T) {
		var b state
		if err := s.API.Do(within(t, waitLimit), http.MethodPost, "/api/v1/bulk", map[string]any{"action": "pause", "query": "label:of=bulk"}, &b); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Hub.Kill(), s.Hub.Start(within(t, waitLimit))); err != nil {
			t.Fatal(err)
		}
		if b = finished(t, b.ID); b.Total != many || b.Counts.Done != many {
			t.Errorf("%+v", b)
		}
		var list struct{ Total int }
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/applications?view=row&limit=1&query=label%3Aof%3Dbulk+auto%3Amanual", nil, &list); err != nil || list.Total != many {
			t.Errorf("%d are paused, %v", list.Total, err)
		}
		var page struct{ Items []struct{ Object string } }
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/audit?limit=500&action=update&object=bulk-", nil, &page); err != nil {
			t.Fatal(err)
		}
		times := map[string]int{}
		for _, r := range page.Items {
			times[r.Object]++
		}
		for object, n := range times {
			if n != 1 {
				t.Errorf("%s was changed %d times", object, n)
			}
		}
		if len(times) != many {
			t.Errorf("%d applications are in the audit log", len(times))
		}
	})
	t.Run("UI-03 the command line says how far a request is, and deletes what a query has", func(t *testing.T) {
		out, err := s.API.CLI(within(t, waitLimit), "", "app", "bulk", "delete", "--query", "label:of=bulk", "--cascade=false", "--yes", "-o", "name")
		if err != nil || strings.Count(out, "application/bulk-") != many {
			t.Errorf("%d lines, %v", strings.Count(out, "application/bulk-"), err)
		}
		var list struct{ Total int }
		if err := s.API.Do(within(t, waitLimit), http.MethodGet, "/api/v1/applications?view=row&limit=1&query=label%3Aof%3Dbulk", nil, &list); err != nil || list.Total != 0 {
			t.Errorf("%d are left, %v", list.Total, err)
		}
	})
}
