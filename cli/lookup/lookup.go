// Package lookup has the commands that look into repositories and revisions:
// what a repository publishes, what could be deployed from it, and what is known
// of a revision. Package cli adds them to its own.
package lookup

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/repoflags"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

const maxPassword = 64 << 10

type commands struct{ *command.Env }

// Repository is the verbs of repo that look into one.
func Repository(env *command.Env) []*cobra.Command {
	c := commands{env}
	return []*cobra.Command{c.refs(), c.tags(), c.charts(), c.apps(), c.details(), c.validate()}
}

// A choice is the part of a repository that a verb is about.
type choice struct{ project, chart, revision string }

// in makes a verb that is about one repository, named by its URL or id.
func (c commands) in(use, short, example string, of *choice, do func(cmd *cobra.Command, api *client.Client, id string) error) *cobra.Command {
	verb := c.Named(use, short, "the URL or id of the repository", example, func(cmd *cobra.Command, api *client.Client, given string) error {
		id, err := find(cmd, api, given, of.project)
		if err != nil {
			return err
		}
		return do(cmd, api, id)
	})
	verb.Flags().StringVar(&of.project, "project", "", "the repository of this project; default: the one without a project")
	return verb
}

// find returns the id of the repository that a person means.
func find(cmd *cobra.Command, api *client.Client, given, project string) (string, error) {
	l, _, err := client.Call[struct {
		Items []apimodel.Repository `json:"items"`
	}](api.ListRepositories(cmd.Context()))
	if err != nil {
		return "", err
	}
	only := ""
	for _, r := range l.Items {
		same := strings.TrimSuffix(r.Url, ".git") == strings.TrimSuffix(given, ".git")
		switch {
		case r.Id == given, same && r.Project == project:
			return r.Id, nil
		case same && project == "" && only == "":
			only = r.Id
		}
	}
	if only != "" {
		return only, nil
	}
	return "", fault.With(fault.New(fault.Missing, "there is no repository %q", given), "", "see `capstan repo list`")
}

func (c commands) refs() *cobra.Command {
	var of choice
	verb := c.in("refs URL", "List the branches and tags of a repository", "  capstan repo refs https://git.example.com/team/repo.git\n  capstan repo refs https://charts.example.com --chart web", &of,
		func(cmd *cobra.Command, api *client.Client, id string) error {
			all, raw, err := client.Call[struct {
				Branches []apimodel.Ref `json:"branches"`
				Tags     []apimodel.Ref `json:"tags"`
			}](api.ListRefs(cmd.Context(), id, apimodel.ListRefsParams{Chart: of.chart}))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"NAME", "KIND", "COMMIT"}}
			for _, kind := range []struct {
				name string
				refs []apimodel.Ref
			}{{"branch", all.Branches}, {"tag", all.Tags}} {
				for _, r := range kind.refs {
					t.Rows, t.Names = append(t.Rows, []string{r.Name, kind.name, output.Dash(r.Commit)}), append(t.Names, r.Name)
				}
			}
			return c.Print(raw, t)
		})
	verb.Flags().StringVar(&of.chart, "chart", "", "versions of this chart, of a repository of charts")
	return verb
}

func (c commands) tags() *cobra.Command {
	var of choice
	verb := c.in("tags URL", "List the tags of an artifact or chart of an OCI registry", "  capstan repo tags oci://registry.example.com/team/app\n  capstan repo tags oci://registry.example.com/charts --chart web", &of,
		func(cmd *cobra.Command, api *client.Client, id string) error {
			all, raw, err := client.Call[struct {
				Tags []string `json:"tags"`
			}](api.ListOCITags(cmd.Context(), id, apimodel.ListOCITagsParams{Chart: of.chart}))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"TAG"}, Names: all.Tags}
			for _, tag := range all.Tags {
				t.Rows = append(t.Rows, []string{tag})
			}
			return c.Print(raw, t)
		})
	verb.Flags().StringVar(&of.chart, "chart", "", "a chart below the address of the registry")
	return verb
}

