package argocd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/repoflags"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Templates is the noun repocreds: credentials for all repositories under a URL
// (CLI-11).
func Templates(env *command.Env) *cobra.Command {
	c := commands{env}
	return command.Noun("repocreds", "Credentials for all repositories under a URL: add, get, list, remove", []string{"repository-credentials"},
		c.templateAdd(), c.templateGet(), c.templateList(), c.templateRemove())
}

func (c commands) templates(ctx context.Context, api *client.Client) ([]apimodel.RepositoryCredential, []byte, error) {
	l, raw, err := client.Call[struct {
		Items []apimodel.RepositoryCredential `json:"items"`
	}](api.ListRepositoryCredentials(ctx))
	return l.Items, raw, err
}

func templateTable(all []apimodel.RepositoryCredential) output.Table {
	t := output.Table{Head: []string{"URL PATTERN", "TYPE", "USERNAME", "CREATED"}}
	for _, x := range all {
		t.Rows = append(t.Rows, []string{x.Url, x.Type, output.Dash(x.Username), output.Ago(x.CreatedAt)})
		t.Names = append(t.Names, x.Url)
	}
	return t
}

func (c commands) templateList() *cobra.Command {
	return c.Plain("list", "List credentials", "  capstan repocreds list\n  capstan repocreds list -o json", func(cmd *cobra.Command, api *client.Client) error {
		all, raw, err := c.templates(cmd.Context(), api)
		if err != nil {
			return err
		}
		return c.Print(raw, templateTable(all))
	})
}

// template finds one by its URL.
func (c commands) template(ctx context.Context, api *client.Client, url string) (apimodel.RepositoryCredential, error) {
	all, _, err := c.templates(ctx, api)
	for _, t := range all {
		if strings.TrimSuffix(t.Url, "/") == strings.TrimSuffix(url, "/") {
			return t, nil
		}
	}
	if err == nil {
		err = fault.With(fault.New(fault.Missing, "there are no credentials for %q", url), "", "see `capstan repocreds list`")
	}
	return apimodel.RepositoryCredential{}, err
}

func (c commands) templateGet() *cobra.Command {
	return c.Named("get URL", "Show credentials, without their secret", "the URL that the credentials are for", "  capstan repocreds get https://git.example.com/team\n  capstan repocreds get https://git.example.com/team -o yaml",
		func(cmd *cobra.Command, api *client.Client, url string) error {
			t, err := c.template(cmd.Context(), api, url)
			if err != nil {
				return err
			}
			return c.PrintValue(t, templateTable([]apimodel.RepositoryCredential{t}))
		})
}

func (c commands) templateRemove() *cobra.Command {
	var yes bool
	cmd := c.Named("rm URL", "Delete credentials", "the URL that the credentials are for", "  capstan repocreds rm https://git.example.com/team\n  capstan repocreds rm https://git.example.com/team --yes",
		func(cmd *cobra.Command, api *client.Client, url string) error {
			t, err := c.template(cmd.Context(), api, url)
			if err == nil {
				err = c.Confirm(yes, "Delete the credentials for "+t.Url+"?")
			}
			if err != nil {
				return err
			}
			_, err = client.Read(api.DeleteRepositoryCredential(cmd.Context(), t.Id))
			return err
		})
	cmd.Aliases = []string{"remove"}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (c commands) templateAdd() *cobra.Command {
	var username, kind string
	var passwordIn bool
	var flags repoflags.Flags
	cmd := c.Named("add URL", "Store credentials for all repositories under a URL", "the URL that the credentials are for",
		"  capstan repocreds add https://git.example.com/team --username bot --password-stdin < token\n  capstan repocreds add git@git.example.com:team --ssh-private-key-path ~/.ssh/id_ed25519\n  capstan repocreds add https://github.com/team --github-app-id 1 --github-app-private-key-path app.pem",
		func(cmd *cobra.Command, api *client.Client, url string) error {
			values, err := flags.Values()
			if err != nil {
				return err
			}
			if passwordIn {
				text, err := io.ReadAll(io.LimitReader(c.In, 64<<10))
				if err != nil {
					return err
				}
				values["username"], values["password"] = username, strings.TrimRight(string(text), "\r\n")
			}
			if len(values) == 0 {
				return usage.Errorf("give --password-stdin, --ssh-private-key-path, --github-app-id or another credential")
			}
			values["url"], values["type"] = url, kind
			return c.applySecret(cmd.Context(), api, "repo-creds", values)
		})
	cmd.Flags().StringVarP(&username, "username", "u", "git", "user name; any for most tokens")
	cmd.Flags().BoolVar(&passwordIn, "password-stdin", false, "read the password or token from standard input")
	cmd.Flags().StringVar(&kind, "type", "git", "git, helm or oci")
	flags.Bind(cmd, false)
	return cmd
}

// applySecret declares something by a Secret of Argo CD.
func (c commands) applySecret(ctx context.Context, api *client.Client, kind string, values map[string]string) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": values,
		"metadata": map[string]any{"name": "cli", "labels": map[string]string{"argocd.argoproj.io/secret-type": kind}},
	})
	if err != nil {
		return err
	}
	result, _, err := client.Call[apimodel.ApplyResult](api.Apply(ctx, apimodel.ApplyParams{}, client.Raw{ContentType: "application/json", Content: bytes.NewReader(text)}))
	if err != nil {
		return err
	}
	for _, r := range result.Results {
		c.Warn(r.Warnings)
		if client.Given(r.Error) {
			return &client.AnswerError{Status: client.StatusOf(r.Error.Code), Body: r.Error}
		}
		c.Note("%s %s", values["url"], r.Result)
	}
	return nil
}

