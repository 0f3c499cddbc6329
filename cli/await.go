package cli

import (
	"context"
	"slices"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/spf13/cobra"
)

// await waits until an application is where it should be, and prints it.
func (a *app) await(ctx context.Context, api *client.Client, namespace, name string, w waiting) error {
	x, err := a.watcher(api).settled(ctx, namespace, name, w)
	if err != nil {
		return err
	}
	return a.printSeveral([]apimodel.Application{x}, appTable([]apimodel.Application{x}))
}

func (a *app) appWait() *cobra.Command {
	var w waiting
	var selector string
	var resources []string
	var gone bool
	c := &cobra.Command{
		Use: "wait [NAME...]", Short: "Wait until applications are synced, healthy and at rest, or in the states that are asked for",
		Example: "  capstan app wait shop\n  capstan app wait shop --health --timeout 10m\n  capstan app wait -l team=shop --suspended --health\n  capstan app wait shop --resource apps:Deployment:shop/web --health",
		RunE: func(cmd *cobra.Command, names []string) error {
			selected, err := selectors(resources)
			if err != nil {
				return err
			}
			w.resources = selected
			if slices.ContainsFunc(w.resources, func(r apimodel.ResourceSelector) bool { return r.Exclude }) {
				return usageErrorf("--resource of wait names objects to wait for; ! is not supported here")
			}
			if gone && (!w.everything() || len(w.resources) > 0) {
				return usageErrorf("--delete does not go together with other states")
			}
			api, names, err := a.several(cmd, names, selector)
			if err != nil {
				return err
			}
			return a.awaitAll(cmd.Context(), api, names, w, gone)
		},
	}
	f := c.Flags()
	w.flags(f)
	f.StringVarP(&selector, "selector", "l", "", "all applications that match this label selector")
	f.BoolVar(&w.suspended, "suspended", false, "wait for Suspended")
	f.BoolVar(&w.degraded, "degraded", false, "wait for Degraded")
	f.BoolVar(&gone, "delete", false, "wait until they no longer exist")
	f.StringSliceVar(&resources, "resource", nil, "of this object instead of the application: group:kind:namespace/name or group:kind:name")
	return c
}

// awaitAll waits for several applications, one after the other; earlier ones
// are not checked again.
func (a *app) awaitAll(ctx context.Context, api *client.Client, names []string, w waiting, gone bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.timeout, errTimeout)
	defer cancel()
	var all []apimodel.Application
	for _, n := range names {
		namespace, name := appName(n)
		if gone {
			if err := a.watcher(api).awaitGone(ctx, namespace, name, w); err != nil {
				return err
			}
			continue
		}
		x, err := a.watcher(api).settled(ctx, namespace, name, w)
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

func (a *app) watcher(api *client.Client) watcher { return watcher{api: api, note: a.note} }
