package simagent

import (
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

func TestAnAgentRefusesWhatDoesNotFollow(t *testing.T) {
	a := newAgent(NewFleet(t.Context(), nil), 1)
	other := row(t, hashchain.First("another life"), 1)
	err := a.StoreBatch(t.Context(), &linkv1.Batch{Incarnation: "life", Rows: []*linkv1.Row{other}})
	if err == nil || !strings.Contains(err.Error(), "does not follow") || a.Err() == nil {
		t.Errorf("a row of another chain: %v, and afterwards %v", err, a.Err())
	}
}
