package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/fault"
)

func (a *app) repositoryCommand() *cobra.Command {
	return noun("repo", "Repositories: add, list, remove", []string{"repository", "repositories"}, a.repoAdd(), a.repoList(), a.repoRemove())
}

func (a *app) repoAdd() *cobra.Command {
	var username, project, name, keyFile string
	var passwordIn, insecure bool
	c := &cobra.Command{
		Use: "add URL", Short: "Add a repository, or change its credential", Args: exactly("the URL of the repository"),
		Example: "  capstan repo add https://git.example.com/team/manifests.git\n  capstan repo add https://git.example.com/team/manifests.git --username bot --password-stdin < token\n  capstan repo add git@git.example.com:team/manifests.git --ssh-private-key-path ~/.ssh/id_ed25519",
		RunE: func(cmd *cobra.Command, args []string) error {
			body := client.PutRepositoryJSONRequestBody{Url: args[0], Username: ref(username), Project: ref(project), Name: ref(name), Insecure: ref(insecure)}
			if keyFile != "" {
				key, err := os.ReadFile(keyFile)
				if err != nil {
					return fault.Wrap(fault.Invalid, err, "the private key %s cannot be read", keyFile)
				}
				text := string(key)
				body.SshPrivateKey = &text
			}
			if passwordIn || username != "" && keyFile == "" {
				prompt := "Password or token: "
				if passwordIn {
					prompt = ""
				}
				secret, err := a.secret(prompt)
				if err != nil {
					return err
				}
				body.Password = &secret
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			r, raw, err := call[client.Repository](api.PutRepository(cmd.Context(), nil, body))
			if err != nil {
				return err
			}
			a.warn(r.Warnings)
			return a.print(raw, repoTable([]client.Repository{r}))
		},
	}
	c.Flags().StringVarP(&username, "username", "u", "", "user name; any for most tokens")
	c.Flags().BoolVar(&passwordIn, "password-stdin", false, "read the password or token from standard input")
	c.Flags().StringVar(&project, "project", "", "only for applications of this project")
	c.Flags().StringVar(&name, "name", "", "a name to show")
	c.Flags().StringVar(&keyFile, "ssh-private-key-path", "", "file with the private key for an SSH URL, without a passphrase")
	c.Flags().BoolVar(&insecure, "insecure", false, "do not verify the server: neither its certificate nor its SSH host key")
	return c
}

func (a *app) repoList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List repositories and how their last fetch went", Aliases: []string{"ls"}, Args: exactly(),
		Example: "  capstan repo list\n  capstan repo list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, raw, err := a.repos(cmd)
			if err != nil {
				return err
			}
			return a.print(raw, repoTable(all))
		},
	}
}

func (a *app) repos(cmd *cobra.Command) ([]client.Repository, []byte, error) {
	api, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	l, raw, err := call[struct {
		Items []client.Repository `json:"items"`
	}](api.ListRepositories(cmd.Context()))
	return l.Items, raw, err
}

func repoTable(all []client.Repository) table {
	t := table{head: []string{"URL", "STATUS", "FETCHED", "CREDENTIAL", "MESSAGE", "ID", "PROJECT"}, wide: 2}
	for _, r := range all {
		credential := "none"
		if r.HasCredential {
			credential = first(deref(r.Username), "stored")
		}
		t.rows = append(t.rows, []string{
			r.Url, string(r.Connection.Status), ago(r.Connection.FetchedAt), credential, dash(deref(r.Connection.Message)), r.Id, dash(deref(r.Project)),
		})
		t.name = append(t.name, "repository/"+r.Id)
	}
	return t
}

func (a *app) repoRemove() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "rm URL", Short: "Forget a repository and its credential", Aliases: []string{"remove"}, Args: exactly("the URL or id of the repository"),
		Example: "  capstan repo rm https://git.example.com/team/manifests.git\n  capstan repo rm https://git.example.com/team/manifests.git --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			all, _, err := a.repos(cmd)
			if err != nil {
				return err
			}
			for _, r := range all {
				if r.Id != args[0] && r.Url != args[0] && r.Url+".git" != args[0] {
					continue
				}
				if err := a.confirm(yes, "Forget repository "+r.Url+"?"); err != nil {
					return err
				}
				api, err := a.client()
				if err != nil {
					return err
				}
				_, err = read(api.DeleteRepository(cmd.Context(), r.Id))
				return err
			}
			return fault.New(fault.Missing, "there is no repository %s", args[0])
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
