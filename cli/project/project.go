// Package project has the commands about projects: their lists of repositories,
// destinations, kinds and accounts, their roles, and the projects themselves.
// Each change reads the project, changes its spec and writes it back at the
// version that was read. Package cli puts the commands under their noun.
package project

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// Commands makes commands that write with a printer and call a hub.
type Commands struct {
	Printer *output.Printer
	Connect func() (*client.Client, error)
	Confirm func(yes bool, question string) error
}

// Noun is `project` with its verbs and further ones.
func (c Commands) Noun(more ...*cobra.Command) *cobra.Command {
	n := &cobra.Command{
		Use: "project", Short: "Projects: list, show, create, edit, delete, and what they permit", Aliases: []string{"proj", "projects"}, Args: usage.Verb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	n.AddCommand(c.list(), c.get(), c.create(), c.set(), c.edit(), c.remove())
	n.AddCommand(c.lists()...)
	n.AddCommand(c.kinds()...)
	n.AddCommand(c.integrity())
	n.AddCommand(more...)
	return n
}

// Role is `project role` with its verbs and further ones.
func (c Commands) Role(more ...*cobra.Command) *cobra.Command {
	n := &cobra.Command{
		Use: "role", Short: "Roles of a project: policies, groups and tokens", Aliases: []string{"roles"}, Args: usage.Verb,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	n.AddCommand(c.roles()...)
	n.AddCommand(more...)
	return n
}

func (c Commands) list() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List projects", Args: usage.Exactly(), Example: "  capstan project list\n  capstan project list -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.Connect()
			if err != nil {
				return err
			}
			l, raw, err := client.Call[struct {
				Items []apimodel.AppProject `json:"items"`
			}](api.ListProjects(cmd.Context()))
			if err != nil {
				return err
			}
			return c.Printer.Print(raw, table(l.Items...))
		},
	}
}

func table(all ...apimodel.AppProject) output.Table {
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

func (c Commands) remove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a project without applications", Args: usage.Exactly("the name of the project"),
		Example: "  capstan project delete shop\n  capstan project delete shop --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Connect()
			if err != nil {
				return err
			}
			if err := c.Confirm(yes, "Delete project "+args[0]+"?"); err != nil {
				return err
			}
			_, err = client.Read(api.DeleteProject(cmd.Context(), args[0]))
			return err
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

// specFlags are the fields of a project that flags set.
type specFlags struct {
	description                     string
	sources, destinations, sourceNS []string
	accounts                        []string
	allowCluster, denyCluster       []string
	allowNamespaced, denyNamespaced []string
	orphaned, orphanedWarn, scoped  bool
}

func (s *specFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.description, "description", "", "what it is for")
	f.StringArrayVarP(&s.sources, "source", "s", nil, "repository that its applications may use; * stands for any run of characters")
	f.StringArrayVarP(&s.destinations, "destination", "d", nil, "CLUSTER,NAMESPACE that its applications may go to; the cluster by name or by the URL of its server")
	f.StringSliceVar(&s.sourceNS, "source-namespaces", nil, "namespaces, besides argocd, whose applications may use it; globs or /regular expressions/")
	f.StringArrayVar(&s.accounts, "dest-service-accounts", nil, "SERVER,NAMESPACE,ACCOUNT: the service account that applications act as at a destination")
	f.StringArrayVar(&s.allowCluster, "allow-cluster-resource", nil, "GROUP/KIND of cluster-scoped objects that are permitted")
	f.StringArrayVar(&s.denyCluster, "deny-cluster-resource", nil, "GROUP/KIND of cluster-scoped objects that are denied")
	f.StringArrayVar(&s.allowNamespaced, "allow-namespaced-resource", nil, "GROUP/KIND of namespaced objects that are permitted, and no others")
	f.StringArrayVar(&s.denyNamespaced, "deny-namespaced-resource", nil, "GROUP/KIND of namespaced objects that are denied")
	f.BoolVar(&s.orphaned, "orphaned-resources", false, "look for orphaned objects in the namespaces of its applications")
	f.BoolVar(&s.orphanedWarn, "orphaned-resources-warn", false, "make a condition of orphaned objects")
	f.BoolVar(&s.scoped, "permit-only-project-scoped-clusters", false, "permit only clusters that belong to the project")
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if long, ok := map[string]string{"src": "source", "dest": "destination"}[name]; ok { // as Argo CD calls them
			name = long
		}
		return pflag.NormalizedName(name)
	})
}

