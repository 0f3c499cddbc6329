package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) projectCommand() *cobra.Command {
	get := a.named("get NAME", "Show one project", "the name of the project", "  capstan project get shop\n  capstan project get shop -o yaml",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			p, raw, err := client.Call[apimodel.AppProject](api.GetProject(cmd.Context(), name))
			if err != nil {
				return err
			}
			if a.Format == "table" || a.Format == "wide" {
				return a.describeProject(p)
			}
			return a.Print(raw, projectTable([]apimodel.AppProject{p}))
		})
	var yes bool
	remove := a.named("delete NAME", "Delete a project without applications", "the name of the project", "  capstan project delete shop\n  capstan project delete shop --yes",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			if err := a.confirm(yes, "Delete project "+name+"?"); err != nil {
				return err
			}
			_, err := client.Read(api.DeleteProject(cmd.Context(), name))
			return err
		})
	remove.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return noun("project", "Projects: list, show, create, delete", []string{"proj", "projects"}, a.projectList(), get, a.projectCreate(), remove, a.projectWindows())
}

// named makes a verb that is about one named thing.
func (a *app) named(use, short, what, example string, do func(cmd *cobra.Command, api *client.Client, name string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, Args: usage.Exactly(what), RunE: func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		return do(cmd, api, args[0])
	}}
}

// plain makes a verb without arguments.
func (a *app) plain(use, short, example string, do func(cmd *cobra.Command, api *client.Client) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, Args: usage.Exactly(), RunE: func(cmd *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		return do(cmd, api)
	}}
}

func (a *app) projectList() *cobra.Command {
	return a.plain("list", "List projects", "  capstan project list\n  capstan project list -o name", func(cmd *cobra.Command, api *client.Client) error {
		l, raw, err := client.Call[struct {
			Items []apimodel.AppProject `json:"items"`
		}](api.ListProjects(cmd.Context()))
		if err != nil {
			return err
		}
		return a.Print(raw, projectTable(l.Items))
	})
}

func projectTable(all []apimodel.AppProject) output.Table {
	t := output.Table{Head: []string{"NAME", "DESCRIPTION", "SOURCES", "DESTINATIONS"}}
	for _, p := range all {
		var spec struct {
			Description  string            `json:"description"`
			SourceRepos  []string          `json:"sourceRepos"`
			Destinations []json.RawMessage `json:"destinations"`
		}
		_ = json.Unmarshal(p.Spec, &spec)
		t.Rows = append(t.Rows, []string{p.Metadata.Name, output.Dash(spec.Description), output.Dash(strings.Join(spec.SourceRepos, ",")), strconv.Itoa(len(spec.Destinations))})
		t.Names = append(t.Names, "appproject/"+p.Metadata.Name)
	}
	return t
}

