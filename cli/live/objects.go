package live

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// picked are the flags that name objects of an application.
type picked struct {
	group, kind, namespace, name string
	all                          bool
}

func (p *picked) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&p.group, "group", "", "group of the object; empty: any")
	f.StringVar(&p.kind, "kind", "", "kind of the object")
	f.StringVar(&p.name, "resource-name", "", "name of the object")
	f.StringVar(&p.namespace, "resource-namespace", "", "namespace of the object; empty: any")
	f.StringVar(&p.namespace, "namespace", "", "the same as --resource-namespace")
	_ = f.MarkHidden("namespace")
}

// nodes are the objects that the flags name: one, unless all may be.
func (p *picked) nodes(ctx context.Context, api *client.Client, namespace, app string) ([]apimodel.Node, error) {
	if p.kind == "" {
		return nil, usage.Errorf("--kind and --resource-name say which object is meant")
	}
	tree, _, err := client.Call[apimodel.Tree](api.GetApplicationTree(ctx, namespace, app))
	if err != nil {
		return nil, err
	}
	var out []apimodel.Node
	var names []string
	for _, n := range tree.Nodes {
		if strings.EqualFold(n.Kind, p.kind) && (p.group == "" || p.group == n.Group) && (p.name == "" || p.name == n.Name) && (p.namespace == "" || p.namespace == n.Namespace) {
			out = append(out, n)
			names = append(names, n.Kind+" "+strings.TrimPrefix(n.Namespace+"/"+n.Name, "/"))
		}
	}
	switch {
	case len(out) == 0:
		return nil, usage.Errorf("application %s has no %s %s; see `capstan app tree %s`", app, p.kind, p.name, app)
	case len(out) > 1 && !p.all:
		return nil, usage.Errorf("several objects fit: %s; name one with --group, --resource-namespace and --resource-name", strings.Join(names, ", "))
	}
	return out, nil
}

func (a commands) events() *cobra.Command {
	var p picked
	c := a.One("events NAME", "Show the Kubernetes events of an application's objects, newest first",
		"  capstan app events shop\n  capstan app events shop --kind Pod --resource-name web-5d4f",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			var params apimodel.GetApplicationEventsParams
			if p.kind != "" || p.name != "" {
				found, err := p.nodes(cmd.Context(), api, namespace, name)
				if err != nil {
					return err
				}
				n := found[0]
				params = apimodel.GetApplicationEventsParams{Group: n.Group, Kind: n.Kind, ResourceNamespace: n.Namespace, ResourceName: n.Name}
			}
			list, raw, err := client.Call[struct {
				Items []apimodel.KubernetesEvent `json:"items"`
			}](api.GetApplicationEvents(cmd.Context(), namespace, name, params))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"}}
			for _, e := range list.Items {
				object := e.Kind + " " + strings.TrimPrefix(e.Namespace+"/"+e.Name, "/")
				t.Rows = append(t.Rows, []string{output.Ago(e.LastSeen), e.Type, e.Reason, object, strconv.Itoa(e.Count), strings.Join(strings.Fields(e.Message), " ")})
				t.Names = append(t.Names, object)
			}
			return a.Print(raw, t)
		})
	p.flags(c)
	return c
}

func (a commands) getResource() *cobra.Command {
	var p picked
	c := a.One("get-resource NAME", "Show live objects of an application; values of Secrets are masked",
		"  capstan app get-resource shop --kind Deployment --resource-name web\n  capstan app get-resource shop --kind ConfigMap -o json",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			p.all = true
			found, err := p.nodes(cmd.Context(), api, namespace, name)
			if err != nil {
				return err
			}
			format := a.Format
			if format == "table" || format == "" {
				a.Format = "yaml"
			}
			defer func() { a.Format = format }()
			for i, n := range found {
				live, err := liveOf(cmd.Context(), api, namespace, name, n)
				if err != nil {
					return err
				}
				if i > 0 && a.Format == "yaml" {
					fmt.Fprintln(a.Out, "---")
				}
				if err := a.Print(live, output.Table{Names: []string{n.Kind + "/" + n.Name}}); err != nil {
					return err
				}
			}
			return nil
		})
	p.flags(c)
	return c
}

// liveOf reads a live object.
func liveOf(ctx context.Context, api *client.Client, namespace, app string, n apimodel.Node) (json.RawMessage, error) {
	answer, _, err := client.Call[struct {
		Live json.RawMessage `json:"live"`
	}](api.GetLiveResource(ctx, namespace, app, apimodel.GetLiveResourceParams{
		Group: n.Group, Version: n.Version, Kind: n.Kind, ResourceNamespace: n.Namespace, ResourceName: n.Name,
	}))
	return answer.Live, err
}

func (a commands) patchResource() *cobra.Command {
	var p picked
	var patch, kind string
	var dryRun, yes bool
	c := a.One("patch-resource NAME", "Change a live object of an application, after a dry run by its cluster",
		"  capstan app patch-resource shop --kind Deployment --resource-name web --patch '{\"spec\":{\"replicas\":3}}'\n"+
			"  capstan app patch-resource shop --kind ConfigMap --resource-name web --patch-type json --patch @change.json --dry-run",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			kind, err := usage.Among("--patch-type", shortType(kind), "merge", "strategic", "json")
			if err != nil {
				return err
			}
			body, err := patchText(patch)
			if err != nil {
				return err
			}
			found, err := p.nodes(cmd.Context(), api, namespace, name)
			if err != nil {
				return err
			}
			if p.all && len(found) > 1 {
				if err := a.Confirm(yes || dryRun, fmt.Sprintf("Change %d objects?", len(found))); err != nil {
					return err
				}
			}
			for _, n := range found {
				_, err := client.Read(api.PatchLiveResource(cmd.Context(), namespace, name, apimodel.PatchResource{
					Group: n.Group, Version: n.Version, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name,
					Patch: body, PatchType: apimodel.PatchResourcePatchType(kind), DryRun: dryRun,
				}))
				if err != nil {
					return err
				}
				done := "changed"
				if dryRun {
					done = "would be changed (dry run)"
				}
				a.Note("%s %s: %s", n.Kind, n.Name, done)
			}
			return nil
		})
	p.flags(c)
	c.Flags().StringVar(&patch, "patch", "", "the patch as JSON, or @FILE")
	c.Flags().StringVar(&kind, "patch-type", "merge", "merge, strategic or json")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "only check it")
	c.Flags().BoolVar(&p.all, "all", false, "change all objects that fit")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// shortType takes the media types of Argo CD, too.
func shortType(kind string) string {
	switch kind {
	case "application/merge-patch+json":
		return "merge"
	case "application/strategic-merge-patch+json":
		return "strategic"
	case "application/json-patch+json":
		return "json"
	}
	return kind
}

// patchText is the patch, or what a file has.
func patchText(patch string) (string, error) {
	if file, is := strings.CutPrefix(patch, "@"); is {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", usage.Errorf("--patch: %v", err)
		}
		patch = string(text)
	}
	if !json.Valid([]byte(patch)) {
		return "", usage.Errorf("--patch is no JSON")
	}
	return patch, nil
}
