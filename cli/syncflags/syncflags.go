// Package syncflags turns the flags of a sync into the request for it. Nothing here
// talks to a hub.
package syncflags

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/files"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// Flags are the flags that say what a sync applies, and how.
type Flags struct {
	prune, dryRun, force, skipHooks    bool
	replace, outOfSyncOnly, serverSide bool
	Revision, reason, strategy         string
	options, resources, infos, Labels  []string
	Sources                            sourceFlags
	Local                              localFlags
	retry                              retryFlags
}

// sourceFlags name revisions of an application with several sources.
type sourceFlags struct {
	Revisions, Names []string
	positions        []int
}

// localFlags replace what Git says by files.
type localFlags struct{ Path, root string }

// retryFlags say how often a sync that fails is repeated.
type retryFlags struct {
	limit, factor         int64
	duration, maxDuration string
	refresh               bool
}

// Register adds the flags to a set.
func (s *Flags) Register(f *pflag.FlagSet) {
	f.BoolVar(&s.prune, "prune", false, "delete what is no longer in Git")
	f.BoolVar(&s.dryRun, "dry-run", false, "ask the cluster what would happen, change nothing")
	f.BoolVar(&s.force, "force", false, "replace what cannot be changed in place")
	f.BoolVar(&s.skipHooks, "skip-hooks", false, "apply without hooks")
	f.BoolVar(&s.replace, "replace", false, "the sync option Replace=true")
	f.BoolVar(&s.serverSide, "server-side", false, "the sync option ServerSideApply=true")
	f.BoolVar(&s.outOfSyncOnly, "apply-out-of-sync-only", false, "the sync option ApplyOutOfSyncOnly=true")
	f.StringVar(&s.Revision, "revision", "", "apply this revision instead of the target's")
	f.StringSliceVar(&s.Sources.Revisions, "revisions", nil, "revisions for several sources")
	f.IntSliceVar(&s.Sources.positions, "source-positions", nil, "which sources --revisions are for, from 1")
	f.StringSliceVar(&s.Sources.Names, "source-names", nil, "which sources --revisions are for, by their names")
	f.StringVar(&s.Local.Path, "local", "", "apply the manifests of this file or directory instead of Git's")
	f.StringVar(&s.Local.root, "local-repo-root", "", "with --local: the repository's directory, which no file that is read may lie outside of")
	f.StringVar(&s.strategy, "strategy", "", "apply (no hooks) or hook")
	f.StringSliceVar(&s.infos, "info", nil, "stored with the operation: name=value")
	f.Int64Var(&s.retry.limit, "retry-limit", 0, "how often a failure is tried again; -1: without end")
	f.StringVar(&s.retry.duration, "retry-backoff-duration", "", "first pause before a retry, such as 5s")
	f.StringVar(&s.retry.maxDuration, "retry-backoff-max-duration", "", "longest pause before a retry, such as 3m")
	f.Int64Var(&s.retry.factor, "retry-backoff-factor", 0, "how many times longer each pause is than the one before")
	f.BoolVar(&s.retry.refresh, "retry-refresh", false, "resolve the revision again before each retry")
	f.StringVar(&s.reason, "reason", "", "recorded in the history")
	f.StringSliceVar(&s.options, "sync-option", nil, "such as Replace=true")
	f.StringSliceVar(&s.resources, "resource", nil, "only this object: group:kind:namespace/name or group:kind:name; with ! before it: all but this one")
	f.StringArrayVar(&s.Labels, "label", nil, "only objects with this label, as key=value; of several, all must be there")
}

// Request is what all applications are asked for alike.
func (s *Flags) Request() (apimodel.SyncRequest, error) {
	selected, err := Selectors(s.resources)
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
		Revision: s.Revision, Reason: s.reason, SyncOptions: options, Resources: selected, Revisions: s.Sources.Revisions,
	}
	if len(s.Sources.positions) > 0 {
		if len(s.Sources.Names) > 0 {
			return req, usage.Errorf("--source-positions and --source-names do not go together")
		}
		req.SourcePositions = s.Sources.positions
	}
	if len(s.Sources.Names) != 0 && len(s.Sources.Names) != len(s.Sources.Revisions) {
		return req, usage.Errorf("--source-names has %d names and --revisions %d revisions; give one revision for each name", len(s.Sources.Names), len(s.Sources.Revisions))
	}
	if err := fillSync(&req, s.infos, s.Local.Path, s.Local.root, s.strategy); err != nil {
		return req, err
	}
	req.Retry.Limit, req.Retry.Refresh = s.retry.limit, s.retry.refresh
	backoff := &req.Retry.Backoff
	backoff.Duration, backoff.MaxDuration, backoff.Factor = s.retry.duration, s.retry.maxDuration, s.retry.factor
	return req, nil
}

// fillSync adds to a request what flags say in a form of their own.
func fillSync(req *apimodel.SyncRequest, infos []string, local, root, strategy string) error {
	var list []apimodel.Info
	for _, text := range infos {
		name, value, found := strings.Cut(text, "=")
		if !found || name == "" {
			return usage.Errorf("--info %q is not name=value", text)
		}
		list = append(list, apimodel.Info{Name: name, Value: value})
	}
	req.Infos = list
	if strategy != "" {
		chosen, err := usage.Among("--strategy", strategy, "apply", "hook")
		if err != nil {
			return err
		}
		if chosen == "apply" {
			req.SkipHooks = true
		}
	}
	if local == "" {
		if root != "" {
			return usage.Errorf("--local-repo-root says what files of --local may belong to; give --local too")
		}
		return nil
	}
	manifests, err := files.ReadLocal(local, root)
	if err != nil {
		return err
	}
	req.Manifests = manifests
	return nil
}

// Selectors reads "group:kind:namespace/name".
func Selectors(given []string) ([]apimodel.ResourceSelector, error) {
	if len(given) == 0 {
		return nil, nil
	}
	var out []apimodel.ResourceSelector
	for _, s := range given {
		s, exclude := strings.CutPrefix(s, "!")
		parts := strings.SplitN(s, ":", 3)
		if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
			return nil, usage.Errorf("%q is no object; write group:kind:namespace/name, with an empty group for core kinds", s)
		}
		sel := apimodel.ResourceSelector{Group: parts[0], Kind: parts[1], Name: parts[2], Exclude: exclude}
		if ns, n, ok := strings.Cut(parts[2], "/"); ok {
			if ns == "" || n == "" {
				return nil, usage.Errorf("%q is no object; write group:kind:namespace/name, or group:kind:name", s)
			}
			sel.Namespace, sel.Name = ns, n
		}
		out = append(out, sel)
	}
	return out, nil
}
