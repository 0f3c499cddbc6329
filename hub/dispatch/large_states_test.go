package dispatch_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/store"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// longNames are as long as Kubernetes allows, and compress badly.
func longNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		sum := sha256.Sum256(fmt.Append(nil, i))
		text := fmt.Sprintf("%x", sum)
		out[i] = fmt.Sprintf("n%05d-%s%s%s%s", i, text, text[1:], text[2:], text[:50])
	}
	return out
}

// second makes another application of the cluster and renders it.
func (w *world) second(name, spec string) hub.Application {
	w.T.Helper()
	var app hub.Application
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		var err error
		app, err = tx.CreateApplication(ctx, hub.Application{
			ID: hub.NewID[hub.ApplicationID](), Meta: hub.Meta{Namespace: "argocd", Name: name}, Project: "default",
			Spec: json.RawMessage(spec), Cluster: w.Cluster.ID,
		})
		return err
	})
	return app
}

// sendable fails if some row or list could not be sent.
func (w *world) sendable() {
	w.T.Helper()
	for _, r := range w.Rows() {
		if most := tunnel.Control().MaxMessage - 32<<10; len(r.Body) > most {
			w.T.Errorf("row %d of kind %d has %d bytes, more than %d", r.Seq, r.Kind, len(r.Body), most)
		}
	}
}

// tombstoneLists reads the lists of a state as an agent would.
func (w *world) tombstoneLists(s *linkv1.AppState, blobs map[string][]byte) map[string]bool {
	w.T.Helper()
	keys, err := w.DB.Keys(w.T.Context(), w.Tenant)
	if err != nil {
		w.T.Fatal(err)
	}
	names := map[string]bool{}
	for _, digest := range s.GetTombstoneLists() {
		if n := len(blobs[string(digest)]); n > tunnel.Control().MaxMessage-32<<10 {
			w.T.Errorf("a list has %d bytes", n)
		}
		plain, err := encryption.OpenBlob(keys.Object, [32]byte(digest), blobs[string(digest)])
		if err != nil {
			w.T.Fatal(err)
		}
		var list linkv1.TombstoneList
		if err := proto.Unmarshal(plain, &list); err != nil {
			w.T.Fatal(err)
		}
		for _, t := range list.GetTombstones() {
			names[t.GetName()] = t.GetSince() > 0
		}
	}
	return names
}

func TestManyTombstones(t *testing.T) {
	t.Parallel()
	const many = 20_000
	w := newWorld(t, automated)
	conn := w.Link(w.Tenant, w.Cluster.ID)
	names := longNames(many)
	w.Render("r1", append([]string{"stays"}, names...)...)
	w.End(hub.Succeeded, "")
	w.Render("r2", "stays")
	other := w.second("other", automated)
	if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, []hub.Rendered{dispatchtest.Rendered(other, "r1", "mine")}); err != nil {
		t.Fatal(err)
	}
	state := func() *linkv1.AppState {
		var m *linkv1.AppState
		for _, r := range w.Rows() {
			if r.Kind == hub.RowState && r.Application == w.App.ID {
				m = &linkv1.AppState{}
				if err := proto.Unmarshal(r.Body, m); err != nil {
					t.Fatal(err)
				}
			}
		}
		return m
	}
	first := state()
	t.Run("INV-3 all of them are in lists, and those that go first in the row as well", func(t *testing.T) {
		w.sendable()
		if n := len(first.GetTombstones()); n == 0 || n > 500 {
			t.Errorf("%d tombstones are in the row", n)
		}
		blobs, missing, _ := dispatchtest.Fetch(t, conn, first.GetTombstoneLists()...)
		if missing > 0 || len(blobs) < 2 {
			t.Fatalf("%d lists, %d missing", len(blobs), missing)
		}
		got := w.tombstoneLists(first, blobs)
		for _, name := range names {
			if !got[name] {
				t.Fatalf("no list has %s, or not since when (%d are there)", name, len(got))
			}
		}
		if len(got) != many {
			t.Errorf("%d tombstones in the lists", len(got))
		}
	})
	t.Run("FT-L1 the log of the cluster continues after it", func(t *testing.T) {
		a := dispatchtest.NewAgent(t).Follow(conn)
		a.Cursor.Packs = true
		a.ReadToBarrier()
		if len(a.States) != 2 || len(a.Operations) != 2 {
			t.Errorf("%d applications, operations %v", len(a.States), a.Operations)
		}
	})
	t.Run("SEC-A1 no other cluster gets them", func(t *testing.T) {
		var foreign hub.Cluster
		w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
			foreign, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "foreign"}})
			return err
		})
		if blobs, missing, _ := dispatchtest.Fetch(t, w.Link(w.Tenant, foreign.ID), first.GetTombstoneLists()...); len(blobs) > 0 || missing != len(first.GetTombstoneLists()) {
			t.Errorf("%d were served", len(blobs))
		}
	})
	t.Run("INV-3 they are stored as long as the newest state refers to them", func(t *testing.T) {
		for more := true; more; {
			w.In(func(ctx context.Context, tx *store.Tenant) (err error) {
				more, err = tx.Collect(ctx, time.Now().Add(30*24*time.Hour))
				return err
			})
		}
		if _, missing, err := dispatchtest.Fetch(t, conn, first.GetTombstoneLists()...); missing > 0 || !errors.Is(err, io.EOF) {
			t.Errorf("%d of them are gone", missing)
		}
	})
	t.Run("INV-3 what is left after an operation is sent again, with the first to delete in front", func(t *testing.T) {
		done := first.GetTombstones()
		w.close(done)
		w.End(hub.Succeeded, "")
		next := state()
		w.sendable()
		blobs, _, _ := dispatchtest.Fetch(t, conn, next.GetTombstoneLists()...)
		if got := w.tombstoneLists(next, blobs); len(got) != many-len(done) {
			t.Errorf("%d are left, want %d", len(got), many-len(done))
		}
		if next.GetTombstones()[0].GetName() == done[0].GetName() || next.GetGeneration() <= first.GetGeneration() {
			t.Errorf("the row still begins with %s", done[0].GetName())
		}
		if _, missing, _ := dispatchtest.Fetch(t, conn, first.GetTombstoneLists()[0]); missing != 1 {
			t.Error("the lists of the former state are served still")
		}
	})
	t.Run("INV-3 a few are in the row alone again", func(t *testing.T) {
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			open, err := tx.Tombstones(ctx, []hub.ApplicationID{w.App.ID})
			if err != nil {
				return err
			}
			return tx.CloseTombstones(ctx, open[w.App.ID][3:])
		})
		w.Render("r3", "stays", "more")
		if s := state(); len(s.GetTombstones()) != 3 || len(s.GetTombstoneLists()) != 0 {
			t.Errorf("%d tombstones, %d lists", len(s.GetTombstones()), len(s.GetTombstoneLists()))
		}
	})
}

