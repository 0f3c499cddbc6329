package cli

import (
	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) roleCreateToken() *cobra.Command {
	var id, life string
	var only bool
	c := &cobra.Command{
		Use: "create-token PROJECT ROLE", Short: "Make a token that has the rights of a role alone; it is shown once", Args: usage.Exactly("the name of the project", "the name of the role"),
		Example: "  capstan project role create-token shop deployer --expires-in 720h --id github\n  capstan project role create-token shop deployer --token-only",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			n, raw, err := client.Call[apimodel.NewToken](api.CreateRoleToken(cmd.Context(), args[0], args[1], apimodel.CreateRoleTokenJSONRequestBody{Name: id, ExpiresIn: life}))
			if err != nil {
				return err
			}
			if !only && (a.Format == "table" || a.Format == "wide") {
				a.Note("Token %s of role %s of project %s, until %s. It is shown this once:", n.Info.Name, args[1], args[0], n.Info.ExpiresAt.Local().Format("2006-01-02 15:04 MST"))
			}
			return a.printToken(n, raw)
		},
	}
	c.Flags().StringVar(&id, "id", "", "a name for the token (default: one that is made up)")
	c.Flags().StringVarP(&life, "expires-in", "e", "", "how long it can be used, such as 720h or 30d (default: 90 days, at most 366)")
	c.Flags().BoolVarP(&only, "token-only", "t", false, "print nothing but the token")
	return c
}

func (a *app) roleListTokens() *cobra.Command {
	return &cobra.Command{
		Use: "list-tokens PROJECT ROLE", Short: "List the tokens of a role", Args: usage.Exactly("the name of the project", "the name of the role"),
		Example: "  capstan project role list-tokens shop deployer",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			l, raw, err := client.Call[struct {
				Items []apimodel.Token `json:"items"`
			}](api.ListRoleTokens(cmd.Context(), args[0], args[1]))
			if err != nil {
				return err
			}
			return a.Print(raw, tokenTable(l.Items))
		},
	}
}

func (a *app) roleDeleteToken() *cobra.Command {
	return &cobra.Command{
		Use: "delete-token PROJECT ROLE ID", Short: "End a token of a role, by its id or its name", Args: usage.Exactly("the name of the project", "the name of the role", "the id of the token"),
		Example: "  capstan project role delete-token shop deployer github",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			_, err = client.Read(api.DeleteRoleToken(cmd.Context(), args[0], args[1], args[2]))
			return err
		},
	}
}