func (c commands) charts() *cobra.Command {
	var of choice
	return c.in("charts URL", "List the charts of a chart repository", "  capstan repo charts https://charts.example.com", &of, func(cmd *cobra.Command, api *client.Client, id string) error {
		all, raw, err := client.Call[struct {
			Items []apimodel.PublishedChart `json:"items"`
		}](api.ListHelmCharts(cmd.Context(), id))
		if err != nil {
			return err
		}
		t := output.Table{Head: []string{"NAME", "NEWEST", "VERSIONS"}}
		for _, one := range all.Items {
			newest := "-"
			if len(one.Versions) > 0 {
				newest = one.Versions[0]
			}
			t.Rows, t.Names = append(t.Rows, []string{one.Name, newest, strconv.Itoa(len(one.Versions))}), append(t.Names, one.Name)
		}
		return c.Print(raw, t)
	})
}

// pick adds the flags of a revision and a chart.
func (of *choice) pick(verb *cobra.Command) *cobra.Command {
	verb.Flags().StringVar(&of.revision, "revision", "", "a branch, tag, commit, version or range; default: the default branch or the newest version")
	verb.Flags().StringVar(&of.chart, "chart", "", "a chart of a repository of charts, or below the address of a registry")
	return verb
}

func (c commands) apps() *cobra.Command {
	var of choice
	return of.pick(c.in("apps URL", "List the directories and charts of a repository that can be deployed", "  capstan repo apps https://git.example.com/team/repo.git --revision main", &of,
		func(cmd *cobra.Command, api *client.Client, id string) error {
			all, raw, err := client.Call[struct {
				Items []apimodel.RepositoryApp `json:"items"`
			}](api.ListRepositoryApps(cmd.Context(), id, apimodel.ListRepositoryAppsParams{Revision: of.revision, Chart: of.chart}))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"PATH", "CHART", "TYPE"}}
			for _, one := range all.Items {
				t.Rows, t.Names = append(t.Rows, []string{one.Path, output.Dash(one.Chart), string(one.Type)}), append(t.Names, one.Path)
			}
			return c.Print(raw, t)
		}))
}

func (c commands) details() *cobra.Command {
	var of choice
	var path, plugin, application string
	verb := of.pick(c.in("details URL", "Show what a directory or chart is, and the parameters of its tool",
		"  capstan repo details https://git.example.com/team/repo.git --path apps/web\n  capstan repo details https://charts.example.com --chart web -o yaml", &of,
		func(cmd *cobra.Command, api *client.Client, id string) error {
			d, raw, err := client.Call[apimodel.AppDetails](api.GetAppDetails(cmd.Context(), id, apimodel.GetAppDetailsParams{
				Path: path, Revision: of.revision, Chart: of.chart, Plugin: plugin, Application: application,
			}))
			if err != nil {
				return err
			}
			return c.Print(raw, output.Table{Head: []string{"TYPE", "REVISION", "PARAMETERS"}, Names: []string{string(d.Type)}, Rows: [][]string{{string(d.Type), d.Commit, parameters(d)}}})
		}))
	verb.Flags().StringVar(&path, "path", "", "the directory; default: the chart or the root")
	verb.Flags().StringVar(&plugin, "plugin", "", "the plugin that renders it; default: the one that discovers it")
	verb.Flags().StringVar(&application, "application", "", "an application whose overrides in the repository count")
	return verb
}

// parameters are what can be set about a source, in one line.
func parameters(d apimodel.AppDetails) string {
	var out []string
	for _, p := range d.Helm.Parameters {
		out = append(out, p.Name+"="+p.Value)
	}
	for _, image := range d.Kustomize.Images {
		out = append(out, "image "+image)
	}
	for _, p := range d.Plugin.Parameters {
		out = append(out, p.Name)
	}
	const most = 200
	line := strings.Join(out, ", ")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return output.Dash(line)
}