// listed reads the lists of the newest target as an agent would: how large
// each is when it is sent, and what all of them say.
func (w *world) listed(conn *grpc.ClientConn) (sizes map[string]int, objects []*linkv1.ObjectRef) {
	w.T.Helper()
	keys, err := w.DB.Keys(w.T.Context(), w.Tenant)
	if err != nil {
		w.T.Fatal(err)
	}
	lists := w.State().Target.GetLists()
	blobs, missing, _ := dispatchtest.Fetch(w.T, conn, lists...)
	if missing > 0 {
		w.T.Fatalf("%d lists are missing", missing)
	}
	sizes = map[string]int{}
	for _, digest := range lists {
		sizes[string(digest)] = len(blobs[string(digest)])
		plain, err := encryption.OpenBlob(keys.Object, [32]byte(digest), blobs[string(digest)])
		if err != nil {
			w.T.Fatal(err)
		}
		var list linkv1.ObjectList
		if err := proto.Unmarshal(plain, &list); err != nil {
			w.T.Fatal(err)
		}
		objects = append(objects, list.GetObjects()...)
	}
	return sizes, objects
}

func TestManyObjects(t *testing.T) {
	t.Parallel()
	const many = 5000
	w := newWorld(t, manual)
	conn := w.Link(w.Tenant, w.Cluster.ID)
	show := func(objects []dispatchtest.Revised) (map[string]int, []*linkv1.ObjectRef) {
		t.Helper()
		w.RenderEach("r", objects)
		if _, missing, _ := dispatchtest.Fetch(t, conn, w.State().Target.GetList()); missing != 1 {
			t.Error("the name of all lists together is that of a blob")
		}
		return w.listed(conn)
	}
	objects := make([]dispatchtest.Revised, many)
	for i := range objects {
		objects[i] = dispatchtest.Revised{Name: fmt.Sprintf("object-%05d", i), Revision: "one"}
	}
	before, refs := show(objects)
	if len(refs) != many || refs[0].GetName() != "object-00000" || refs[many-1].GetName() != "object-04999" || len(before) < many/256 {
		t.Fatalf("%d objects in %d lists", len(refs), len(before))
	}
	for _, c := range []struct {
		what   string
		change func([]dispatchtest.Revised) []dispatchtest.Revised
		most   int // new lists
	}{
		{"that changes", func(o []dispatchtest.Revised) []dispatchtest.Revised { o[2500].Revision = "two"; return o }, 1},
		{"that is new", func(o []dispatchtest.Revised) []dispatchtest.Revised {
			return slices.Insert(o, 1700, dispatchtest.Revised{Name: "object-01699-b", Revision: "one"})
		}, 2},
		{"that is gone", func(o []dispatchtest.Revised) []dispatchtest.Revised { return slices.Delete(o, 3300, 3301) }, 2},
	} {
		t.Run("B21 one object of 5,000 "+c.what+" costs one list or two, and no other", func(t *testing.T) {
			objects = c.change(slices.Clone(objects))
			after, refs := show(objects)
			if len(refs) != len(objects) {
				t.Fatalf("%d objects are listed, want %d", len(refs), len(objects))
			}
			fresh, size := 0, 0
			for list, n := range after {
				if before[list] == 0 {
					fresh, size = fresh+1, size+n
				}
			}
			if fresh == 0 || fresh > c.most || size > 30<<10 {
				t.Errorf("%d new lists of %d bytes", fresh, size)
			}
			before = after
		})
	}
}

