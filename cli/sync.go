package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/syncflags"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/cli/wait"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// syncing is what a sync is to do, and what the command does with it.
type syncing struct {
	flags               syncflags.Flags
	async, preview, yes bool
	selector, query     string
	waiting             wait.Goal
}

func (a *app) appSync() *cobra.Command {
	var s syncing
	c := &cobra.Command{
		Use: "sync [NAME...]", Short: "Apply what Git says to the cluster, and wait for it",
		Example: "  capstan app sync shop\n  capstan app sync shop --prune --reason 'release 42'\n  capstan app sync -l team=shop\n  capstan app sync --query 'health:degraded' --dry-run",
		RunE: func(cmd *cobra.Command, names []string) error {
			if s.query != "" {
				return a.byQuery(cmd, apimodel.BulkActionSync, s.query, names)
			}
			api, names, err := a.several(cmd, names, s.selector)
			if err != nil {
				return err
			}
			return a.syncAll(cmd, api, names, s)
		},
	}
	s.addFlags(c.Flags())
	return c
}

func (s *syncing) addFlags(f *pflag.FlagSet) {
	f.StringVarP(&s.selector, "selector", "l", "", "all applications that match this label selector")
	addQuery(f, &s.query)
	f.BoolVar(&s.preview, "preview-changes", false, "show the difference and ask before anything is applied")
	f.BoolVarP(&s.yes, "yes", "y", false, "with --preview-changes or --query: do not ask")
	f.BoolVar(&s.yes, "assumeYes", false, "the same as --yes")
	f.BoolVar(&s.async, "async", false, "do not wait")
	s.flags.Register(f)
	s.waiting.AddFlags(f)
}

// several returns the applications that a command is about: those that are named,
// or those that a label selector matches.
func (a *app) several(cmd *cobra.Command, names []string, selector string) (*client.Client, []string, error) {
	if (len(names) == 0) == (selector == "") {
		return nil, nil, usage.Errorf("expected the names of applications, or --selector")
	}
	api, err := a.client()
	if err == nil && selector != "" {
		names, err = a.selected(cmd, api, selector)
	}
	return api, names, err
}

// A begunSync is one that is in progress, and its application.
type begunSync struct {
	name      string
	operation apimodel.Operation
}

// A syncBatch collects the failures of a sync of several applications.
type syncBatch struct {
	a       *app
	watcher wait.Watcher
	failed  exit.Failures
}

// fail records a failure. A single failure of a single application is returned
// unchanged.
func (b *syncBatch) fail(err error) error {
	if b.failed.Total == 1 {
		return err
	}
	b.a.Note("capstan: %s", exit.Say(err))
	b.failed.Add(exit.Of(err))
	return nil
}

// syncAll starts all syncs, and then waits for them.
func (a *app) syncAll(cmd *cobra.Command, api *client.Client, names []string, s syncing) error {
	watcher := a.shower(api)
	if s.async {
		watcher = a.watcher(api)
	}
	b := &syncBatch{a: a, watcher: watcher, failed: exit.Failures{Total: len(names)}}
	begun, err := b.start(cmd, api, names, s)
	if err != nil {
		return err
	}
	if s.async {
		err = a.printBegun(begun)
	} else {
		err = b.settle(cmd.Context(), begun, s)
	}
	if err != nil {
		return err
	}
	return b.failed.Err("applications", "were not synced")
}

// start starts the syncs of all applications.
func (b *syncBatch) start(cmd *cobra.Command, api *client.Client, names []string, s syncing) ([]begunSync, error) {
	var begun []begunSync
	for _, n := range names {
		op, done, err := b.startSync(cmd, api, n, s)
		if err != nil {
			if err := b.fail(err); err != nil {
				return nil, err
			}
			continue
		}
		if !done {
			begun = append(begun, begunSync{n, op})
		}
	}
	return begun, nil
}

// printBegun prints operations without waiting for them.
func (a *app) printBegun(begun []begunSync) error {
	t := output.Table{Head: []string{"APPLICATION", "OPERATION", "PHASE"}}
	var started []apimodel.Operation
	for _, x := range begun {
		started = append(started, x.operation)
		t.Rows = append(t.Rows, []string{x.name, x.operation.Id, string(x.operation.Phase)})
		t.Names = append(t.Names, "operation/"+x.operation.Id)
	}
	return a.printSeveral(started, t)
}

// settle waits for the syncs, one after the other, and prints the applications.
func (b *syncBatch) settle(ctx context.Context, begun []begunSync, s syncing) error {
	var ended []apimodel.Application
	for _, x := range begun {
		w := s.waiting
		w.Operation, w.Newest = x.operation.Id, s.flags.Revision == "" && len(s.flags.Sources.Revisions) == 0 && s.flags.Local.Path == ""
		w.Elsewhere = !w.Newest
		namespace, name := client.SplitName(x.name)
		state, err := b.watcher.Settled(ctx, namespace, name, w)
		if err != nil {
			if err := b.fail(err); err != nil {
				return err
			}
			continue
		}
		ended = append(ended, state)
	}
	if len(ended) == 0 {
		return nil
	}
	return b.a.printSeveral(ended, appTable(ended))
}

