package hub_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestAnnotationsThatChangeNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, value string
		says       string // empty: it is fine
	}{
		"APP-23 a wish to hydrate is answered":            {"argocd.argoproj.io/hydrate", "normal", "does not hydrate"},
		"APP-25 an address of another console":            {"argocd.argoproj.io/managed-by-url", "https://argo.example.com", ""},
		"APP-25 other schemes are not shown":              {"argocd.argoproj.io/managed-by-url", "javascript:alert(1)", "no address of http"},
		"APP-25 nor is half an address":                   {"capstan.dev/managed-by-url", "//argo.example.com", "no address of http"},
		"APP-26 a notice":                                 {"notice.argocd.argoproj.io/content", "frozen until Monday", ""},
		"APP-26 a notice of 500 characters, not of bytes": {"notice.argocd.argoproj.io/content", strings.Repeat("ü", 500), ""},
		"APP-26 a longer one is cut":                      {"notice.capstan.dev/content", strings.Repeat("x", 501), "first 500"},
		"APP-26 its severity":                             {"notice.argocd.argoproj.io/severity", "fatal", "info, warning, critical"},
		"APP-26 its scope":                                {"notice.argocd.argoproj.io/scope", "page", "banner, icon, both"},
		"APP-26 whether it stays":                         {"notice.argocd.argoproj.io/permanent", "yes", "true, false"},
		"APP-26 its icon is of a list":                    {"notice.argocd.argoproj.io/icon", "fa-bomb", "fa-bell"},
		"APP-26 an icon of the list":                      {"notice.argocd.argoproj.io/icon", "fa-bell", ""},
		"APP-26 its address":                              {"notice.argocd.argoproj.io/url", "data:text/html,x", "no address of http"},
		"APP-26 a part that there is not":                 {"notice.argocd.argoproj.io/colour", "red", "none of that name"},
		"APP-27 a view":                                   {"pref.argocd.argoproj.io/default-view", "pods", ""},
		"APP-27 a view that there is not":                 {"pref.argocd.argoproj.io/default-view", "map", "tree, pods, network, list"},
		"APP-27 an order of pods":                         {"pref.argocd.argoproj.io/default-pod-sort", "parentResource", ""},
		"APP-27 an order that there is not":               {"pref.argocd.argoproj.io/default-pod-sort", "age", "topLevelResource"},
		"APP-27 a preference that there is not":           {"pref.argocd.argoproj.io/theme", "dark", "none of that name"},
		"APP-28 a link":                                   {"link.argocd.argoproj.io/docs", "Docs|https://docs.example.com", ""},
		"APP-28 a link elsewhere":                         {"link.argocd.argoproj.io/docs", "ftp://docs.example.com", "no address of http"},
		"annotations of others are theirs":                {"example.com/notice", "x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(hub.CheckNotices(hub.Meta{Annotations: map[string]string{c.key: c.value}}), "; ")
			if c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("it says %q, want %q", got, c.says)
			}
		})
	}
	t.Run("an empty report changes nothing", func(t *testing.T) {
		t.Parallel()
		if got := hub.CheckNotices(hub.Meta{}); got != nil {
			t.Errorf("%q", got)
		}
	})
}

func TestSkipped(t *testing.T) {
	t.Parallel()
	meta := func(value string) hub.Meta {
		return hub.Meta{Name: "x", Annotations: map[string]string{"argocd.argoproj.io/skip-reconcile": value}}
	}
	for name, c := range map[string]struct {
		app, cluster hub.Meta
		want         string
	}{
		"APP-24 an application":              {meta("true"), hub.Meta{}, "its annotation"},
		"APP-24 a whole cluster":             {hub.Meta{}, meta("true"), "of cluster x"},
		"APP-24 false is as none":            {meta("false"), meta("false"), ""},
		"APP-24 another word is as none too": {meta("yes"), meta("1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := hub.Skipped(c.app, c.cluster); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestHookFinalizers(t *testing.T) {
	t.Parallel()
	s := hub.Snapshot{Objects: []hub.ObjectRef{{Hook: "PreSync,PostDelete"}, {}}}
	got := strings.Join(hub.HookFinalizers(s.DeletionHooks()), " ")
	if got != "post-delete-finalizer.argocd.argoproj.io post-delete-finalizer.argocd.argoproj.io/cleanup" {
		t.Errorf("APP-30 %q", got)
	}
	own := hub.OwnFinalizers([]string{"post-delete-finalizer.argocd.argoproj.io", "resources-finalizer.argocd.argoproj.io", "pre-delete-finalizer.argocd.argoproj.io/cleanup", "mine"})
	if strings.Join(own, " ") != "resources-finalizer.argocd.argoproj.io mine" {
		t.Errorf("APP-30 what is stored is %q", own)
	}
}
