package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/progress"
	"github.com/capstan-cd/capstan/cli/syncflags"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/cli/wait"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// await waits until an application is where it should be, and prints it.
func (a *app) await(ctx context.Context, api *client.Client, namespace, name string, w wait.Goal) error {
	x, err := a.watcher(api).Settled(ctx, namespace, name, w)
	if err != nil {
		return err
	}
	return a.printSeveral([]apimodel.Application{x}, appTable([]apimodel.Application{x}))
}

func (a *app) appWait() *cobra.Command {
	var w wait.Goal
	var selector string
	var resources []string
	var gone, hydrated bool
	c := &cobra.Command{
		Use: "wait [NAME...]", Short: "Wait until applications are synced, healthy and at rest, or in the states that are asked for",
		Example: "  capstan app wait shop\n  capstan app wait shop --health --timeout 10m\n  capstan app wait -l team=shop --suspended --health\n  capstan app wait shop --resource apps:Deployment:shop/web --health",
		RunE: func(cmd *cobra.Command, names []string) error {
			if hydrated {
				return usage.Errorf("--hydrated: Capstan does not write to repositories, so there is nothing to wait for")
			}
			selected, err := syncflags.Selectors(resources)
			if err != nil {
				return err
			}
			w.Resources = selected
			if slices.ContainsFunc(w.Resources, func(r apimodel.ResourceSelector) bool { return r.Exclude }) {
				return usage.Errorf("--resource of wait names objects to wait for; ! is not supported here")
			}
			if gone && (!w.Everything() || len(w.Resources) > 0) {
				return usage.Errorf("--delete does not go together with other states")
			}
			api, names, err := a.several(cmd, names, selector)
			if err != nil {
				return err
			}
			return a.awaitAll(cmd.Context(), api, names, w, gone)
		},
	}
	f := c.Flags()
	w.AddFlags(f)
	f.StringVarP(&selector, "selector", "l", "", "all applications that match this label selector")
	f.BoolVar(&w.Suspended, "suspended", false, "wait for Suspended")
	f.BoolVar(&w.Degraded, "degraded", false, "wait for Degraded")
	f.BoolVar(&hydrated, "hydrated", false, "not here: Capstan does not write to repositories")
	_ = f.MarkHidden("hydrated") // it exists: the line above declares it
	f.BoolVar(&gone, "delete", false, "wait until they no longer exist")
	f.StringSliceVar(&resources, "resource", nil, "of this object instead of the application: group:kind:namespace/name or group:kind:name")
	return c
}

// awaitAll waits for several applications, one after the other; earlier ones
// are not checked again.
func (a *app) awaitAll(ctx context.Context, api *client.Client, names []string, w wait.Goal, gone bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.Timeout, exit.ErrTimeout)
	defer cancel()
	var all []apimodel.Application
	shower := a.shower(api)
	for _, n := range names {
		namespace, name := client.SplitName(n)
		if gone {
			if err := a.watcher(api).Gone(ctx, namespace, name, w); err != nil {
				return err
			}
			continue
		}
		x, err := shower.Settled(ctx, namespace, name, w)
		if err != nil {
			return err
		}
		all = append(all, x)
	}
	if gone {
		return nil
	}
	return a.printSeveral(all, appTable(all))
}

func (a *app) watcher(api *client.Client) wait.Watcher { return wait.Watcher{API: api, Note: a.Note} }

// shower is a watcher that also shows how applications change.
func (a *app) shower(api *client.Client) wait.Watcher {
	return wait.Watcher{API: api, Note: a.Note, See: progress.To(a.Err, api).See}
}