// into writes the flags that were given.
func (s *specFlags) into(spec map[string]any, given *pflag.FlagSet) error {
	destinations, err := parseAll(s.destinations, parseDestination)
	if err != nil {
		return err
	}
	accounts, err := parseAll(s.accounts, parseAccount)
	if err != nil {
		return err
	}
	for flag, f := range map[string]struct {
		field string
		value any
	}{
		"description": {"description", s.description}, "source": {"sourceRepos", s.sources}, "destination": {"destinations", destinations},
		"source-namespaces": {"sourceNamespaces", s.sourceNS}, "dest-service-accounts": {"destinationServiceAccounts", accounts},
		"allow-cluster-resource":              {"clusterResourceWhitelist", parseKinds(s.allowCluster)},
		"deny-cluster-resource":               {"clusterResourceBlacklist", parseKinds(s.denyCluster)},
		"allow-namespaced-resource":           {"namespaceResourceWhitelist", parseKinds(s.allowNamespaced)},
		"deny-namespaced-resource":            {"namespaceResourceBlacklist", parseKinds(s.denyNamespaced)},
		"permit-only-project-scoped-clusters": {"permitOnlyProjectScopedClusters", s.scoped},
	} {
		if given.Changed(flag) {
			spec[f.field] = f.value
		}
	}
	if !given.Changed("orphaned-resources") && !given.Changed("orphaned-resources-warn") {
		return nil
	}
	if given.Changed("orphaned-resources") && !s.orphaned {
		delete(spec, "orphanedResources")
		return nil
	}
	orphans, _ := spec["orphanedResources"].(map[string]any)
	if orphans == nil {
		orphans = map[string]any{}
	}
	if given.Changed("orphaned-resources-warn") {
		orphans["warn"] = s.orphanedWarn
	}
	spec["orphanedResources"] = orphans
	return nil
}

func parseAll(texts []string, parse func(string) (map[string]any, error)) ([]any, error) {
	out := []any{}
	for _, text := range texts {
		one, err := parse(text)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func parseDestination(text string) (map[string]any, error) {
	cluster, namespace, ok := strings.Cut(text, ",")
	if !ok {
		return nil, usage.Errorf("%q is no destination; write CLUSTER,NAMESPACE", text)
	}
	return destination(cluster, namespace, false), nil
}

// destination names a cluster by its name, unless it looks like a server.
func destination(cluster, namespace string, name bool) map[string]any {
	key := "name"
	if !name && strings.Contains(cluster, "://") {
		key = "server"
	}
	return map[string]any{key: cluster, "namespace": namespace}
}

func parseAccount(text string) (map[string]any, error) {
	parts := strings.Split(text, ",")
	if len(parts) != 3 {
		return nil, usage.Errorf("%q is no service account of a destination; write SERVER,NAMESPACE,ACCOUNT", text)
	}
	return map[string]any{"server": parts[0], "namespace": parts[1], "defaultServiceAccount": parts[2]}, nil
}

// parseKinds reads GROUP/KIND; a kind without group is of the core group.
func parseKinds(texts []string) []any {
	out := []any{}
	for _, text := range texts {
		group, kind, ok := strings.Cut(text, "/")
		if !ok {
			group, kind = "", text
		}
		out = append(out, map[string]any{"group": group, "kind": kind})
	}
	return out
}

func (c Commands) create() *cobra.Command {
	var s specFlags
	var upsert bool
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Make a project", Args: usage.Exactly("the name of the project"),
		Example: "  capstan project create shop --source 'https://git.example.com/shop/*' --destination 'production,shop-*'\n  capstan project create sandbox --source '*' --destination '*,*'",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Connect()
			if err != nil {
				return err
			}
			spec := map[string]any{}
			if err := s.into(spec, cmd.Flags()); err != nil {
				return err
			}
			p := apimodel.AppProject{ApiVersion: "argoproj.io/v1alpha1", Kind: "AppProject", Metadata: apimodel.Metadata{Name: args[0]}}
			if p.Spec, err = json.Marshal(spec); err != nil {
				return err
			}
			stored, raw, err := client.Call[apimodel.AppProject](api.CreateProject(cmd.Context(), p))
			var answer *client.AnswerError
			if upsert && errors.As(err, &answer) && answer.Status == http.StatusConflict {
				return c.change(cmd, args[0], func(old map[string]any) error { return s.into(old, cmd.Flags()) })
			}
			if err != nil {
				return err
			}
			c.Printer.Warn(stored.Warnings)
			return c.Printer.Print(raw, table(stored))
		},
	}
	s.add(cmd.Flags())
	cmd.Flags().BoolVar(&upsert, "upsert", false, "if there is a project of that name, set what the flags say")
	return cmd
}

