package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/cli/wait"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) appDelete() *cobra.Command {
	var yes, stay, dryRun bool
	var cascade, propagation, selector, query string
	w := wait.Goal{}
	c := &cobra.Command{
		Use: "delete [NAME...]", Short: "Delete applications, with their objects if cascade",
		Example: "  capstan app delete shop --yes\n  capstan app delete shop --cascade=false --yes\n  capstan app delete -l team=shop --propagation-policy background --yes\n  capstan app delete --query 'project:old' --dry-run",
		RunE: func(cmd *cobra.Command, names []string) error {
			if query != "" {
				return a.byQuery(cmd, apimodel.BulkActionDelete, query, names)
			}
			params, err := deleteParams(cascade, propagation)
			if err != nil {
				return err
			}
			if (len(names) == 0) == (selector == "") {
				return usage.Errorf("give the names of applications, --selector, or --query")
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			if selector != "" {
				if names, err = a.selected(cmd, api, selector); err != nil {
					return err
				}
			}
			if dryRun {
				return a.bulk(cmd.Context(), api, bulkOrder{request: apimodel.BulkRequest{Action: apimodel.BulkActionDelete, Names: names, DryRun: true, Cascade: params.Cascade, Propagation: params.Propagation}})
			}
			return a.deleteAll(cmd, api, names, params, yes, stay, w)
		},
	}
	c.Flags().StringVar(&cascade, "cascade", "", "true: its objects go too; false: they stay (default: as its finalizer says)")
	c.Flags().StringVarP(&propagation, "propagation-policy", "p", "", "how what the objects own goes: foreground, background or orphan")
	c.Flags().StringVarP(&selector, "selector", "l", "", "delete all that match this label selector")
	addQuery(c.Flags(), &query)
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be deleted, and delete nothing")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&stay, "wait", true, "wait until they are gone")
	w.AddTimeout(c.Flags())
	return c
}

// selected returns the names of the applications that a label selector matches.
func (a *app) selected(cmd *cobra.Command, api *client.Client, selector string) ([]string, error) {
	all, err := listAll(cmd.Context(), api, apimodel.ListApplicationsParams{Labels: selector, View: apimodel.ListApplicationsParamsViewCompact})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, x := range all {
		names = append(names, client.QualifiedName(x.Metadata))
	}
	if len(names) == 0 {
		return nil, usage.Errorf("no application matches %q", selector)
	}
	return names, nil
}

// deleteAll begins all deletions, and then waits for them.
func (a *app) deleteAll(cmd *cobra.Command, api *client.Client, names []string, params apimodel.DeleteApplicationParams, yes, stay bool, w wait.Goal) error {
	question := "Delete application " + names[0] + "?"
	if len(names) > 1 {
		question = fmt.Sprintf("Delete these %d applications: %s?", len(names), strings.Join(names, ", "))
	}
	if err := a.confirm(yes, question); err != nil {
		return err
	}
	for _, n := range names {
		namespace, name := client.SplitName(n)
		if _, err := client.Read(api.DeleteApplication(cmd.Context(), namespace, name, params)); err != nil {
			return err
		}
	}
	if !stay {
		return nil
	}
	for _, n := range names {
		namespace, name := client.SplitName(n)
		if err := a.watcher(api).Gone(cmd.Context(), namespace, name, w); err != nil {
			return err
		}
	}
	return nil
}

// deleteParams reads what the flags say of the objects of an application.
func deleteParams(cascade, propagation string) (apimodel.DeleteApplicationParams, error) {
	var params apimodel.DeleteApplicationParams
	if cascade != "" {
		v, err := strconv.ParseBool(cascade)
		if err != nil {
			return params, usage.Errorf("--cascade is true or false, not %q", cascade)
		}
		params.Cascade = &v
	}
	if propagation != "" {
		p, err := usage.Among("--propagation-policy", propagation, "foreground", "background", "orphan")
		if err != nil {
			return params, err
		}
		params.Propagation = apimodel.Propagation(p)
	}
	return params, nil
}

