package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// syncing is what the flags of a sync ask for.
type syncing struct {
	prune, dryRun, force, skipHooks    bool
	async, preview, yes                bool
	replace, outOfSyncOnly, serverSide bool
	retryRefresh                       bool
	revision, reason, local, strategy  string
	retryLimit, retryFactor            int64
	retryDuration, retryMax, selector  string
	localRoot                          string
	options, resources, infos, labels  []string
	revisions, sourceNames             []string
	positions                          []int
	waiting                            waiting
}

func (a *app) appSync() *cobra.Command {
	var s syncing
	c := &cobra.Command{
		Use: "sync [NAME...]", Short: "Apply what Git says to the cluster, and wait for it",
		Example: "  capstan app sync shop\n  capstan app sync shop --prune --reason 'release 42'\n  capstan app sync -l team=shop",
		RunE: func(cmd *cobra.Command, names []string) error {
			api, names, err := a.several(cmd, names, s.selector)
			if err != nil {
				return err
			}
			return a.syncAll(cmd, api, names, s)
		},
	}
	s.flags(c.Flags())
	return c
}

func (s *syncing) flags(f *pflag.FlagSet) {
	f.StringVarP(&s.selector, "selector", "l", "", "all applications that match this label selector")
	f.BoolVar(&s.prune, "prune", false, "delete what is no longer in Git")
	f.BoolVar(&s.dryRun, "dry-run", false, "ask the cluster what would happen, change nothing")
	f.BoolVar(&s.force, "force", false, "replace what cannot be changed in place")
	f.BoolVar(&s.skipHooks, "skip-hooks", false, "apply without hooks")
	f.BoolVar(&s.replace, "replace", false, "the sync option Replace=true")
	f.BoolVar(&s.serverSide, "server-side", false, "the sync option ServerSideApply=true")
	f.BoolVar(&s.outOfSyncOnly, "apply-out-of-sync-only", false, "the sync option ApplyOutOfSyncOnly=true")
	f.StringVar(&s.revision, "revision", "", "apply this revision instead of the target's")
	f.StringSliceVar(&s.revisions, "revisions", nil, "revisions for several sources")
	f.IntSliceVar(&s.positions, "source-positions", nil, "which sources --revisions are for, from 1")
	f.StringSliceVar(&s.sourceNames, "source-names", nil, "which sources --revisions are for, by their names")
	f.StringVar(&s.local, "local", "", "apply the manifests of this file or directory instead of Git's")
	f.StringVar(&s.localRoot, "local-repo-root", "", "with --local: the repository's directory, which no file that is read may lie outside of")
	f.StringVar(&s.strategy, "strategy", "", "apply (no hooks) or hook")
	f.StringSliceVar(&s.infos, "info", nil, "stored with the operation: name=value")
	f.BoolVar(&s.preview, "preview-changes", false, "show the difference and ask before anything is applied")
	f.BoolVarP(&s.yes, "yes", "y", false, "with --preview-changes: do not ask")
	f.BoolVar(&s.yes, "assumeYes", false, "the same as --yes")
	f.Int64Var(&s.retryLimit, "retry-limit", 0, "how often a failure is tried again; -1: without end")
	f.StringVar(&s.retryDuration, "retry-backoff-duration", "", "first pause before a retry, such as 5s")
	f.StringVar(&s.retryMax, "retry-backoff-max-duration", "", "longest pause before a retry, such as 3m")
	f.Int64Var(&s.retryFactor, "retry-backoff-factor", 0, "how many times longer each pause is than the one before")
	f.BoolVar(&s.retryRefresh, "retry-refresh", false, "resolve the revision again before each retry")
	f.StringVar(&s.reason, "reason", "", "recorded in the history")
	f.StringSliceVar(&s.options, "sync-option", nil, "such as Replace=true")
	f.StringSliceVar(&s.resources, "resource", nil, "only this object: group:kind:namespace/name or group:kind:name; with ! before it: all but this one")
	f.StringArrayVar(&s.labels, "label", nil, "only objects with this label, as key=value; of several, all must be there")
	f.BoolVar(&s.async, "async", false, "do not wait")
	s.waiting.flags(f)
}

// several returns the applications that a command is about: those that are named,
// or those that a label selector matches.
func (a *app) several(cmd *cobra.Command, names []string, selector string) (*client.Client, []string, error) {
	if (len(names) == 0) == (selector == "") {
		return nil, nil, usageError{errors.New("expected the names of applications, or --selector")}
	}
	api, err := a.client()
	if err == nil && selector != "" {
		names, err = a.selected(cmd, api, selector)
	}
	return api, names, err
}

// syncAll starts all syncs, and then waits for them.
func (a *app) syncAll(cmd *cobra.Command, api *client.Client, names []string, s syncing) error {
	type begun struct{ name, operation string }
	var under []begun
	var t table
	failed := failures{of: len(names)}
	// A single failure of a single application is reported unchanged.
	fail := func(err error) error {
		if len(names) == 1 {
			return err
		}
		a.note("capstan: %s", say(err))
		failed.add(exitCode(err))
		return nil
	}
	t.head = []string{"APPLICATION", "OPERATION", "PHASE"}
	var started []apimodel.Operation
	for _, n := range names {
		op, done, err := a.startSync(cmd, api, n, s)
		if err != nil {
			if err := fail(err); err != nil {
				return err
			}
			continue
		}
		if done {
			continue
		}
		under, started = append(under, begun{n, op.Id}), append(started, op)
		t.rows, t.name = append(t.rows, []string{n, op.Id, string(op.Phase)}), append(t.name, "operation/"+op.Id)
	}
	if s.async {
		if err := a.printSeveral(started, t); err != nil {
			return err
		}
		return failed.err("applications", "were not synced")
	}
	var ended []apimodel.Application
	for _, b := range under {
		w := s.waiting
		w.operation, w.newest = b.operation, s.revision == "" && len(s.revisions) == 0 && s.local == ""
		namespace, name := appName(b.name)
		x, err := a.settled(cmd.Context(), api, namespace, name, w)
		if err != nil {
			if err := fail(err); err != nil {
				return err
			}
			continue
		}
		ended = append(ended, x)
	}
	if len(ended) > 0 {
		if err := a.printSeveral(ended, appTable(ended)); err != nil {
			return err
		}
	}
	return failed.err("applications", "were not synced")
}

