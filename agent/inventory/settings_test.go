package inventory_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/buckethash"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
)

// settingsID is what rows with settings carry in place of an application.
const settingsID = "00000000-0000-0000-0000-000000000000"

func TestSettings(t *testing.T) {
	t.Parallel()
	parent, dir := t, t.TempDir()
	s, closing := open(t, dir)
	l := &hubLog{t: t}
	set := func(version uint64) *linkv1.Row {
		return l.add(linkv1.RowKind_ROW_KIND_SETTINGS, settingsID, &linkv1.Settings{Version: version})
	}
	version := func() uint64 { return s.Settings().GetVersion() }
	root := func(rows ...*linkv1.Row) []byte {
		leaves := map[string][32]byte{}
		for _, r := range rows {
			leaves[r.GetAppId()] = hashchain.Leaf(r.GetAppId(), r.GetBody())
		}
		return hashchain.Root(leaves)
	}
	if s.Settings() != nil {
		t.Error("there are settings before any came")
	}
	app, first := l.state("a", 1), set(1)
	if got := stageAndWait(t, s, batch(app, first)); !got.Settings || len(got.States) != 1 {
		t.Errorf("changes %+v", got)
	}
	t.Run("INV-1 settings are stored after a restart, and are part of the root hash", func(t *testing.T) {
		closing()
		s, closing = open(parent, dir)
		if version() != 1 || !bytes.Equal(s.Root(), root(app, first)) {
			t.Errorf("version %d", version())
		}
		if len(s.Apps()) != 1 {
			t.Error("settings are taken for an application")
		}
	})
	second := set(2)
	t.Run("newer settings replace the older ones", func(t *testing.T) {
		if got := stageAndWait(t, s, batch(second)); !got.Settings || version() != 2 || !bytes.Equal(s.Root(), root(app, second)) {
			t.Errorf("changes %+v, version %d", got, version())
		}
	})
	t.Run("settings ahead of a replay apply from its start, and their row changes nothing", func(t *testing.T) {
		stageAndWait(t, s, &linkv1.Batch{Incarnation: "one", Reset_: true, Settings: second})
		if version() != 2 || s.Cursor().Seq != 0 {
			t.Errorf("version %d at row %d", version(), s.Cursor().Seq)
		}
		stageAndWait(t, s, batch(app, second))
		if version() != 2 || s.Cursor().Seq != 3 || !bytes.Equal(s.Root(), root(app, second)) {
			t.Errorf("version %d at row %d", version(), s.Cursor().Seq)
		}
	})
	t.Run("settings are replaced with their bucket, and not with others", func(t *testing.T) {
		other := uint32(buckethash.Of("a"))
		stageAndWait(t, s, &linkv1.Batch{Incarnation: "one", Partial: true, ForgetBuckets: []uint32{other}})
		if version() != 2 {
			t.Error("they were forgotten with another bucket")
		}
		stageAndWait(t, s, batch(app))
		own := buckethash.Of(settingsID)
		sums := s.Sums([]uint32{uint32(own >> 8)})
		got := stageAndWait(t, s, &linkv1.Batch{Incarnation: "one", Partial: true, ForgetBuckets: []uint32{uint32(own)}})
		if s.Settings() != nil || !got.Settings {
			t.Error("they were not forgotten with their own bucket")
		}
		if proto.Equal(sums, s.Sums([]uint32{uint32(own >> 8)})) {
			t.Error("they do not count in the hashes of buckets")
		}
	})
	t.Run("a reset without settings restores the defaults", func(t *testing.T) {
		stageAndWait(t, s, &linkv1.Batch{Incarnation: "one", Reset_: true, Settings: second})
		if got := stageAndWait(t, s, &linkv1.Batch{Incarnation: "one", Reset_: true}); !got.Settings || s.Settings() != nil {
			t.Errorf("changes %+v, version %d", got, version())
		}
		closing()
		s, closing = open(parent, dir)
		if s.Settings() != nil {
			t.Error("they are back after a restart")
		}
	})
	t.Run("an invalid row changes nothing", func(t *testing.T) {
		bad := &linkv1.Row{Seq: 1, Kind: linkv1.RowKind_ROW_KIND_SETTINGS, AppId: settingsID, Body: []byte{0xff}}
		if _, _, err := s.Stage(batch(bad)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("error %v", err)
		}
		if s.Settings() != nil {
			t.Error("it was taken")
		}
	})
	closing()
}
