package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/diff"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/cli/wait"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// diffing is what was asked for of a comparison.
type diffing struct {
	predict, exit, three bool
	refresh, hard        bool
	code                 int
	local                string
	revision             string
	revisions            []string
	positions            []int
	generate             bool // the hub renders what is local
	upload               upload
}

func (a *app) appDiff() *cobra.Command {
	var d diffing
	c := a.one("diff NAME", "Show how the cluster differs from Git; exit code 1 if it does",
		"  capstan app diff shop\n  capstan app diff shop --server-side-diff\n  capstan app diff shop --revision feature/new-colors\n  helm template ./chart | capstan app diff shop --local -\n  capstan app diff shop --local . --server-side-generate",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			return exit.Comparison(a.diff(cmd, api, namespace, name, d))
		})
	f := c.Flags()
	f.BoolVar(&d.predict, "server-side-diff", false, "ask the cluster what an apply would make of each object; nothing is written")
	f.BoolVar(&d.refresh, "refresh", false, "refresh the sources first, and wait for it")
	f.BoolVar(&d.hard, "hard-refresh", false, "the same, and render even if nothing changed")
	f.StringVar(&d.revision, "revision", "", "preview this branch, tag or commit instead of the target; nothing is written")
	f.StringSliceVar(&d.revisions, "revisions", nil, "the same for several sources")
	f.IntSliceVar(&d.positions, "source-positions", nil, "which sources the revisions are of; 1 is the first")
	f.BoolVar(&d.three, "three-way", false, "show what was applied last, too")
	f.StringVar(&d.local, "local", "", "compare the cluster with these manifests instead: a file, a folder, or - for the input")
	f.BoolVar(&d.generate, "server-side-generate", false, "with --local: have the hub render that folder, which is sent; nothing is stored or written")
	d.upload.flags(f)
	f.BoolVar(&d.exit, "exit-code", true, "end with an exit code of its own if there is a difference")
	f.IntVar(&d.code, "diff-exit-code", exit.Differs, "that exit code")
	return c
}

func (a *app) diff(cmd *cobra.Command, api *client.Client, namespace, name string, d diffing) error {
	if err := d.check(); err != nil {
		return err
	}
	local, err := d.readLocal(a.in)
	if err != nil {
		return err
	}
	if d.refresh || d.hard {
		if err := a.renewed(cmd.Context(), api, namespace, name, d.hard); err != nil {
			return err
		}
	}
	got, raw, err := d.compare(cmd.Context(), api, namespace, name)
	if client.Unavailable(err) {
		return fmt.Errorf("application %s: %w: %s", name, exit.ErrAway, client.Text(err))
	}
	if err != nil {
		return err
	}
	a.notePaused(got.Paused)
	for _, w := range got.Warnings {
		fmt.Fprintln(a.Err, "warning:", w)
	}
	if d.local != "" && !d.generate {
		if raw, err = got.useLocal(local); err != nil {
			return err
		}
	}
	if err := a.showDiffs(cmd.Context(), got.Items, raw, d.three); err != nil {
		return err
	}
	if len(got.Items) > 0 && d.exit {
		return exit.DifferCode(d.code)
	}
	return nil
}

// compare asks the hub.
func (d diffing) compare(ctx context.Context, api *client.Client, namespace, name string) (comparison, []byte, error) {
	if !d.generate {
		return client.Call[comparison](api.DiffApplication(ctx, namespace, name, apimodel.DiffApplicationParams{
			Predict: d.predict, All: d.local != "", Revision: d.revision, Revisions: d.revisions, SourcePositions: d.positions,
		}))
	}
	at, err := position(d.positions)
	if err != nil {
		return comparison{}, nil, err
	}
	body, done, err := d.upload.pack(d.local)
	if err != nil {
		return comparison{}, nil, err
	}
	defer done()
	return client.Call[comparison](api.DiffUpload(ctx, namespace, name, apimodel.DiffUploadParams{SourcePosition: at}, body))
}

// A comparison is the hub's answer.
type comparison struct {
	Items  []apimodel.ObjectDiff `json:"items"`
	Paused apimodel.Paused       `json:"paused,omitzero"`

	Revisions []string `json:"revisions,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
}

// useLocal compares the cluster with local manifests instead, and returns the answer
// that the hub would give.
func (c *comparison) useLocal(local []diff.Object) ([]byte, error) {
	items, err := diff.AgainstLocal(c.Items, local)
	if err != nil {
		return nil, err
	}
	c.Items = items
	return json.Marshal(c)
}

// readLocal reads the local manifests, if some are asked for.
func (d diffing) readLocal(stdin io.Reader) ([]diff.Object, error) {
	if d.local == "" || d.generate {
		return nil, nil
	}
	return diff.ReadLocal(d.local, stdin)
}

// previews reports whether another revision than the target is compared.
func (d diffing) previews() bool { return d.revision != "" || len(d.revisions) > 0 }

// check refuses flags that do not make sense.
func (d diffing) check() error {
	if d.code < 1 || d.code > 125 {
		return usage.Errorf("--diff-exit-code %d is no exit code from 1 to 125", d.code)
	}
	if d.local != "" && d.previews() {
		return usage.Errorf("--local and --revision do not go together")
	}
	if d.generate && (d.local == "" || d.local == "-") {
		return usage.Errorf("--server-side-generate renders a folder; name it with --local")
	}
	if d.upload.root != "" && !d.generate {
		return usage.Errorf("--local-repo-root goes with --server-side-generate")
	}
	if !d.generate && len(d.positions) > 0 && len(d.revisions) != len(d.positions) {
		return usage.Errorf("--source-positions has %d entries, and --revisions %d", len(d.positions), len(d.revisions))
	}
	if d.revision != "" && len(d.revisions) > 0 {
		return usage.Errorf("--revision and --revisions do not go together")
	}
	if d.local != "" && d.predict {
		return usage.Errorf("--local and --server-side-diff do not go together")
	}
	return nil
}

// renewed refreshes an application and waits until the cluster has compared itself
// with what was found.
func (a *app) renewed(ctx context.Context, api *client.Client, namespace, name string, hard bool) error {
	w := a.watcher(api)
	if _, err := w.Refreshed(ctx, namespace, name, hard, wait.LongRefresh); err != nil {
		return err
	}
	return w.Compared(ctx, namespace, name)
}

// showDiffs prints differences for people, or the answer for programs.
func (a *app) showDiffs(ctx context.Context, items []apimodel.ObjectDiff, raw []byte, threeWay bool) error {
	if a.Format != "table" && a.Format != "wide" {
		return a.Print(raw, diffNames(items))
	}
	for _, o := range items {
		if err := a.viewer(threeWay).Show(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) viewer(threeWay bool) diff.Viewer {
	return diff.Viewer{Out: a.Out, Err: a.Err, ThreeWay: threeWay}
}

func diffNames(items []apimodel.ObjectDiff) output.Table {
	var t output.Table
	for _, o := range items {
		t.Names = append(t.Names, strings.ToLower(o.Kind)+"/"+o.Name)
	}
	return t
}
