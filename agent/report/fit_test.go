package report_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// sendable fails if a report does not go through the control lane.
func sendable(t *testing.T, r *linkv1.ReportUp) {
	t.Helper()
	if size := proto.Size(r); size > tunnel.Control().MaxMessage {
		t.Fatalf("a report has %d bytes", size)
	}
}

func TestReportsFitTheLink(t *testing.T) {
	t.Parallel()
	t.Run("INV-3 20,000 closed tombstones are sent in several reports, each once", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(nil)
			const many = 20_000
			for i := range many {
				o.Closed(&linkv1.TombstoneClosed{AppId: "app", Kind: "ConfigMap", Namespace: strings.Repeat("n", 63), Name: fmt.Sprintf("%s%d", strings.Repeat("x", 240), i)})
			}
			o.Resource(resource("a", "Synced"))
			seen, values := map[string]bool{}, 0
			for len(seen) < many || values == 0 {
				r := next(t, o)
				sendable(t, r)
				for _, c := range r.GetClosed() {
					if seen[c.GetName()] {
						t.Fatalf("%s was reported twice", c.GetName())
					}
					seen[c.GetName()] = true
				}
				values += len(r.GetResources())
				o.Acked("epoch", r.GetSeq(), 0)
			}
			nothing(t, o)
		})
	})
	t.Run("SEC-B15 FT-L1 a value that is too large is truncated and does not block the others", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			o := newOutbox(nil)
			warnings := make([]string, 20_000)
			for i := range warnings {
				warnings[i] = fmt.Sprintf("object %d %s", i, strings.Repeat("w", 100))
			}
			o.App(&linkv1.AppReport{AppId: "app", Sync: "OutOfSync", Warnings: warnings, Error: strings.Repeat("é", 1<<20)})
			r := next(t, o)
			sendable(t, r)
			if got := r.GetApps()[0].GetWarnings(); len(got) < 100 || !strings.Contains(got[len(got)-1], "more") {
				t.Errorf("%d warnings, the last one %q", len(got), got[len(got)-1])
			}
			o.Operation(&linkv1.OperationReport{OperationId: "op", Phase: "Failed", Message: strings.Repeat("m", 2<<20)})
			r = next(t, o)
			sendable(t, r)
			if got := r.GetOperations()[0]; got.GetPhase() != "Failed" || len(got.GetMessage()) < 1000 {
				t.Errorf("operation %s with %d bytes", got.GetPhase(), len(got.GetMessage()))
			}
			o.Resource(&linkv1.Resource{AppId: "app", Kind: "K", Name: "large", Managed: true, Diff: strings.Repeat("d", 3<<20), Info: []*linkv1.Column{{Name: "c", Value: strings.Repeat("v", 1<<20)}}})
			r = next(t, o)
			sendable(t, r)
			if len(r.GetResources()) != 1 || r.GetResources()[0].GetDiff() == "" {
				t.Errorf("resources %d", len(r.GetResources()))
			}
		})
	})
}
