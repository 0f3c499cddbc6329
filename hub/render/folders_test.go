package render_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
)

// A snapshot whose inputs were forgotten is rendered again, also at the commit
// that it was rendered from, and where its folder was remembered before.
func TestForgottenInputs(t *testing.T) {
	t.Parallel()
	tree := rendertest.NewTree(map[string]string{"app/a": "x"})
	req := request()
	req.Sources[0].Path = "app"
	req.Trees = []hub.Tree{tree}
	rec := render.NewRecorder(req, render.Limits{})
	if _, err := rec.Ask(t.Context(), render.Question{Op: render.OpRead, Names: []string{"app/a"}}); err != nil {
		t.Fatal(err)
	}
	folders := render.NewValidFolders()
	for range 2 {
		if fresh, err := folders.Fresh("s", rec.Inputs(), req.Trees, req); err != nil || !fresh {
			t.Fatalf("%v, %v before they were forgotten", fresh, err)
		}
	}
	// Releases that do not know the kind take no input of source -1 for the same.
	for name, inputs := range map[string][]hub.Input{"of its own kind": hub.ForgottenInputs(), "of another kind": {{Source: -1, Kind: hub.InputFile}}} {
		t.Run("INV-6 forgotten inputs hold in no tree, "+name, func(t *testing.T) {
			if fresh, err := folders.Fresh("s", inputs, req.Trees, req); err != nil || fresh {
				t.Errorf("with the folder known: %v, %v", fresh, err)
			}
			if fresh, err := render.Fresh(inputs, req.Trees, req); err != nil || fresh {
				t.Errorf("alone: %v, %v", fresh, err)
			}
			if fresh, err := render.Fresh(inputs, nil, req); err != nil || fresh {
				t.Errorf("without trees: %v, %v", fresh, err)
			}
		})
	}
}

// TestValidFolders changes trees at random, also by links that lead out of the
// folder and to it. What is remembered of folders must never change an answer.
func TestValidFolders(t *testing.T) {
	t.Parallel()
	t.Run("INV-6 what is remembered of a folder never changes an answer", func(t *testing.T) {
		t.Parallel()
		answers := map[bool]int{}
		rapid.Check(t, func(t *rapid.T) {
			name := rapid.SampledFrom([]string{"app/a", "app/b", "app/sub/c", "base/d", "base/d", "base/d", "other/app/a", "apps", "link app/l", "link app/sub/l", "link app/a", "link at", "link base"})
			text := rapid.SampledFrom([]string{"", "x", "y", "../base/d", "../base", "a", "sub", "app", "other/app", "../app"})
			tree := rendertest.NewTree(map[string]string{"app/a": "x", "app/sub/c": "x", "base/d": "x"})
			change := func() {
				files := map[string]string{}
				for range rapid.IntRange(0, 2).Draw(t, "changes") {
					files[name.Draw(t, "name")] = text.Draw(t, "text")
				}
				if next := tree.With(files); next.Sound() {
					tree = next
				}
			}
			if rapid.Bool().Draw(t, "linked") {
				tree = tree.With(map[string]string{"link app/l": "../base/d", "link at": "app"})
			}
			change()
			req := request()
			req.Sources[0].Path = rapid.SampledFrom([]string{"app", "app", "at", "app/sub", ".", "app/l"}).Draw(t, "path")
			req.Trees = []hub.Tree{tree}
			rec := render.NewRecorder(req, render.Limits{})
			paths := rapid.SliceOfN(rapid.SampledFrom([]string{"app/a", "app/b", "app/l", "app/l/a", "app/sub", "app/sub/c", "app/sub/l", "at/a", "at/sub/c", "base", "base/d", "apps"}), 1, 6).Draw(t, "reads")
			for _, p := range paths {
				op := rapid.SampledFrom([]render.Op{render.OpRead, render.OpList, render.OpReal, render.OpStat}).Draw(t, "op")
				_, _ = rec.Ask(t.Context(), render.Question{Op: op, Names: []string{p}})
			}
			folders := render.NewValidFolders()
			for step := range 8 {
				if step > 0 {
					change()
				}
				req.Trees = []hub.Tree{tree}
				want, wantErr := render.Fresh(rec.Inputs(), req.Trees, req)
				got, err := folders.Fresh("s", rec.Inputs(), req.Trees, req)
				if got != want || (err == nil) != (wantErr == nil) {
					t.Fatalf("step %d: %v (%v), want %v (%v); inputs %v", step, got, err, want, wantErr, rec.Inputs())
				}
				answers[got]++
			}
		})
		if answers[true] < 50 || answers[false] < 50 {
			t.Errorf("answers %v: the changes are one-sided", answers)
		}
	})
	t.Run("B09 inputs of an equal folder are not looked up again", func(t *testing.T) {
		t.Parallel()
		files := map[string]string{"base/d": "x"}
		req := request()
		req.Sources[0].Path = "app"
		for i := range 100 {
			files[fmt.Sprintf("app/%d.yaml", i)] = "x"
		}
		tree := rendertest.NewTree(files)
		req.Trees = []hub.Tree{tree}
		rec := render.NewRecorder(req, render.Limits{})
		for i := range 100 {
			if _, err := rec.Ask(t.Context(), render.Question{Op: render.OpRead, Names: []string{fmt.Sprintf("app/%d.yaml", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		folders := render.NewValidFolders()
		for _, want := range []int{101, 1} {
			tree = tree.With(map[string]string{"other": fmt.Sprint(want)})
			if ok, err := folders.Fresh("s", rec.Inputs(), []hub.Tree{render.Opened(tree)}, req); !ok || err != nil {
				t.Fatalf("fresh is %v (%v)", ok, err)
			}
			if got := tree.Lookups(); got != want {
				t.Errorf("%d inputs were looked up, want %d", got, want)
			}
		}
		if n := folders.Same("s", req.Sources, []hub.Tree{tree.With(map[string]string{"app/1.yaml": "y"})}); n != 0 {
			t.Error("another folder counts as the same")
		}
	})
	t.Run("of a folder with more entries than can be looked through, nothing is remembered", func(t *testing.T) {
		t.Parallel()
		files := map[string]string{}
		for i := range 600 {
			files[fmt.Sprintf("app/%d.yaml", i)] = "x"
		}
		req := request()
		req.Sources[0].Path = "app"
		trees := []hub.Tree{rendertest.NewTree(files)}
		folders := render.NewValidFolders()
		for range 2 {
			if ok, err := folders.Fresh("s", nil, trees, req); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		if folders.Same("s", req.Sources, trees) != 0 {
			t.Error("it is remembered")
		}
	})
}