// printSeveral prints one thing as it is, and several as a list.
func (a *app) printSeveral(all any, t output.Table) error {
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return err
	}
	if len(items) == 1 {
		return a.Print(items[0], t)
	}
	if items == nil {
		items = []json.RawMessage{}
	}
	return a.PrintValue(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, t)
}

// startSync starts the sync of one application. done says that there was nothing
// to do.
func (b *syncBatch) startSync(cmd *cobra.Command, api *client.Client, qualifiedName string, s syncing) (op apimodel.Operation, done bool, err error) {
	namespace, name := client.SplitName(qualifiedName)
	req, err := s.flags.Request()
	if err != nil {
		return op, false, err
	}
	if err := b.watcher.Rendered(cmd.Context(), namespace, name, s.waiting); err != nil {
		return op, false, err
	}
	if len(s.flags.Sources.Names) > 0 {
		if req.SourcePositions, err = b.a.sourcePositions(cmd, api, namespace, name, s); err != nil {
			return op, false, err
		}
	}
	if len(s.flags.Labels) > 0 {
		labelled, err := b.a.labelled(cmd, api, namespace, name, s.flags.Labels)
		if err != nil {
			return op, false, err
		}
		labelled = append(labelled, req.Resources...)
		req.Resources = labelled
	}
	if s.preview {
		if done, err := b.a.preview(cmd, api, namespace, name, s.yes); done || err != nil {
			return op, done, err
		}
	}
	op, _, err = client.Call[apimodel.Operation](api.SyncApplication(cmd.Context(), namespace, name, req))
	return op, false, err
}

// sourcePositions finds sources by their names in the specification.
func (a *app) sourcePositions(cmd *cobra.Command, api *client.Client, namespace, name string, s syncing) ([]int, error) {
	x, _, err := client.Call[apimodel.Application](api.GetApplication(cmd.Context(), namespace, name, apimodel.GetApplicationParams{}))
	if err != nil {
		return nil, err
	}
	var spec struct {
		Sources []struct {
			Name string `json:"name"`
		} `json:"sources"`
	}
	if err := json.Unmarshal(x.Spec, &spec); err != nil {
		return nil, fmt.Errorf("application %s: its sources cannot be read: %w", name, err)
	}
	var known []string
	for _, source := range spec.Sources {
		if source.Name != "" {
			known = append(known, source.Name)
		}
	}
	var out []int
	for _, wanted := range s.flags.Sources.Names {
		found, err := usage.Among("--source-names of application "+name, wanted, known...)
		if err != nil {
			return nil, err
		}
		for i, source := range spec.Sources {
			if source.Name == found {
				out = append(out, i+1)
				break
			}
		}
	}
	return out, nil
}

// labelled selects the desired objects that have all of some labels.
func (a *app) labelled(cmd *cobra.Command, api *client.Client, namespace, name string, labels []string) ([]apimodel.ResourceSelector, error) {
	want := map[string]string{}
	for _, l := range labels {
		key, value, found := strings.Cut(l, "=")
		if !found || key == "" {
			return nil, usage.Errorf("--label %q is not key=value", l)
		}
		want[key] = value
	}
	m, _, err := client.Call[struct {
		Items []struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name, Namespace string
				Labels          map[string]string
			} `json:"metadata"`
		} `json:"items"`
	}](api.GetManifests(cmd.Context(), namespace, name, apimodel.GetManifestsParams{}))
	if err != nil {
		return nil, err
	}
	var out []apimodel.ResourceSelector
	for _, o := range m.Items {
		fits := true
		for key, value := range want {
			got, has := o.Metadata.Labels[key]
			fits = fits && has && got == value
		}
		if !fits {
			continue
		}
		group, _, grouped := strings.Cut(o.APIVersion, "/")
		if !grouped {
			group = ""
		}
		out = append(out, apimodel.ResourceSelector{Group: group, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name})
	}
	if len(out) == 0 {
		return nil, usage.Errorf("application %s has no object with the label %s", name, strings.Join(labels, " and "))
	}
	return out, nil
}

// preview shows what a sync would change, and asks. done says that there is
// nothing to do.
func (a *app) preview(cmd *cobra.Command, api *client.Client, namespace, name string, yes bool) (done bool, err error) {
	d, _, err := client.Call[struct {
		Items []apimodel.ObjectDiff `json:"items"`
	}](api.DiffApplication(cmd.Context(), namespace, name, apimodel.DiffApplicationParams{}))
	if err != nil {
		return false, err
	}
	if len(d.Items) == 0 {
		fmt.Fprintln(a.Out, "Nothing differs.")
		return true, nil
	}
	for _, o := range d.Items {
		if err := a.viewer(false).Show(cmd.Context(), o); err != nil {
			return false, err
		}
	}
	return false, a.confirm(yes, "Apply these changes?")
}
