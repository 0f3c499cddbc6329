package render_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// What the stage counts as another render, with the exact number of them.
// Package worker tests the same with the renderers.
func TestStageReusesARender(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a/x.yaml": "1", "else": "1"}
	spec := func(from, to string) func(*stageWorld) {
		return func(w *stageWorld) {
			a := &w.apps["a"].Application
			a.Spec = []byte(strings.Replace(string(a.Spec), from, to, 1))
			a.Generation++
		}
	}
	settings := func(key, value string) func(*stageWorld) {
		return func(w *stageWorld) { w.apps["a"].Settings = map[string]string{key: value} }
	}
	for name, c := range map[string]struct {
		change  func(*stageWorld)
		renders int
	}{
		"nothing is changed":                           {func(*stageWorld) {}, 0},
		"a revision that touches what was read":        {func(w *stageWorld) { w.push(rendertest.NewTree(map[string]string{"a/x.yaml": "2", "else": "1"})) }, 1},
		"a revision that touches nothing of it":        {func(w *stageWorld) { w.push(rendertest.NewTree(map[string]string{"a/x.yaml": "1", "else": "2"})) }, 0},
		"the source":                                   {spec(`"path":"a"`, `"path":"a","directory":{"recurse":true}`), 1},
		"the name of the revision, at the same commit": {spec(`"path":"a"`, `"path":"a","targetRevision":"v1"`), 0},
		"the namespace":                                {spec(`"name":"prod"`, `"name":"prod","namespace":"other"`), 1},
		"the name of the application":                  {func(w *stageWorld) { w.apps["a"].Application.Name = "other" }, 1},
		"the project":                                  {func(w *stageWorld) { w.apps["a"].Application.Project = "other" }, 1},
		"the version of the cluster, which is asked for": {
			func(w *stageWorld) { w.asks = true; w.apps["a"].Cluster = &hub.Cluster{KubeVersion: "v1.35.0"} }, 1,
		},
		"the APIs of the cluster, for which nobody asks": {
			func(w *stageWorld) {
				w.apps["a"].Cluster = &hub.Cluster{KubeVersion: "v1.34.0", APIVersions: []string{"v1"}}
			}, 0,
		},
		"the tracking method": {settings("application.resourceTrackingMethod", "label"), 0},
		"the label key":       {settings("application.instanceLabelKey", "example.com/x"), 0},
		"the installation id": {settings("installationID", "two"), 0},
		"the sync policy":     {spec(`"automated":{}`, `"automated":{"prune":true}`), 0},
	} {
		t.Run("REPO-02 "+name, func(t *testing.T) {
			t.Parallel()
			w := newStageWorld(files, "a")
			w.asks = true
			w.apps["a"].Cluster = &hub.Cluster{KubeVersion: "v1.34.0"}
			w.run(t.Context(), false)
			if w.renders != 1 {
				t.Fatalf("%d renders of a new application", w.renders)
			}
			c.change(w)
			for range 2 { // the second time everything is known
				w.run(t.Context(), false)
				if w.renders != 1+c.renders || len(w.failed) != 0 {
					t.Errorf("%d renders, want %d; failed %v", w.renders, 1+c.renders, w.failed)
				}
			}
		})
	}
	t.Run("REPO-02 what a project forbids, source integrity too, is checked before the cache, which is unchanged afterwards", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(files, "a")
		w.run(t.Context(), false)
		w.permits = fault.New(fault.Invalid, "project \"default\" has sourceIntegrity")
		w.run(t.Context(), false)
		if w.renders != 1 || len(w.failed) != 1 {
			t.Errorf("%d renders, failed %v", w.renders, w.failed)
		}
		w.permits = nil
		w.run(t.Context(), false)
		if c := w.apps["a"].Application.Status.Conditions; w.renders != 1 || len(c) != 0 {
			t.Errorf("%d renders, conditions %v", w.renders, c)
		}
	})
	t.Run("REPO-02 what agents write to objects is no setting of a render", func(t *testing.T) {
		t.Parallel()
		for _, key := range []string{"application.resourceTrackingMethod", "application.instanceLabelKey", "installationID"} {
			if hub.Renders(hub.SettingsMap, key) {
				t.Errorf("a change of %s has applications looked at anew", key)
			}
		}
	})
}
