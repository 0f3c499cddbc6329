package tracking_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/agent/tracking"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func object(t *testing.T, meta string) *manifest.Object {
	t.Helper()
	all, err := manifest.Parse("x.yaml", []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n  namespace: shop\n"+meta), manifest.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

func TestParse(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		text string
		want tracking.ID
		ok   bool
	}{
		"TRK-02 an application of the control namespace": {
			"shop:apps/Deployment:prod/web", tracking.ID{App: "shop", Key: manifest.Key{Group: "apps", Kind: "Deployment", Namespace: "prod", Name: "web"}}, true,
		},
		"TRK-02 an application elsewhere, a core kind": {
			"team_shop:/Service:prod/web", tracking.ID{App: "team_shop", Key: manifest.Key{Kind: "Service", Namespace: "prod", Name: "web"}}, true,
		},
		"TRK-02 a role whose name has colons": {
			"shop:rbac.authorization.k8s.io/ClusterRole:/system:web:x", tracking.ID{App: "shop", Key: manifest.Key{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "system:web:x"}}, true,
		},
		"TRK-03 nothing":         {"", tracking.ID{}, false},
		"TRK-03 no application":  {":apps/Deployment:prod/web", tracking.ID{}, false},
		"TRK-03 no kind":         {"shop:apps/:prod/web", tracking.ID{}, false},
		"TRK-03 no group at all": {"shop:Deployment:prod/web", tracking.ID{}, false},
		"TRK-03 no name":         {"shop:apps/Deployment:prod/", tracking.ID{}, false},
		"TRK-03 a label's value": {"shop", tracking.ID{}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := tracking.Parse(c.text)
			if ok != c.ok || !cmp.Equal(got, c.want) {
				t.Errorf("%+v, %v", got, ok)
			}
		})
	}
	t.Run("TRK-02 a written id is parsed back", rapid.MakeCheck(func(t *rapid.T) {
		word := rapid.StringMatching(`[a-z][a-z0-9.-]{0,20}`)
		id := tracking.ID{App: word.Draw(t, "app"), Key: manifest.Key{
			Group: rapid.StringMatching(`([a-z]+\.io)?`).Draw(t, "group"), Kind: rapid.StringMatching(`[A-Z][a-z]+`).Draw(t, "kind"),
			Namespace: rapid.StringMatching(`([a-z]+)?`).Draw(t, "namespace"), Name: rapid.StringMatching(`[a-z][a-z:./-]*`).Draw(t, "name"),
		}}
		if got, ok := tracking.Parse(id.String()); !ok || got != id {
			t.Errorf("%q became %+v, %v", id.String(), got, ok)
		}
	}))
}

func TestOf(t *testing.T) {
	t.Parallel()
	written := "  managedFields: [{manager: argocd-controller, operation: Apply, apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: {}}]\n"
	cases := map[string]struct {
		meta string
		want []tracking.Mark
	}{
		"TRK-01 nothing": {"", nil},
		"TRK-01 annotation": {
			"  annotations: {argocd.argoproj.io/tracking-id: 'guestbook:apps/Deployment:shop/web'}\n",
			[]tracking.Mark{{System: tracking.Argo, App: "guestbook"}},
		},
		"TRK-01 annotation and label: the annotation counts": {
			"  labels: {app.kubernetes.io/instance: cut}\n  annotations: {argocd.argoproj.io/tracking-id: 'guestbook:apps/Deployment:shop/web'}\n" + written,
			[]tracking.Mark{{System: tracking.Argo, App: "guestbook"}},
		},
		"TRK-04 label": {
			"  labels: {app.kubernetes.io/instance: guestbook}\n" + written,
			[]tracking.Mark{{System: tracking.Argo, App: "guestbook", Label: true}},
		},
		"TRK-04 a chart's label is no mark": {"  labels: {app.kubernetes.io/instance: release}\n", nil},
		"TRK-03 copied annotations are no mark": {
			"  annotations: {argocd.argoproj.io/tracking-id: 'guestbook:apps/Deployment:shop/other'}\n", nil,
		},
		"TRK-05 installation id": {
			"  annotations: {argocd.argoproj.io/tracking-id: 'guestbook:apps/Deployment:shop/web', argocd.argoproj.io/installation-id: north}\n",
			[]tracking.Mark{{System: tracking.Argo, App: "guestbook", Installation: "north"}},
		},
		"TRK-07 two owners, ours first": {
			"  annotations: {argocd.argoproj.io/tracking-id: 'guestbook:apps/Deployment:shop/web', capstan.dev/tracking-id: 'argocd_book:apps/Deployment:shop/web'}\n",
			[]tracking.Mark{{System: tracking.Own, App: "argocd_book"}, {System: tracking.Argo, App: "guestbook"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, tracking.Of(object(t, c.meta), "")); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("TRK-04 another label", func(t *testing.T) {
		t.Parallel()
		got := tracking.Of(object(t, "  labels: {argo: guestbook}\n"+written), "argo")
		if len(got) != 1 || got[0].App != "guestbook" || !got[0].Label {
			t.Errorf("%+v", got)
		}
	})
	t.Run("TRK-04 a long name is truncated in a label", func(t *testing.T) {
		t.Parallel()
		long := strings.Repeat("a", 70)
		m := tracking.Mark{System: tracking.Argo, App: long[:63], Label: true}
		if !m.Names(long) || m.Names("b"+long) || (tracking.Mark{App: "short", Label: true}).Names("shorter") {
			t.Error("a label is not matched by its first 63 characters")
		}
	})
	t.Run("TRK-02 a namespace before the name is split off", func(t *testing.T) {
		t.Parallel()
		if !(tracking.Mark{App: "team_shop"}).Names("shop") || (tracking.Mark{App: "team_shop"}).Names("team_shop") {
			t.Error("the name of an application is not found in its id")
		}
	})
}
