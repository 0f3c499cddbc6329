// Package actions has the commands of actions on live objects, and those that
// try out customisations of kinds in files, without a hub. Package cli adds them
// to its own.
package actions

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

type commands struct{ *command.Env }

// App is the command app actions.
func App(env *command.Env) *cobra.Command { return commands{env}.appActions() }

// picked are the flags that pick objects of an application.
type picked struct {
	group, kind, namespace, name string
	all                          bool
}

func (p *picked) flags(c *cobra.Command) {
	c.Flags().StringVar(&p.group, "group", "", "group of the object")
	c.Flags().StringVar(&p.kind, "kind", "", "kind of the object")
	c.Flags().StringVar(&p.namespace, "namespace", "", "namespace of the object")
	c.Flags().StringVar(&p.name, "resource-name", "", "name of the object")
	c.Flags().BoolVar(&p.all, "all", false, "all objects that the other flags leave, not just one")
}

func (p *picked) wants(n apimodel.Node) bool {
	return (p.group == "" || p.group == n.Group) && (p.kind == "" || strings.EqualFold(p.kind, n.Kind)) &&
		(p.namespace == "" || p.namespace == n.Namespace) && (p.name == "" || p.name == n.Name)
}

// nodes returns the live objects that the flags pick: one, unless all may be.
func (p *picked) nodes(ctx context.Context, api *client.Client, namespace, name string) ([]apimodel.Node, error) {
	tree, _, err := client.Call[apimodel.Tree](api.GetApplicationTree(ctx, namespace, name))
	if err != nil {
		return nil, err
	}
	var out []apimodel.Node
	for _, n := range tree.Nodes {
		if p.wants(n) {
			out = append(out, n)
		}
	}
	switch {
	case len(out) == 0:
		return nil, fault.With(fault.New(fault.Missing, "application %q has no such object", name), "", "see `capstan app get "+name+" -o wide`")
	case len(out) > 1 && !p.all:
		names := make([]string, 0, len(out))
		for _, n := range out {
			names = append(names, nodeName(n))
		}
		return nil, usage.Errorf("several objects fit: %s; name one by --group, --kind, --namespace and --resource-name, or give --all", strings.Join(names, ", "))
	}
	return out, nil
}

func nodeName(n apimodel.Node) string {
	if ns := n.Namespace; ns != "" {
		return n.Kind + " " + ns + "/" + n.Name
	}
	return n.Kind + " " + n.Name
}

func (a commands) appActions() *cobra.Command {
	return command.Noun("actions", "Actions on live objects: list, run", []string{"action"}, a.actionsList(), a.actionsRun())
}

func (a commands) actionsList() *cobra.Command {
	var p picked
	c := a.One("list NAME", "List what can be done with live objects of an application",
		"  capstan app actions list shop --kind Deployment\n  capstan app actions list shop --kind Rollout --resource-name web -o json",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			p.all = true
			nodes, err := p.nodes(cmd.Context(), api, namespace, name)
			if err != nil {
				return err
			}
			return a.listActions(cmd, api, namespace, name, nodes)
		})
	p.flags(c)
	_ = c.Flags().MarkHidden("all")
	return c
}

// objectActions are the actions of one object, as they are printed.
type objectActions struct {
	Group     string                    `json:"group,omitempty"`
	Version   string                    `json:"version"`
	Kind      string                    `json:"kind"`
	Namespace string                    `json:"namespace,omitempty"`
	Name      string                    `json:"name"`
	Actions   []apimodel.ResourceAction `json:"actions"`
}

func (a commands) listActions(cmd *cobra.Command, api *client.Client, namespace, name string, nodes []apimodel.Node) error {
	t := output.Table{Head: []string{"KIND", "NAMESPACE", "NAME", "ACTION", "DISABLED", "PERMITTED", "PARAMETERS"}}
	var out struct {
		Items []objectActions `json:"items"`
	}
	for _, n := range nodes {
		l, _, err := client.Call[struct {
			Items []apimodel.ResourceAction `json:"items"`
		}](api.ListResourceActions(cmd.Context(), namespace, name, apimodel.ListResourceActionsParams{
			Group: n.Group, Version: n.Version, Kind: n.Kind, ResourceNamespace: n.Namespace, ResourceName: n.Name,
		}))
		if err != nil {
			return err
		}
		if len(l.Items) == 0 {
			continue
		}
		out.Items = append(out.Items, objectActions{n.Group, n.Version, n.Kind, n.Namespace, n.Name, l.Items})
		for _, x := range l.Items {
			var params []string
			for _, p := range x.Params {
				params = append(params, p.Name)
			}
			t.Rows = append(t.Rows, []string{n.Kind, output.Dash(n.Namespace), n.Name, x.Name, yesNo(x.Disabled), yesNo(x.Permitted), output.Dash(strings.Join(params, ","))})
			t.Names = append(t.Names, x.Name)
		}
	}
	return a.PrintValue(out, t)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func (a commands) actionsRun() *cobra.Command {
	var p picked
	var params []string
	c := &cobra.Command{
		Use: "run NAME ACTION", Short: "Run an action on a live object of an application",
		Example: "  capstan app actions run shop restart --kind Deployment --resource-name web\n" +
			"  capstan app actions run shop scale --kind Deployment --resource-name web --param replicas=3\n  capstan app actions run shop restart --kind Deployment --all",
		Args: usage.Exactly("the name of an application", "the name of an action"),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := parameters(params)
			if err != nil {
				return err
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			namespace, name := client.SplitName(args[0])
			nodes, err := p.nodes(cmd.Context(), api, namespace, name)
			if err != nil {
				return err
			}
			return a.runActions(cmd, api, namespace, name, args[1], given, nodes)
		},
	}
	p.flags(c)
	c.Flags().StringArrayVar(&params, "param", nil, "parameter of the action as NAME=VALUE; may be given several times")
	return c
}

type actionParameter = struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func parameters(given []string) ([]actionParameter, error) {
	var out []actionParameter
	for _, p := range given {
		name, value, found := strings.Cut(p, "=")
		if !found || name == "" {
			return nil, usage.Errorf("parameter %q is not like NAME=VALUE", p)
		}
		out = append(out, actionParameter{Name: name, Value: value})
	}
	return out, nil
}

func (a commands) runActions(cmd *cobra.Command, api *client.Client, namespace, name, action string, params []actionParameter, nodes []apimodel.Node) error {
	t := output.Table{Head: []string{"OBJECT", "WRITTEN"}}
	var out struct {
		Changes []apimodel.ResourceActionChange `json:"changes"`
	}
	for _, n := range nodes {
		body := apimodel.RunResourceActionJSONRequestBody{
			Group: n.Group, Version: n.Version, Kind: n.Kind, ResourceNamespace: n.Namespace, ResourceName: n.Name, Action: action,
		}
		if len(params) > 0 {
			body.ResourceActionParameters = params
		}
		r, _, err := client.Call[apimodel.ResourceActionResult](api.RunResourceAction(cmd.Context(), namespace, name, body))
		if err != nil {
			return err
		}
		out.Changes = append(out.Changes, r.Changes...)
		for _, c := range r.Changes {
			verb := "changed"
			if c.Created {
				verb = "created"
			}
			t.Rows = append(t.Rows, []string{nodeName(n), verb + " " + nodeName(apimodel.Node{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name})})
			t.Names = append(t.Names, strings.ToLower(c.Kind)+"/"+c.Name)
		}
	}
	return a.PrintValue(out, t)
}
