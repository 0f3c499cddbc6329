package cli

import (
	"encoding/json"
	"fmt"
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
}

func (a *app) appDiff() *cobra.Command {
	var d diffing
	c := a.one("diff NAME", "Show how the cluster differs from Git; exit code 1 if it does",
		"  capstan app diff shop\n  capstan app diff shop --server-side-diff\n  helm template ./chart | capstan app diff shop --local -",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			return exit.Comparison(a.diff(cmd, api, namespace, name, d))
		})
	f := c.Flags()
	f.BoolVar(&d.predict, "server-side-diff", false, "ask the cluster what an apply would make of each object; nothing is written")
	f.BoolVar(&d.refresh, "refresh", false, "refresh the sources first, and wait for it")
	f.BoolVar(&d.hard, "hard-refresh", false, "the same, and render even if nothing changed")
	f.BoolVar(&d.three, "three-way", false, "show what was applied last, too")
	f.StringVar(&d.local, "local", "", "compare the cluster with these manifests instead: a file, a folder, or - for the input")
	f.BoolVar(&d.exit, "exit-code", true, "end with an exit code of its own if there is a difference")
	f.IntVar(&d.code, "diff-exit-code", exit.Differs, "that exit code")
	return c
}

func (a *app) diff(cmd *cobra.Command, api *client.Client, namespace, name string, d diffing) error {
	if d.code < 1 || d.code > 125 {
		return usage.Errorf("--diff-exit-code %d is no exit code from 1 to 125", d.code)
	}
	if d.local != "" && d.predict {
		return usage.Errorf("--local and --server-side-diff do not go together")
	}
	var local []diff.Object
	if d.local != "" {
		var err error
		if local, err = diff.ReadLocal(d.local, a.in); err != nil {
			return err
		}
	}
	if d.refresh || d.hard {
		if _, err := a.watcher(api).Refreshed(cmd.Context(), namespace, name, d.hard, wait.LongRefresh); err != nil {
			return err
		}
		if err := a.watcher(api).Compared(cmd.Context(), namespace, name); err != nil {
			return err
		}
	}
	got, raw, err := client.Call[struct {
		Items  []apimodel.ObjectDiff `json:"items"`
		Paused apimodel.Paused       `json:"paused,omitzero"`
	}](api.DiffApplication(cmd.Context(), namespace, name, apimodel.DiffApplicationParams{Predict: d.predict, All: d.local != ""}))
	if client.Unavailable(err) {
		return fmt.Errorf("application %s: %w: %s", name, exit.ErrAway, client.Text(err))
	}
	if err != nil {
		return err
	}
	items := got.Items
	a.notePaused(got.Paused)
	if d.local != "" {
		if items, err = diff.AgainstLocal(items, local); err != nil {
			return err
		}
		got.Items = items
		if raw, err = json.Marshal(got); err != nil {
			return err
		}
	}
	if a.Format == "table" || a.Format == "wide" {
		for _, o := range items {
			if err := a.viewer(d.three).Show(cmd.Context(), o); err != nil {
				return err
			}
		}
	} else if err := a.Print(raw, diffNames(items)); err != nil {
		return err
	}
	if len(items) > 0 && d.exit {
		return exit.DifferCode(d.code)
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