func (c commands) validate() *cobra.Command {
	var flags repoflags.Flags
	var body apimodel.ValidateRepositoryJSONRequestBody
	var kind, username string
	var passwordIn bool
	verb := c.Named("validate URL", "Try to reach a repository with a credential, and store nothing", "the URL of the repository",
		"  capstan repo validate https://git.example.com/team/repo.git --username bot --password-stdin < token\n  capstan repo validate https://charts.example.com --type helm",
		func(cmd *cobra.Command, api *client.Client, url string) error {
			body.Url, body.Type = url, apimodel.RepositoryInputType(kind)
			if username != "" {
				body.Username = &username
			}
			if err := flags.Repository(&body); err != nil {
				return err
			}
			if passwordIn {
				text, err := io.ReadAll(io.LimitReader(c.In, maxPassword))
				if err != nil {
					return usage.Errorf("the password cannot be read: %w", err)
				}
				password := strings.TrimRight(string(text), "\r\n")
				body.Password = &password
			}
			v, raw, err := client.Call[apimodel.RepositoryValidation](api.ValidateRepository(cmd.Context(), body))
			if err != nil {
				return err
			}
			c.Warn(v.Warnings)
			err = c.Print(raw, output.Table{
				Head: []string{"URL", "STATUS", "MESSAGE"}, Names: []string{url}, Rows: [][]string{{url, string(v.Connection.Status), output.Dash(v.Connection.Message)}},
			})
			if err == nil && v.Connection.Status == apimodel.ConnectionStatusFailed {
				err = fault.New(fault.Invalid, "the repository %s cannot be reached", url)
			}
			return err
		})
	f := verb.Flags()
	f.StringVarP(&username, "username", "u", "", "user name; any for most tokens")
	f.BoolVar(&passwordIn, "password-stdin", false, "read the password or token from standard input")
	f.StringVar(&body.Project, "project", "", "as a repository of this project")
	f.StringVar(&kind, "type", "", "git, helm or oci; default: git")
	f.BoolVar(&body.EnableOCI, "enable-oci", false, "charts come from an OCI registry; with --type helm")
	f.BoolVar(&body.InsecureOCIForceHttp, "insecure-oci-force-http", false, "contact the registry without TLS")
	f.BoolVar(&body.Insecure, "insecure", false, "do not verify the server: neither its certificate nor its SSH host key")
	flags.Bind(verb, true)
	return verb
}

// Revision is app revision.
func Revision(env *command.Env) *cobra.Command {
	c := commands{env}
	var position int
	verb := &cobra.Command{
		Use: "revision NAME REVISION", Short: "Show what is known of a revision that an application has rendered or applied", Args: usage.Exactly("the name of an application", "a revision of its status or history"),
		Example: "  capstan app revision shop 5f0c1b9a1f…\n  capstan app revision shop 1.2.0 --source-position 2 -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Client()
			if err != nil {
				return err
			}
			namespace, name := client.SplitName(args[0])
			r, raw, err := client.Call[json.RawMessage](api.GetRevision(cmd.Context(), namespace, name, args[1], apimodel.GetRevisionParams{SourcePosition: position}))
			if err != nil {
				return err
			}
			var shown apimodel.Revision
			if err := json.Unmarshal(r, &shown); err != nil {
				return fmt.Errorf("read the answer: %w", err)
			}
			return c.Print(raw, revisionTable(shown))
		},
	}
	verb.Flags().IntVar(&position, "source-position", 0, "the revision of this source alone; 1 is the first")
	return verb
}

func revisionTable(r apimodel.Revision) output.Table {
	t := output.Table{Head: []string{"FIELD", "VALUE"}, Names: []string{r.Revision}}
	add := func(field, value string) {
		if value != "" {
			t.Rows = append(t.Rows, []string{field, value})
		}
	}
	add("Revision", r.Revision)
	add("Author", r.Author)
	if !r.Date.IsZero() {
		add("Date", r.Date.UTC().Format(time.RFC3339))
	}
	add("Message", strings.TrimSpace(r.Message))
	add("Tags", strings.Join(r.Tags, ", "))
	add("Signature", r.Signature)
	add("Chart", strings.TrimSpace(r.Chart.Name+" "+r.Chart.Version))
	add("App version", r.Chart.AppVersion)
	add("Description", r.Chart.Description)
	add("Home", r.Chart.Home)
	add("Maintainers", strings.Join(r.Chart.Maintainers, ", "))
	add("Title", r.Artifact.Title)
	add("Artifact version", r.Artifact.Version)
	add("Source", r.Artifact.Source)
	add("Created", r.Artifact.Created)
	return t
}
