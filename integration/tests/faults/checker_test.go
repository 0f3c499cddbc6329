package faults_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/tests/faults"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// good is a run without a fault: two versions, a hook each, one prune.
func good(t *testing.T) faults.Run {
	t.Helper()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r := faults.Run{
		Application: "app", Agent: "agent", Incarnation: "i",
		Versions:   []faults.Version{{Names: []string{"a", "b"}}, {Names: []string{"a"}}},
		Accepted:   []faults.Accepted{{Action: "sync", Object: "default/x", ID: "2"}},
		Audit:      []faults.Audit{{Seq: 1, Action: "sync", Object: "default/x", Result: "allowed"}},
		History:    []faults.History{{ID: 1, Operation: "1"}, {ID: 2, Operation: "2"}},
		Operations: []faults.Operation{{ID: "1", Kind: "sync", Phase: "Succeeded", Created: at}, {ID: "2", Kind: "sync", Phase: "Succeeded", Created: at.Add(time.Minute)}},
	}
	prev := hashchain.First("i")
	for i, state := range []*linkv1.AppState{{Generation: 1}, {Generation: 2, Tombstones: []*linkv1.Tombstone{{Name: "b"}}}} {
		body, err := proto.Marshal(state)
		if err != nil {
			t.Fatal(err)
		}
		prev = hashchain.Next(prev, uint64(i+1), 1, "app", body)
		r.Rows = append(r.Rows, faults.Row{Seq: int64(i + 1), Kind: 1, Application: "app", Body: body, Chain: prev, At: at})
	}
	for i, e := range []faultproxy.Entry{
		{Verb: "create", Resource: "jobs", Name: "migrate", Instance: "1", Result: faultproxy.Result{UID: "h1", Code: 201}},
		{Verb: "apply", Resource: "configmaps", Name: "a", Result: faultproxy.Result{Content: [32]byte{1}, RV: "1"}},
		{Verb: "apply", Resource: "configmaps", Name: "b", Result: faultproxy.Result{Content: [32]byte{1}, RV: "2"}},
		{Verb: "apply", Resource: "configmaps", Name: "a", Result: faultproxy.Result{Content: [32]byte{2}, RV: "3"}},
		{Verb: "delete", Resource: "configmaps", Name: "b", UIDs: []string{"u"}},
	} {
		e.N, e.User, e.At = i+1, "agent", at.Add(time.Duration(i)*time.Minute)
		if e.Code == 0 {
			e.Code = 200
		}
		r.Ledger = append(r.Ledger, e)
	}
	return r
}

func TestCheckerSees(t *testing.T) {
	t.Parallel()
	if v := faults.Check(good(t)); len(v) != 0 {
		t.Fatalf("a good run: %v", v)
	}
	again := func(r *faults.Run, i int, change func(*faultproxy.Entry)) {
		e := r.Ledger[i]
		change(&e)
		r.Ledger = append(r.Ledger, e)
	}
	for name, c := range map[string]struct {
		invariant string
		spoil     func(r *faults.Run)
	}{
		"a lost operation":      {"INV-1", func(r *faults.Run) { r.Accepted[0].ID = "3" }},
		"a change too many":     {"INV-2", func(r *faults.Run) { again(r, 3, func(e *faultproxy.Entry) { e.RV = "9" }) }},
		"an older content":      {"INV-2", func(r *faults.Run) { again(r, 1, func(e *faultproxy.Entry) { e.RV = "9" }) }},
		"a foreign content":     {"INV-2", func(r *faults.Run) { again(r, 1, func(e *faultproxy.Entry) { e.Content[0] = 7 }) }},
		"a hook twice":          {"INV-2", func(r *faults.Run) { again(r, 0, func(e *faultproxy.Entry) { e.UID = "h2" }) }},
		"a wrong deletion":      {"INV-3", func(r *faults.Run) { again(r, 4, func(e *faultproxy.Entry) { e.Name = "a" }) }},
		"a deletion of any uid": {"INV-3", func(r *faults.Run) { r.Ledger[4].UIDs = nil }},
		"two at once": {"INV-4", func(r *faults.Run) {
			a, b := &r.Operations[0], &r.Operations[1]
			begin, middle, end := a.Created, b.Created, b.Created.Add(time.Minute)
			a.Started, a.Finished, b.Started, b.Finished = &begin, &end, &middle, &end
		}},
		"a gap in the log":     {"INV-8", func(r *faults.Run) { r.Rows = r.Rows[1:] }},
		"another log":          {"INV-8", func(r *faults.Run) { r.Incarnation = "j" }},
		"a success unrecorded": {"INV-8", func(r *faults.Run) { r.History = r.History[:1] }},
		"a success twice":      {"INV-8", func(r *faults.Run) { r.History = append(r.History, faults.History{ID: 3, Operation: "2"}) }},
		"an operation open":    {"INV-10", func(r *faults.Run) { r.Operations[1].Phase = "Running" }},
		"an act unrecorded":    {"INV-11", func(r *faults.Run) { r.Audit = nil }},
	} {
		t.Run(c.invariant+" "+name, func(t *testing.T) {
			r := good(t)
			c.spoil(&r)
			found := faults.Check(r)
			if !slices.ContainsFunc(found, func(v faults.Violation) bool { return v.Invariant == c.invariant }) {
				t.Errorf("not seen; found %v", found)
			}
		})
	}
}
