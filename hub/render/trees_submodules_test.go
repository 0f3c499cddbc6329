package render_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
)

// A switchable tree says whether its submodules are read.
type switchable struct {
	hub.Tree
	without bool
}

func (s switchable) WithoutSubmodules() hub.Tree { return switchable{s.Tree, true} }

func TestSubmodulesBySetting(t *testing.T) {
	t.Parallel()
	for value, without := range map[string]bool{"": false, "true": false, "false": true, " false ": true, "no": false} {
		t.Run("SRC-23 reposerver.enable.git.submodule "+value, func(t *testing.T) {
			t.Parallel()
			tree := switchable{Tree: rendertest.NewTree(nil)}
			got, ok := render.WithSettings(tree, map[string]string{"reposerver.enable.git.submodule": value}).(switchable)
			if !ok || got.without != without {
				t.Errorf("without submodules: %t, want %t", got.without, without)
			}
		})
	}
	t.Run("SRC-23 the setting reaches renders", func(t *testing.T) {
		t.Parallel()
		if !hub.Renders(hub.ParamsMap, hub.SubmodulesKey) {
			t.Error("the setting reaches no render")
		}
	})
}