// describeProject prints a project for people, line by line.
func (a *app) describeProject(p apimodel.AppProject) error {
	var spec struct {
		Description  string   `json:"description"`
		SourceRepos  []string `json:"sourceRepos"`
		Destinations []struct {
			Server    string `json:"server"`
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"destinations"`
		SourceNamespaces   []string    `json:"sourceNamespaces"`
		ClusterAllowed     []groupKind `json:"clusterResourceWhitelist"`
		ClusterDenied      []groupKind `json:"clusterResourceBlacklist"`
		NamespaceAllowed   []groupKind `json:"namespaceResourceWhitelist"`
		NamespaceDenied    []groupKind `json:"namespaceResourceBlacklist"`
		OrphanedResources  any         `json:"orphanedResources"`
		SyncWindows, Roles []any
	}
	if err := json.Unmarshal(p.Spec, &spec); err != nil {
		return fmt.Errorf("project %s: its spec cannot be read: %w", p.Metadata.Name, err)
	}
	var destinations, roles []string
	for _, d := range spec.Destinations {
		destinations = append(destinations, output.Dash(cmp.Or(d.Name, d.Server))+" "+output.Dash(d.Namespace))
	}
	for _, r := range spec.Roles {
		if role, ok := r.(map[string]any); ok {
			roles = append(roles, fmt.Sprint(role["name"]))
		}
	}
	var rows [][]string
	add := func(what string, values ...string) {
		if len(values) == 0 {
			values = []string{"-"}
		}
		for i, v := range values {
			if i > 0 {
				what = ""
			}
			rows = append(rows, []string{what, v})
		}
	}
	add("Name:", p.Metadata.Name)
	add("Description:", output.Dash(spec.Description))
	add("Sources:", spec.SourceRepos...)
	add("Destinations:", destinations...)
	add("Applications in namespaces:", spec.SourceNamespaces...)
	add("Cluster resources allowed:", kinds(spec.ClusterAllowed)...)
	add("Cluster resources denied:", kinds(spec.ClusterDenied)...)
	add("Namespaced resources allowed:", kinds(spec.NamespaceAllowed)...)
	add("Namespaced resources denied:", kinds(spec.NamespaceDenied)...)
	add("Roles:", roles...)
	add("Sync windows:", strconv.Itoa(len(spec.SyncWindows)))
	add("Orphaned resources:", map[bool]string{true: "monitored", false: "not monitored"}[spec.OrphanedResources != nil])
	return a.Tabulate(output.Table{Rows: rows})
}

// groupKind is a rule about kinds.
type groupKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

func kinds(rules []groupKind) []string {
	var out []string
	for _, r := range rules {
		s := strings.TrimPrefix(r.Group+"/"+r.Kind, "/")
		if r.Name != "" {
			s += " " + r.Name
		}
		out = append(out, s)
	}
	return out
}

func (a *app) projectCreate() *cobra.Command {
	var description string
	var sources, destinations []string
	c := a.named("create NAME", "Make a project", "the name of the project",
		"  capstan project create shop --source 'https://git.example.com/shop/*' --destination 'production,shop-*'\n  capstan project create sandbox --source '*' --destination '*,*'",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			spec := map[string]any{"description": description, "sourceRepos": sources}
			var dests []map[string]string
			for _, d := range destinations {
				cluster, namespace, ok := strings.Cut(d, ",")
				if !ok {
					return usage.Errorf("%q is no destination; write CLUSTER,NAMESPACE", d)
				}
				key := "name"
				if strings.Contains(cluster, "://") {
					key = "server"
				}
				dests = append(dests, map[string]string{key: cluster, "namespace": namespace})
			}
			spec["destinations"] = dests
			raw, err := json.Marshal(spec)
			if err != nil {
				return err
			}
			p, out, err := client.Call[apimodel.AppProject](api.CreateProject(cmd.Context(), apimodel.AppProject{
				ApiVersion: "argoproj.io/v1alpha1", Kind: "AppProject", Metadata: apimodel.Metadata{Name: name}, Spec: raw,
			}))
			if err != nil {
				return err
			}
			a.Warn(p.Warnings)
			return a.Print(out, projectTable([]apimodel.AppProject{p}))
		})
	c.Flags().StringVar(&description, "description", "", "what it is for")
	c.Flags().StringArrayVar(&sources, "source", nil, "repository that its applications may use; * stands for any run of characters")
	c.Flags().StringArrayVar(&destinations, "destination", nil, "CLUSTER,NAMESPACE that its applications may go to")
	return c
}

func (a *app) tokenCommand() *cobra.Command {
	list := a.plain("list", "List your API tokens", "  capstan token list\n  capstan token list -o json", func(cmd *cobra.Command, api *client.Client) error {
		l, raw, err := client.Call[struct {
			Items []apimodel.Token `json:"items"`
		}](api.ListTokens(cmd.Context()))
		if err != nil {
			return err
		}
		t := output.Table{Head: []string{"ID", "NAME", "PREFIX", "CREATED", "USED"}}
		for _, x := range l.Items {
			t.Rows = append(t.Rows, []string{x.Id, x.Name, x.Prefix, output.Ago(x.CreatedAt), output.Ago(x.UsedAt)})
			t.Names = append(t.Names, "token/"+x.Id)
		}
		return a.Print(raw, t)
	})
	var life string
	create := a.named("create NAME", "Make an API token; it is shown once", "a name for the token", "  capstan token create ci\n  capstan token create ci --expires-in 720h",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			n, raw, err := client.Call[apimodel.NewToken](api.CreateToken(cmd.Context(), apimodel.CreateTokenJSONRequestBody{Name: name, ExpiresIn: life}))
			if err != nil {
				return err
			}
			if a.Format == "table" || a.Format == "wide" {
				_, err := fmt.Fprintln(a.Out, n.Token)
				return err
			}
			return a.Print(raw, output.Table{Names: []string{"token/" + n.Info.Id}})
		})
	create.Flags().StringVar(&life, "expires-in", "", "how long it can be used, such as 720h or 30d (default: 90 days, at most 366)")
	revoke := a.named("revoke ID", "End an API token", "the id of the token", "  capstan token list\n  capstan token revoke ID",
		func(cmd *cobra.Command, api *client.Client, id string) error {
			_, err := client.Read(api.DeleteToken(cmd.Context(), id))
			return err
		})
	return noun("token", "API tokens of your account", []string{"tokens"}, list, create, revoke)
}
