package inventory_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/inventory"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestChangeOfOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, closing := open(t, dir)
	key := manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	r := inventory.Record{App: "a", Key: key, Version: "v1", Owned: diff.Owned{Manager: "capstan", UID: "u"}}
	if _, err := s.Own(r); err != nil {
		t.Fatal(err)
	}
	r.App, r.From = "b", "argocd_a"
	commit, err := s.Transfer("a", r)
	if err == nil {
		err = commit.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	closing()
	s, closing = open(t, dir)
	t.Run("TRK-07 FT-A1 after a restart a transferred record belongs only to its new owner", func(t *testing.T) {
		if got := s.Owners(); !cmp.Equal(got, []string{"b"}) {
			t.Errorf("owners %v", got)
		}
		if got := s.Owned("b"); len(got) != 1 || got[0].From != "argocd_a" || got[0].Owned.UID != "u" {
			t.Errorf("records %+v", got)
		}
	})
	closing()
}

func TestRefusedOperation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, closing := open(t, dir)
	l := &hubLog{t: t}
	stageAndWait(t, s, batch(l.state("a", 1), l.add(linkv1.RowKind_ROW_KIND_OPERATION, "a", &linkv1.Operation{Id: "op", Fence: 1})))
	refused := []inventory.Refusal{{Key: "/ConfigMap/shop/web"}, {Key: "/ConfigMap/shop/api", Mark: "Argo CD application book"}}
	now := time.Now()
	if _, err := s.End("op", &linkv1.OperationReport{OperationId: "op", Phase: "Failed"}, now, refused); err != nil {
		t.Fatal(err)
	}
	commit, err := s.Delivered("op")
	if err == nil {
		err = commit.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	closing()
	s, closing = open(t, dir)
	t.Run("AUTO-04 the refusals of the newest operation are stored until a newer one has ended", func(t *testing.T) {
		s.Expire(now.Add(30 * 24 * time.Hour))
		if id, got := s.Refused("a"); id != "op" || !cmp.Equal(got, refused) {
			t.Errorf("%q, %+v", id, got)
		}
		stageAndWait(t, s, batch(l.add(linkv1.RowKind_ROW_KIND_OPERATION, "a", &linkv1.Operation{Id: "next", Fence: 1})))
		if _, err := s.End("next", &linkv1.OperationReport{OperationId: "next", Phase: "Succeeded"}, now, nil); err != nil {
			t.Fatal(err)
		}
		if id, got := s.Refused("a"); id != "next" || got != nil {
			t.Errorf("%q, %+v", id, got)
		}
		s.Expire(now.Add(30 * 24 * time.Hour))
		if _, ok := s.Operation("op"); ok {
			t.Error("the older one is kept for ever")
		}
	})
	closing()
}