// RepositoryGet is repo get.
func RepositoryGet(env *command.Env) *cobra.Command {
	c := commands{env}
	var project string
	cmd := c.Named("get URL", "Show a repository and how its last fetch went", "the URL of the repository", "  capstan repo get https://git.example.com/team/repo.git\n  capstan repo get https://git.example.com/team/repo.git -o yaml",
		func(cmd *cobra.Command, api *client.Client, url string) error {
			l, _, err := client.Call[struct {
				Items []apimodel.Repository `json:"items"`
			}](api.ListRepositories(cmd.Context()))
			if err != nil {
				return err
			}
			for _, r := range l.Items {
				if strings.TrimSuffix(r.Url, ".git") != strings.TrimSuffix(url, ".git") || project != "" && r.Project != project {
					continue
				}
				return c.PrintValue(r, output.Table{
					Head: []string{"TYPE", "URL", "PROJECT", "INSECURE", "CREDENTIAL", "USERNAME"}, Names: []string{r.Url},
					Rows: [][]string{{r.Type, r.Url, output.Dash(r.Project), yesNo(r.Insecure), yesNo(r.HasCredential), output.Dash(r.Username)}},
				})
			}
			return fault.With(fault.New(fault.Missing, "no repository %q", url), "", "see `capstan repo list`")
		})
	cmd.Flags().StringVar(&project, "project", "", "project that the repository belongs to")
	return cmd
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// policy prints what the cluster's owner permits its agent to do.
func (c commands) policy(cmd *cobra.Command, api *client.Client, name string) {
	p, _, err := client.Call[apimodel.AgentPolicy](api.GetAgentPolicy(cmd.Context(), name))
	switch {
	case err != nil:
		c.Note("\nPolicy of the cluster's owner: not known, %v", err)
		return
	case p.Broken != "":
		fmt.Fprintf(c.Out, "\nPolicy of the cluster's owner: nothing is permitted, because it cannot be read: %s\n", p.Broken)
		return
	}
	text, err := yaml.JSONToYAML(p.Rules)
	if err != nil {
		c.Note("%v", err)
		return
	}
	fmt.Fprintf(c.Out, "\nPolicy of the cluster's owner (mode %s):\n  %s\n", p.Mode, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  "))
}

// ClusterGet is cluster get.
func ClusterGet(env *command.Env) *cobra.Command {
	c := commands{env}
	return c.Named("get NAME", "Show a cluster and the state of its agent", "the name of the cluster", "  capstan cluster get production\n  capstan cluster get production -o yaml",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			x, raw, err := client.Call[apimodel.Cluster](api.GetCluster(cmd.Context(), name))
			if err != nil {
				return err
			}
			var n apimodel.ClusterCounts
			if x.Counts != nil {
				n = *x.Counts
			}
			if c.Format == "wide" {
				defer c.policy(cmd, api, name)
			}
			return c.Print(raw, output.Table{
				Head: []string{"NAME", "SERVER", "AGENT", "LAST SEEN", "KUBERNETES", "AGENT VERSION", "APPLICATIONS", "OBJECTS", "APIS"}, Names: []string{"cluster/" + x.Name},
				Rows: [][]string{{x.Name, output.Dash(x.Server), string(x.Connection), output.Ago(x.LastSeen), output.Dash(x.KubeVersion), output.Dash(x.AgentVersion),
					strconv.FormatInt(n.Applications, 10), strconv.FormatInt(n.Objects, 10), strconv.FormatInt(n.Apis, 10)}},
			})
		})
}