func (c Commands) set() *cobra.Command {
	var s specFlags
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Replace fields of a project; what is not given stays", Args: usage.Exactly("the name of the project"),
		Example: "  capstan project set shop --description 'The shop' --source 'https://git.example.com/shop/*'\n  capstan project set shop --orphaned-resources --orphaned-resources-warn",
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().NFlag() == 0 {
				return usage.Errorf("nothing to set; name a field by its flag")
			}
			return c.change(cmd, args[0], func(spec map[string]any) error { return s.into(spec, cmd.Flags()) })
		},
	}
	s.add(cmd.Flags())
	return cmd
}

// read returns a project with the tag of its version and its spec. Fields that
// are not changed come back as they were.
func (c Commands) read(cmd *cobra.Command, api *client.Client, name string) (p apimodel.AppProject, spec map[string]any, tag string, err error) {
	res, err := api.GetProject(cmd.Context(), name)
	if err == nil {
		tag = res.Header.Get("ETag")
	}
	if p, _, err = client.Call[apimodel.AppProject](res, err); err != nil {
		return p, nil, "", err
	}
	d := json.NewDecoder(bytes.NewReader(p.Spec))
	d.UseNumber()
	if err := d.Decode(&spec); err != nil {
		return p, nil, "", fmt.Errorf("the spec of project %q cannot be read: %w", name, err)
	}
	if spec == nil {
		spec = map[string]any{}
	}
	return p, spec, tag, nil
}

// change reads a project, changes its spec and writes it back, unless it was
// changed in between.
func (c Commands) change(cmd *cobra.Command, name string, do func(spec map[string]any) error) error {
	api, err := c.Connect()
	if err != nil {
		return err
	}
	p, spec, tag, err := c.read(cmd, api, name)
	if err != nil {
		return err
	}
	if err := do(spec); err != nil {
		return err
	}
	if p.Spec, err = json.Marshal(spec); err != nil {
		return err
	}
	return c.put(cmd, api, p, tag)
}

func (c Commands) put(cmd *cobra.Command, api *client.Client, p apimodel.AppProject, tag string) error {
	stored, raw, err := c.store(cmd, api, p, tag)
	if err != nil {
		return err
	}
	return c.Printer.Print(raw, table(stored))
}

// store writes a project at the version that was read.
func (c Commands) store(cmd *cobra.Command, api *client.Client, p apimodel.AppProject, tag string) (apimodel.AppProject, []byte, error) {
	stored, raw, err := client.Call[apimodel.AppProject](api.UpdateProject(cmd.Context(), p.Metadata.Name, apimodel.UpdateProjectParams{IfMatch: tag}, p))
	if err == nil {
		c.Printer.Warn(stored.Warnings)
	}
	return stored, raw, err
}

