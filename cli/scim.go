package cli

import (
	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) scimCommand() *cobra.Command {
	list := a.plain("list-tokens", "List the tokens of identity providers", "  capstan scim list-tokens", func(cmd *cobra.Command, api *client.Client) error {
		l, raw, err := client.Call[struct {
			Items []apimodel.Token `json:"items"`
		}](api.ListSCIMTokens(cmd.Context()))
		if err != nil {
			return err
		}
		return a.Print(raw, tokenTable(l.Items))
	})
	var life string
	create := a.named("create-token NAME", "Make a token for an identity provider; it is shown once", "a name for the token",
		"  capstan scim create-token okta\n  capstan scim create-token entra --expires-in 180d",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			n, raw, err := client.Call[apimodel.NewToken](api.CreateSCIMToken(cmd.Context(), apimodel.CreateSCIMTokenJSONRequestBody{Name: name, ExpiresIn: life}))
			if err != nil {
				return err
			}
			return a.printToken(n, raw)
		})
	create.Flags().StringVarP(&life, "expires-in", "e", "", "how long it can be used, such as 720h or 30d (default and limit: 366 days)")
	remove := a.named("delete-token ID", "End a token of an identity provider; people and groups stay", "the id of the token", "  capstan scim delete-token ID",
		func(cmd *cobra.Command, api *client.Client, id string) error {
			_, err := client.Read(api.DeleteSCIMToken(cmd.Context(), id))
			return err
		})
	return noun("scim", "Provisioning of people and groups by an identity provider (SCIM 2.0)", nil, list, create, remove)
}