// close reports that the objects of tombstones are gone.
func (w *world) close(tombstones []*linkv1.Tombstone) {
	w.T.Helper()
	o := hub.Observation{Epoch: "closed", Seq: 1}
	for _, t := range tombstones {
		o.Closed = append(o.Closed, hub.Tombstone{Application: w.App.ID, Cluster: w.Cluster.ID, Group: t.Group, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name})
	}
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.PutObservation(ctx, w.Cluster.ID, o)
		return err
	})
}

// What cannot be sent fails where it is asked for, and nothing waits behind it.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	long := longNames(1)[0]
	w.Render("r1", "a", long)
	w.End(hub.Succeeded, "")
	rows := func() int { w.sendable(); return len(w.Rows()) }
	before := rows()
	exceeded := func(t *testing.T, err error, words string) {
		t.Helper()
		if fault.KindOf(err) != fault.Exceeded || !strings.Contains(fault.Sentence(err), words) {
			t.Errorf("error %v: %s", fault.KindOf(err), fault.Sentence(err))
		}
		if n := rows(); n != before {
			t.Errorf("%d rows, %d before", n, before)
		}
	}
	t.Run("SYNC-03 an operation with too many selected resources is refused, and 5,000 are not too many", func(t *testing.T) {
		var some, most []string
		for range 5000 {
			some = append(some, ":ConfigMap:a")
			most = append(most, ":ConfigMap:"+long)
		}
		_, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Resources: most}})
		exceeded(t, err, "select fewer resources")
		if _, err := w.sync(hub.SyncRequest{Options: hub.OperationOptions{Resources: some}}); err != nil {
			t.Fatal(err)
		}
		if n := len(w.order().GetOptions().GetResources()); n != 5000 {
			t.Errorf("%d resources are in the order", n)
		}
		w.End(hub.Succeeded, "")
		before = rows()
	})
	t.Run("SET-01 settings that are too large are refused", func(t *testing.T) {
		err := w.DB.InTenant(t.Context(), w.Tenant, func(ctx context.Context, tx *store.Tenant) error {
			return dispatch.Settings(ctx, tx, map[hub.ClusterID][]byte{w.Cluster.ID: bytes.Repeat([]byte("x"), 900<<10)})
		})
		exceeded(t, err, "at most")
	})
	wide := strings.Replace(manual, `"destination"`, `"ignoreDifferences":[{"kind":"ConfigMap","jsonPointers":["/`+strings.Repeat("x", 1<<20)+`"]}],"destination"`, 1)
	large, small := w.second("large", wide), w.second("small", automated)
	t.Run("FT-L1 a state that is too large is a condition of its application, and does not delay others", func(t *testing.T) {
		if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, []hub.Rendered{dispatchtest.Rendered(large, "r1", "l"), dispatchtest.Rendered(small, "r1", "s")}); err != nil {
			t.Fatal(err)
		}
		if n := rows(); n <= before {
			t.Errorf("%d rows, %d before", n, before)
		}
		w.condition("large", "at most")
		w.condition("small", "")
	})
	t.Run("FT-L1 the same for one object that no message could carry", func(t *testing.T) {
		r, good := dispatchtest.Rendered(large, "r2", "l"), dispatchtest.Rendered(small, "r2", "s2")
		noise := make([]byte, 5<<20)
		source := rand.NewChaCha8([32]byte{})
		_, _ = source.Read(noise)
		r.Bodies[0] = noise
		if err := w.Dispatcher.Rendered(t.Context(), w.Tenant, []hub.Rendered{r, good}); err != nil {
			t.Fatal(err)
		}
		w.condition("large", "ConfigMap l")
		w.condition("small", "")
	})
}

// condition fails unless an application has one that says something; empty:
// unless it has none.
func (w *world) condition(name, words string) {
	w.T.Helper()
	w.In(func(ctx context.Context, tx *store.Tenant) error {
		app, err := tx.Application(ctx, "argocd", name)
		if err != nil {
			return err
		}
		gotText := fmt.Sprint(app.Status.Conditions)
		if len(app.Status.Conditions) > 0 != (words != "") || !strings.Contains(gotText, words) {
			w.T.Errorf("application %s has the conditions %s", name, gotText)
		}
		return nil
	})
}