func (c Commands) get() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show one project, with what it inherits and what belongs to it", Args: usage.Exactly("the name of the project"),
		Example: "  capstan project get shop\n  capstan project get shop -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Connect()
			if err != nil {
				return err
			}
			if c.Printer.Format != "table" && c.Printer.Format != "wide" {
				p, raw, err := client.Call[apimodel.AppProject](api.GetProject(cmd.Context(), args[0]))
				if err != nil {
					return err
				}
				return c.Printer.Print(raw, table(p))
			}
			d, _, err := client.Call[apimodel.DetailedProject](api.GetDetailedProject(cmd.Context(), args[0]))
			if err != nil {
				return err
			}
			return c.describe(d)
		},
	}
}

// shownSpec is what is shown of a project.
type shownSpec struct {
	Description  string   `json:"description"`
	SourceRepos  []string `json:"sourceRepos"`
	Destinations []struct {
		Server    string `json:"server"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"destinations"`
	Accounts []struct {
		Server    string `json:"server"`
		Namespace string `json:"namespace"`
		Account   string `json:"defaultServiceAccount"`
	} `json:"destinationServiceAccounts"`
	Scoped           bool        `json:"permitOnlyProjectScopedClusters"`
	SourceNamespaces []string    `json:"sourceNamespaces"`
	ClusterAllowed   []groupKind `json:"clusterResourceWhitelist"`
	ClusterDenied    []groupKind `json:"clusterResourceBlacklist"`
	NamespaceAllowed []groupKind `json:"namespaceResourceWhitelist"`
	NamespaceDenied  []groupKind `json:"namespaceResourceBlacklist"`
	Orphans          any         `json:"orphanedResources"`
	SyncWindows      []any       `json:"syncWindows"`
	Roles            []struct {
		Name string `json:"name"`
	} `json:"roles"`
}

// groupKind is a rule about kinds.
type groupKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

func shownKinds(rules []groupKind) []string {
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

// describe prints a project for people, line by line, with what it inherits.
func (c Commands) describe(d apimodel.DetailedProject) error {
	p := d.Project
	var spec shownSpec
	if err := json.Unmarshal(d.EffectiveSpec, &spec); err != nil {
		return fmt.Errorf("project %s: its spec cannot be read: %w", p.Metadata.Name, err)
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
	names := func(n int, name func(int) string) (out []string) {
		for i := range n {
			out = append(out, name(i))
		}
		return out
	}
	add("Name:", p.Metadata.Name)
	add("Description:", output.Dash(spec.Description))
	add("Inherits from:", names(len(d.GlobalProjects), func(i int) string { return d.GlobalProjects[i].Metadata.Name })...)
	if d.Problem != "" {
		add("Problem:", d.Problem)
	}
	add("Sources:", spec.SourceRepos...)
	add("Destinations:", names(len(spec.Destinations), func(i int) string {
		return output.Dash(cmp.Or(spec.Destinations[i].Name, spec.Destinations[i].Server)) + " " + output.Dash(spec.Destinations[i].Namespace)
	})...)
	add("Only its own clusters:", strconv.FormatBool(spec.Scoped))
	add("Service accounts:", names(len(spec.Accounts), func(i int) string {
		return spec.Accounts[i].Server + " " + output.Dash(spec.Accounts[i].Namespace) + " " + spec.Accounts[i].Account
	})...)
	add("Applications in namespaces:", spec.SourceNamespaces...)
	add("Cluster resources allowed:", shownKinds(spec.ClusterAllowed)...)
	add("Cluster resources denied:", shownKinds(spec.ClusterDenied)...)
	add("Namespaced resources allowed:", shownKinds(spec.NamespaceAllowed)...)
	add("Namespaced resources denied:", shownKinds(spec.NamespaceDenied)...)
	add("Roles:", names(len(spec.Roles), func(i int) string { return spec.Roles[i].Name })...)
	add("Sync windows:", strconv.Itoa(len(spec.SyncWindows)))
	add("Orphaned resources:", map[bool]string{true: "monitored", false: "not monitored"}[spec.Orphans != nil])
	add("Its repositories:", names(len(d.Repositories), func(i int) string { return d.Repositories[i].Url })...)
	add("Its clusters:", names(len(d.Clusters), func(i int) string { return d.Clusters[i].Name })...)
	return c.Printer.Tabulate(output.Table{Rows: rows})
}
