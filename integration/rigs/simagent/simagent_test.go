package simagent

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// row is the state of an application without objects, after the row before it.
func row(t *testing.T, prev []byte, seq uint64) *linkv1.Row {
	t.Helper()
	body, err := proto.Marshal(&linkv1.AppState{Target: &linkv1.SnapshotRef{Id: "snapshot"}, Generation: seq})
	if err != nil {
		t.Fatal(err)
	}
	const kind = linkv1.RowKind_ROW_KIND_STATE
	return &linkv1.Row{Seq: seq, Kind: kind, AppId: "app", Body: body, Chain: hashchain.Next(prev, seq, int32(kind), "app", body)}
}

func TestAnAgentAppliesWhatFollows(t *testing.T) {
	a := newAgent(NewFleet(t.Context(), nil), 1)
	first := row(t, hashchain.First("life"), 1)
	if err := a.StoreBatch(t.Context(), &linkv1.Batch{Incarnation: "life", Rows: []*linkv1.Row{first}}); err != nil {
		t.Fatal(err)
	}
	up, err := a.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(up.GetApps()) != 1 || up.GetApps()[0].GetTarget() != "snapshot" || up.GetApps()[0].GetSync() != "Synced" {
		t.Errorf("reported %v", up)
	}
	if a.Rows() != 1 || len(a.Applications()) != 1 {
		t.Errorf("%d rows of the applications %v", a.Rows(), a.Applications())
	}
	a.Change(2, "restarted")
	if a.Drained() {
		t.Error("a change counts as stored before the hub has it")
	}
	a.Acked("", 2, 0)
	if !a.Drained() || len(a.StoreTimes()) != 1 {
		t.Errorf("a change that the hub has stored still waits: %v", a.StoreTimes())
	}
}

// An agent that applies a state reports its objects. One that has deleted an
// object reports it as gone and closes its tombstone, and closes the tombstone
// of what was never there.
func TestAnAgentDeletesWhatHasATombstone(t *testing.T) {
	a := newAgent(NewFleet(t.Context(), nil), 1)
	prev := hashchain.First("life")
	next := func(seq uint64, st *linkv1.AppState) *linkv1.ReportUp {
		t.Helper()
		body, err := proto.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		const kind = linkv1.RowKind_ROW_KIND_STATE
		prev = hashchain.Next(prev, seq, int32(kind), "app", body)
		b := &linkv1.Batch{Incarnation: "life", Rows: []*linkv1.Row{{Seq: seq, Kind: kind, AppId: "app", Body: body, Chain: prev}}}
		for _, o := range st.GetTarget().GetObjects() {
			b.Blobs = append(b.Blobs, &linkv1.Blob{Digest: o.GetDigest()})
		}
		if err := a.StoreBatch(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		up, err := a.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return up
	}
	object := func(name string) *linkv1.ObjectRef {
		return &linkv1.ObjectRef{Digest: []byte(name), Version: "v1", Kind: "ConfigMap", Namespace: "web", Name: name}
	}
	tombstone := func(name string) *linkv1.Tombstone {
		return &linkv1.Tombstone{Version: "v1", Kind: "ConfigMap", Namespace: "web", Name: name}
	}
	first := next(1, &linkv1.AppState{Target: &linkv1.SnapshotRef{Id: "one", Objects: []*linkv1.ObjectRef{object("settings-1")}}})
	if len(first.GetResources()) != 1 || len(first.GetGone())+len(first.GetClosed()) != 0 {
		t.Errorf("the first state is reported as %v", first)
	}
	second := next(2, &linkv1.AppState{
		Target:     &linkv1.SnapshotRef{Id: "two", Objects: []*linkv1.ObjectRef{object("settings-2")}},
		Tombstones: []*linkv1.Tombstone{tombstone("settings-1"), tombstone("never-there")},
	})
	gone := &linkv1.ResourceGone{AppId: "app", Kind: "ConfigMap", Namespace: "web", Name: "settings-1"}
	if g := second.GetGone(); len(g) != 1 || !proto.Equal(g[0], gone) {
		t.Errorf("gone are %v, want %v", g, gone)
	}
	closed := []string{}
	for _, c := range second.GetClosed() {
		if c.GetAppId() != "app" || c.GetKind() != "ConfigMap" || c.GetNamespace() != "web" {
			t.Errorf("closed is %v", c)
		}
		closed = append(closed, c.GetName())
	}
	if !slices.Equal(closed, []string{"settings-1", "never-there"}) {
		t.Errorf("closed are the tombstones of %q", closed)
	}
	third := next(3, &linkv1.AppState{
		Target: &linkv1.SnapshotRef{Id: "three", Objects: []*linkv1.ObjectRef{object("settings-2")}}, Tombstones: []*linkv1.Tombstone{tombstone("settings-1")},
	})
	if len(third.GetGone()) != 0 || len(third.GetClosed()) != 1 {
		t.Errorf("a tombstone that is still open: gone are %v, closed are %v", third.GetGone(), third.GetClosed())
	}
}

func TestAnAgentRefusesWhatDoesNotFollow(t *testing.T) {
	a := newAgent(NewFleet(t.Context(), nil), 1)
	other := row(t, hashchain.First("another life"), 1)
	err := a.StoreBatch(t.Context(), &linkv1.Batch{Incarnation: "life", Rows: []*linkv1.Row{other}})
	if err == nil || !strings.Contains(err.Error(), "does not follow") || a.Err() == nil {
		t.Errorf("a row of another chain: %v, and afterwards %v", err, a.Err())
	}
}