// printSeveral prints one thing as it is, and several as a list.
func (a *app) printSeveral(all any, t table) error {
	raw, err := json.Marshal(all)
	if err != nil {
		return err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return err
	}
	if len(items) == 1 {
		return a.print(items[0], t)
	}
	if items == nil {
		items = []json.RawMessage{}
	}
	return a.printValue(map[string]any{"apiVersion": "v1", "kind": "List", "items": items}, t)
}

// startSync starts the sync of one application. done says that there was nothing
// to do.
func (a *app) startSync(cmd *cobra.Command, api *client.Client, qualifiedName string, s syncing) (op apimodel.Operation, done bool, err error) {
	namespace, name := appName(qualifiedName)
	req, err := s.request()
	if err != nil {
		return op, false, err
	}
	if err := a.awaitTarget(cmd.Context(), api, namespace, name, s.waiting); err != nil {
		return op, false, err
	}
	if len(s.sourceNames) > 0 {
		if req.SourcePositions, err = a.sourcePositions(cmd, api, namespace, name, s); err != nil {
			return op, false, err
		}
	}
	if len(s.labels) > 0 {
		labelled, err := a.labelled(cmd, api, namespace, name, s.labels)
		if err != nil {
			return op, false, err
		}
		labelled = append(labelled, req.Resources...)
		req.Resources = labelled
	}
	if s.preview {
		if done, err := a.preview(cmd, api, namespace, name, s.yes); done || err != nil {
			return op, done, err
		}
	}
	op, _, err = call[apimodel.Operation](api.SyncApplication(cmd.Context(), namespace, name, req))
	return op, false, err
}

// request is what all applications are asked for alike.
func (s syncing) request() (apimodel.SyncRequest, error) {
	selected, err := selectors(s.resources)
	if err != nil {
		return apimodel.SyncRequest{}, err
	}
	options := slices.Clone(s.options)
	for option, on := range map[string]bool{"Replace=true": s.replace, "ServerSideApply=true": s.serverSide, "ApplyOutOfSyncOnly=true": s.outOfSyncOnly} {
		if on && !slices.Contains(options, option) {
			options = append(options, option)
		}
	}
	slices.Sort(options)
	req := apimodel.SyncRequest{
		Prune: s.prune, DryRun: s.dryRun, Force: s.force, SkipHooks: s.skipHooks,
		Revision: s.revision, Reason: s.reason, SyncOptions: options, Resources: selected, Revisions: s.revisions,
	}
	if len(s.positions) > 0 {
		if len(s.sourceNames) > 0 {
			return req, usageError{errors.New("--source-positions and --source-names do not go together")}
		}
		req.SourcePositions = s.positions
	}
	if len(s.sourceNames) != 0 && len(s.sourceNames) != len(s.revisions) {
		return req, usageError{fmt.Errorf("--source-names has %d names and --revisions %d revisions; give one revision for each name", len(s.sourceNames), len(s.revisions))}
	}
	if err := fillSync(&req, s.infos, s.local, s.localRoot, s.strategy); err != nil {
		return req, err
	}
	return req, s.fillRetry(&req)
}

// fillRetry adds the retry block if a flag asks for one.
func (s syncing) fillRetry(req *apimodel.SyncRequest) error {
	if s.retryLimit == 0 && s.retryDuration == "" && s.retryMax == "" && s.retryFactor == 0 && !s.retryRefresh {
		return nil
	}
	block, backoff := map[string]any{}, map[string]any{}
	if s.retryLimit != 0 {
		block["limit"] = s.retryLimit
	}
	if s.retryRefresh {
		block["refresh"] = true
	}
	if s.retryDuration != "" {
		backoff["duration"] = s.retryDuration
	}
	if s.retryMax != "" {
		backoff["maxDuration"] = s.retryMax
	}
	if s.retryFactor != 0 {
		backoff["factor"] = s.retryFactor
	}
	if len(backoff) > 0 {
		block["backoff"] = backoff
	}
	text, err := json.Marshal(map[string]any{"retry": block})
	if err != nil {
		return err
	}
	return json.Unmarshal(text, req)
}

// sourcePositions finds sources by their names in the specification.
func (a *app) sourcePositions(cmd *cobra.Command, api *client.Client, namespace, name string, s syncing) ([]int, error) {
	x, _, err := call[apimodel.Application](api.GetApplication(cmd.Context(), namespace, name, apimodel.GetApplicationParams{}))
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
	for _, wanted := range s.sourceNames {
		found, err := among("--source-names of application "+name, wanted, known...)
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
			return nil, usageError{fmt.Errorf("--label %q is not key=value", l)}
		}
		want[key] = value
	}
	m, _, err := call[struct {
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
		return nil, usageError{fmt.Errorf("application %s has no object with the label %s", name, strings.Join(labels, " and "))}
	}
	return out, nil
}