func (a *app) appConfirm() *cobra.Command {
	var yes bool
	var reason string
	c := a.one("confirm-deletion NAME", "Approve what the operation in progress deletes", "  capstan app confirm-deletion shop\n  capstan app confirm-deletion shop --yes --reason 'ticket 42'",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			if err := a.confirm(yes, "Approve what the operation of "+name+" deletes?"); err != nil {
				return err
			}
			_, err := client.Read(api.ApproveOperation(cmd.Context(), namespace, name, apimodel.Reason{Reason: reason}))
			return err
		})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().StringVar(&reason, "reason", "", "recorded in the audit log")
	return c
}

func (a *app) appAbandon() *cobra.Command {
	var yes bool
	var reason string
	c := a.one("abandon NAME", "Forget an application whose cluster is gone, and list what it leaves behind", "  capstan app abandon shop\n  capstan app abandon shop --yes --reason 'cluster lost'",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			if err := a.confirm(yes, "Forget application "+name+" and leave its objects where they are?"); err != nil {
				return err
			}
			out, raw, err := client.Call[struct {
				LeftBehind []apimodel.ResourceSelector `json:"leftBehind"`
			}](api.AbandonApplication(cmd.Context(), namespace, name, apimodel.Reason{Reason: reason}))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"LEFT BEHIND", "NAMESPACE", "NAME"}}
			for _, o := range out.LeftBehind {
				t.Rows = append(t.Rows, []string{o.Kind, output.Dash(o.Namespace), o.Name})
				t.Names = append(t.Names, strings.ToLower(o.Kind)+"/"+o.Name)
			}
			return a.Print(raw, t)
		})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().StringVar(&reason, "reason", "", "recorded in the audit log")
	return c
}

func (a *app) appDeleteResource() *cobra.Command {
	var yes, force, orphan bool
	var group, version, kind, resourceNamespace, resource string
	c := a.one("delete-resource NAME", "Delete one live object of an application",
		"  capstan app delete-resource shop --kind Pod --resource-name web-1\n  capstan app delete-resource shop --group apps --kind Deployment --resource-name web --orphan",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			if kind == "" || resource == "" {
				return usage.Errorf("--kind and --resource-name say which object is meant")
			}
			tree, _, err := client.Call[apimodel.Tree](api.GetApplicationTree(cmd.Context(), namespace, name))
			if err != nil {
				return err
			}
			found, err := pickNode(tree, group, kind, resourceNamespace, resource)
			if err != nil {
				return err
			}
			if err := a.confirm(yes, "Delete "+kind+" "+resource+"?"); err != nil {
				return err
			}
			body := apimodel.DeleteResource{Group: found.Group, Version: cmp.Or(version, found.Version), Kind: found.Kind, Namespace: found.Namespace, Name: found.Name, Force: force}
			if orphan {
				body.Propagation = "orphan"
			}
			_, err = client.Read(api.DeleteLiveResource(cmd.Context(), namespace, name, body))
			return err
		})
	f := c.Flags()
	f.StringVar(&group, "group", "", "of the object; empty: any")
	f.StringVar(&version, "version", "", "of its API; empty: as it was seen")
	f.StringVar(&kind, "kind", "", "of the object")
	f.StringVar(&resourceNamespace, "resource-namespace", "", "of the object; empty: any")
	f.StringVar(&resource, "resource-name", "", "of the object")
	f.BoolVar(&force, "force", false, "give it no time to end")
	f.BoolVar(&orphan, "orphan", false, "leave what it owns")
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// pickNode finds the one object of a tree that is meant.
func pickNode(tree apimodel.Tree, group, kind, namespace, name string) (apimodel.Node, error) {
	var found []apimodel.Node
	for _, n := range tree.Nodes {
		if n.Kind == kind && n.Name == name && (group == "" || n.Group == group) && (namespace == "" || n.Namespace == namespace) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return apimodel.Node{}, usage.Errorf("the application has no %s %s", kind, name)
	case 1:
		return found[0], nil
	}
	return apimodel.Node{}, usage.Errorf("%d objects are called %s %s; add --group or --resource-namespace", len(found), kind, name)
}
