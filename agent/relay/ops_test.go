package relay_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/relay"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

type cluster struct {
	refreshed string
	confirmed string
	deleted   []string
}

func (cluster) Belongs(app string, k manifest.Key) bool { return app == "a" && k.Name == "mine" }

func (cluster) CheckAccess(context.Context, string) (*linkv1.CheckAccessResponse, error) {
	return &linkv1.CheckAccessResponse{ServiceAccount: "system:serviceaccount:shop:deployer"}, nil
}

func (cluster) Read(context.Context, string, manifest.Key, string) (*manifest.Object, error) {
	return secret("aHVudGVyMg=="), nil
}

func (cluster) Inspect(_ context.Context, _ string, _, _ bool, pick func(manifest.Key) bool) ([]relay.Object, error) {
	var out []relay.Object
	for _, name := range []string{"mine", "other"} {
		k := manifest.Key{Kind: "Secret", Namespace: "n", Name: name}
		if pick(k) {
			out = append(out, relay.Object{Key: k, Desired: secret("aHVudGVyMg=="), Live: secret("aHVudGVyMw==")})
		}
	}
	return out, nil
}

func (cluster) Preview(_ context.Context, _ string, objects []*manifest.Object) ([]relay.Object, error) {
	var out []relay.Object
	for _, o := range objects {
		out = append(out, relay.Object{Key: manifest.KeyOf(o), Desired: o, Live: secret("aHVudGVyMw==")})
	}
	return out, nil
}

func (cluster) Removed(_ context.Context, _ string, keys []manifest.Key) ([]relay.Object, error) {
	return []relay.Object{{Key: manifest.Key{Kind: "Secret", Name: fmt.Sprint("beside ", len(keys))}, Live: secret("aHVudGVyMg==")}}, nil
}

func (c *cluster) Refresh(_ context.Context, app string) bool {
	c.refreshed = app
	return app != "unknown"
}

func (c *cluster) Confirm(_ context.Context, app string) error {
	if app == "unknown" {
		return fault.New(fault.Missing, "the agent does not have this application")
	}
	c.confirmed = app
	return nil
}

func (c *cluster) Delete(_ context.Context, app string, key manifest.Key, _ string, force bool, propagation string) error {
	c.deleted = append(c.deleted, fmt.Sprint(app, " ", key, " ", force, " ", propagation))
	return nil
}

func (c *cluster) Patch(_ context.Context, app string, key manifest.Key, _, kind string, body []byte, dryRun bool) (*manifest.Object, error) {
	c.deleted = append(c.deleted, fmt.Sprint("patch ", app, " ", key, " ", kind, " ", string(body), " ", dryRun))
	return secret("aHVudGVyMg=="), nil
}

func secret(value string) *manifest.Object {
	return &manifest.Object{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "mine"}, "data": map[string]any{"k": value}}}
}

func TestOps(t *testing.T) {
	t.Parallel()
	var key []byte
	c := &cluster{}
	s := relay.New(c, c, c, c, func() []byte { return key }, func() []string { return nil })
	mine := &linkv1.GetRequest{AppId: "a", Version: "v1", Kind: "Secret", Namespace: "n", Name: "mine"}
	if _, err := s.Get(t.Context(), mine); fault.KindOf(err) != fault.Offline {
		t.Errorf("SEC an object was given before there is a key to mask with: %v", err)
	}
	key = []byte("0123456789abcdef0123456789abcdef")
	got, err := s.Get(t.Context(), mine)
	if err != nil || bytes.Contains(got.GetJson(), []byte("aHVud")) {
		t.Errorf("SEC answer %s, error %v", got.GetJson(), err)
	}
	if _, err := s.Get(t.Context(), &linkv1.GetRequest{AppId: "b", Version: "v1", Kind: "Secret", Name: "mine"}); fault.KindOf(err) != fault.Missing {
		t.Errorf("ISO-1 another application's object: %v", err)
	}
	for name, r := range map[string]*linkv1.GetRequest{"nothing": {}, "no version": {AppId: "a", Kind: "Secret", Name: "mine"}, "no name": {AppId: "a", Version: "v1", Kind: "Secret"}} {
		if _, err := s.Get(t.Context(), r); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, r := range map[fault.Kind]*linkv1.DeleteRequest{
		fault.Invalid: {AppId: "a", Kind: "Secret", Name: "mine"}, fault.Missing: {AppId: "b", Version: "v1", Kind: "Secret", Name: "mine"},
	} {
		if _, err := s.Delete(t.Context(), r); fault.KindOf(err) != want {
			t.Errorf("ISO-1 deletion of %v: %v; want %v", r, err, want)
		}
	}
	if _, err := s.Delete(t.Context(), &linkv1.DeleteRequest{AppId: "a", Version: "v1", Kind: "Secret", Namespace: "n", Name: "mine", Force: true, Propagation: "orphan"}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a /Secret/n/mine true orphan"}, c.deleted); diff != "" {
		t.Errorf("DEL-07 (-want +got):\n%s", diff)
	}
	one, err := s.Diff(t.Context(), &linkv1.DiffRequest{AppId: "a", Kind: "Secret", Namespace: "n", Name: "mine"})
	if err != nil || len(one.GetObjects()) != 1 {
		t.Fatalf("one difference: %v, %v", one, err)
	}
	if d := one.GetObjects()[0]; bytes.Equal(d.GetDesired(), d.GetLive()) || len(d.GetApplied()) != 0 || bytes.Contains(d.GetDesired(), []byte("aHVud")) {
		t.Errorf("DIFF-14 difference %s, %s", d.GetDesired(), d.GetLive())
	}
	if all, err := s.Diff(t.Context(), &linkv1.DiffRequest{AppId: "a"}); err != nil || len(all.GetObjects()) != 2 {
		t.Errorf("all differences: %v, %v", all, err)
	}
	if _, err := s.Refresh(t.Context(), &linkv1.RefreshRequest{AppId: "unknown"}); fault.KindOf(err) != fault.Missing {
		t.Errorf("refresh of nothing: %v", err)
	}
	if _, err := s.Refresh(t.Context(), &linkv1.RefreshRequest{}); err != nil || c.refreshed != "" {
		t.Errorf("refresh of all: %v", err)
	}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	c := &cluster{}
	s := relay.New(c, c, c, c, func() []byte { return []byte("0123456789abcdef0123456789abcdef") }, func() []string { return nil })
	body, err := manifest.Canonical(secret("aHVudGVyMg=="))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("SEC-C6 objects and removals are returned with Secret values masked", func(t *testing.T) {
		got, err := s.Preview(t.Context(), &linkv1.PreviewRequest{AppId: "a", Objects: [][]byte{body}, Removed: true, Kept: []*linkv1.ObjectRef{{Kind: "Secret", Name: "mine"}}})
		if err != nil || len(got.GetObjects()) != 2 || got.GetObjects()[0].GetName() != "beside 1" {
			t.Fatal(got, err)
		}
		for _, o := range got.GetObjects() {
			for _, text := range [][]byte{o.GetDesired(), o.GetLive()} {
				if strings.Contains(string(text), "aHVudGVy") {
					t.Errorf("%s", text)
				}
			}
		}
	})
	t.Run("SEC what is no object, or too much, is refused", func(t *testing.T) {
		for _, r := range []*linkv1.PreviewRequest{{}, {AppId: "a", Objects: make([][]byte, 3000)}, {AppId: "a", Objects: [][]byte{[]byte("no JSON")}}} {
			if _, err := s.Preview(t.Context(), r); err == nil {
				t.Errorf("%d objects are accepted", len(r.GetObjects()))
			}
		}
	})
}
