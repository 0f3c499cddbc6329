package cli

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/argocd"
	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/lookup"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/repoflags"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

func (a *app) repositoryCommand() *cobra.Command {
	c := noun("repo", "Repositories: add, list, look into, remove", []string{"repository", "repositories"}, a.repoAdd(), a.repoList(), argocd.RepositoryGet(a.env()), a.repoRemove())
	c.AddCommand(lookup.Repository(a.env())...)
	return c
}

func (a *app) repoAdd() *cobra.Command {
	var username, project, name, kind string
	var passwordIn, insecure, enableOCI, plainHTTP bool
	var flags repoflags.Flags
	c := &cobra.Command{
		Use: "add URL", Short: "Add a repository, or change its credential", Args: usage.Exactly("the URL of the repository"),
		Example: "  capstan repo add https://git.example.com/team/manifests.git\n  capstan repo add https://git.example.com/team/manifests.git --username bot --password-stdin < token\n  capstan repo add git@git.example.com:team/manifests.git --ssh-private-key-path ~/.ssh/id_ed25519\n  capstan repo add https://git.example.com/team/manifests.git --project shop --username bot --password-stdin < token\n  capstan repo add https://github.com/team/manifests --github-app-id 1 --github-app-private-key-path app.pem\n  capstan repo add https://charts.example.com --type helm --name stable\n  capstan repo add registry.example.com/charts --type helm --enable-oci --username bot --password-stdin < token\n  capstan repo add oci://registry.example.com/team/app --type oci",
		RunE: func(cmd *cobra.Command, args []string) error {
			body := apimodel.PutRepositoryJSONRequestBody{Url: args[0], Username: ref(username), Project: project, Name: name, Insecure: insecure, EnableOCI: enableOCI, InsecureOCIForceHttp: plainHTTP}
			body.Type = apimodel.RepositoryInputType(kind)
			err := flags.Repository(&body)
			if err == nil && (passwordIn || username != "" && !flags.Given()) {
				body.Password, err = a.repoPassword(passwordIn)
			}
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			r, raw, err := client.Call[apimodel.Repository](api.PutRepository(cmd.Context(), body))
			if err != nil {
				return err
			}
			a.Warn(r.Warnings)
			return a.Print(raw, repoTable([]apimodel.Repository{r}))
		},
	}
	c.Flags().StringVarP(&username, "username", "u", "", "user name; any for most tokens")
	c.Flags().BoolVar(&passwordIn, "password-stdin", false, "read the password or token from standard input")
	c.Flags().StringVar(&project, "project", "", "only for applications of this project, which prefer it to one without a project")
	c.Flags().StringVar(&name, "name", "", "a name to show; charts name a chart repository by it, as @NAME")
	c.Flags().StringVar(&kind, "type", "", "git, helm or oci; default: git")
	c.Flags().BoolVar(&enableOCI, "enable-oci", false, "charts come from an OCI registry; with --type helm")
	c.Flags().BoolVar(&plainHTTP, "insecure-oci-force-http", false, "contact the registry without TLS")
	c.Flags().BoolVar(&insecure, "insecure", false, "do not verify the server: neither its certificate nor its SSH host key")
	flags.Bind(c, true)
	return c
}

// repoPassword reads the password or token of a repository.
func (a *app) repoPassword(fromInput bool) (*string, error) {
	prompt := "Password or token: "
	if fromInput {
		prompt = ""
	}
	secret, err := a.secret(prompt)
	return &secret, err
}

func (a *app) repoList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List repositories and how their last fetch went", Aliases: []string{"ls"}, Args: usage.Exactly(),
		Example: "  capstan repo list\n  capstan repo list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, raw, err := a.repos(cmd)
			if err != nil {
				return err
			}
			return a.Print(raw, repoTable(all))
		},
	}
}

func (a *app) repos(cmd *cobra.Command) ([]apimodel.Repository, []byte, error) {
	api, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	l, raw, err := client.Call[struct {
		Items []apimodel.Repository `json:"items"`
	}](api.ListRepositories(cmd.Context()))
	return l.Items, raw, err
}

func repoTable(all []apimodel.Repository) output.Table {
	t := output.Table{Head: []string{"URL", "PROJECT", "STATUS", "FETCHED", "CREDENTIAL", "MESSAGE", "ID"}, Wide: 1}
	for _, r := range all {
		credential := "none"
		if r.HasCredential {
			credential = cmp.Or(r.Username, "stored")
		}
		t.Rows = append(t.Rows, []string{
			r.Url, output.Dash(r.Project), string(r.Connection.Status), output.Ago(r.Connection.FetchedAt), credential, output.Dash(r.Connection.Message), r.Id,
		})
		t.Names = append(t.Names, "repository/"+r.Id)
	}
	return t
}

func (a *app) repoRemove() *cobra.Command {
	var yes bool
	var project string
	c := &cobra.Command{
		Use: "rm URL", Short: "Forget a repository and its credential", Aliases: []string{"remove"}, Args: usage.Exactly("the URL or id of the repository"),
		Example: "  capstan repo rm https://git.example.com/team/manifests.git\n  capstan repo rm https://git.example.com/team/manifests.git --project shop --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, _, err := a.repos(cmd)
			if err != nil {
				return err
			}
			r, err := pickRepo(all, args[0], project, cmd.Flags().Changed("project"))
			if err != nil {
				return err
			}
			whose := ""
			if p := r.Project; p != "" {
				whose = " of project " + p
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			if err := a.announce(yes, func() (*http.Response, error) { return api.GetRepositoryDeletion(cmd.Context(), r.Id) }); err != nil {
				return err
			}
			if err := a.confirm(yes, "Forget repository "+r.Url+whose+"?"); err != nil {
				return err
			}
			_, err = client.Read(api.DeleteRepository(cmd.Context(), r.Id))
			return err
		},
	}
	c.Flags().StringVar(&project, "project", "", "the one of this project; empty: the one without a project")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// pickRepo finds the repository that a person means: by its id, or by its URL
// and project. Without a project it is the only one, or the one without.
func pickRepo(all []apimodel.Repository, name, project string, given bool) (apimodel.Repository, error) {
	var found []apimodel.Repository
	var projects []string
	for _, r := range all {
		if r.Id == name {
			return r, nil
		}
		if (r.Url == name || r.Url+".git" == name) && (!given || r.Project == project) {
			found = append(found, r)
			projects = append(projects, r.Project)
		}
	}
	switch i := slices.Index(projects, ""); {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1 && i >= 0:
		return found[i], nil
	case len(found) > 1:
		return apimodel.Repository{}, usage.Wrap(fault.With(fault.New(fault.Invalid, "the projects %s have a repository %s each", strings.Join(projects, ", "), name), "", "name one with --project"))
	case given && project != "":
		return apimodel.Repository{}, fault.New(fault.Missing, "there is no repository %s of project %s", name, project)
	}
	return apimodel.Repository{}, fault.New(fault.Missing, "there is no repository %s", name)
}

// ref is nil for an empty value.
func ref[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}
