package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/project"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) projectCommand() *cobra.Command {
	c := project.Commands{Printer: &a.Printer, Connect: a.client, Confirm: a.confirm}
	role := c.Role()
	role.AddCommand(a.roleCreateToken(), a.roleListTokens(), a.roleDeleteToken())
	return c.Noun(a.projectWindows(), role)
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
