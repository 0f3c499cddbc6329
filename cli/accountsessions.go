package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

func sessionTable(all []apimodel.Session) output.Table {
	t := output.Table{Head: []string{"ID", "SIGNED IN", "USED", "FROM", "BY", "PROGRAM"}}
	for _, x := range all {
		program := output.Dash(x.Client)
		if x.Current {
			program += " (this one)"
		}
		by := x.Provider
		if by == "" {
			by = "password"
		}
		t.Rows = append(t.Rows, []string{x.Id, output.Ago(x.CreatedAt), output.Ago(x.SeenAt), output.Dash(x.Address), by, program})
		t.Names = append(t.Names, "session/"+x.Id)
	}
	return t
}

func (a *app) accountSessions() *cobra.Command {
	var name string
	c := a.plain("sessions", "Show where an account is signed in", "  capstan account sessions\n  capstan account sessions --account jane",
		func(cmd *cobra.Command, api *client.Client) error {
			name, err := ownAccount(cmd, api, name)
			if err != nil {
				return err
			}
			l, raw, err := client.Call[struct {
				Items []apimodel.Session `json:"items"`
			}](api.ListAccountSessions(cmd.Context(), name))
			if err != nil {
				return err
			}
			return a.Print(raw, sessionTable(l.Items))
		})
	c.Flags().StringVarP(&name, "account", "a", "", "name of the account (default: yours)")
	return c
}

func (a *app) accountSignOut() *cobra.Command {
	var name, id string
	var others bool
	c := a.plain("sign-out", "End the sessions of an account; tokens stay",
		"  capstan account sign-out --others\n  capstan account sign-out --account jane\n  capstan account sign-out --session 0197fd6e-3a5b-7c11-8000-1d2f3a4b5c6d",
		func(cmd *cobra.Command, api *client.Client) error {
			if id != "" && others {
				return fault.New(fault.Invalid, "--session and --others exclude each other")
			}
			name, err := ownAccount(cmd, api, name)
			if err != nil {
				return err
			}
			if id != "" {
				_, err := client.Read(api.DeleteAccountSession(cmd.Context(), name, id))
				return err
			}
			out, raw, err := client.Call[struct {
				Ended int `json:"ended"`
			}](api.DeleteAccountSessions(cmd.Context(), name, apimodel.DeleteAccountSessionsParams{Others: others}))
			if err != nil {
				return err
			}
			if a.Format != "table" && a.Format != "wide" {
				return a.Print(raw, output.Table{})
			}
			_, err = fmt.Fprintf(a.Out, "%d sessions of %s have ended.\n", out.Ended, name)
			return err
		})
	c.Flags().StringVarP(&name, "account", "a", "", "name of the account (default: yours)")
	c.Flags().StringVar(&id, "session", "", "end only this session")
	c.Flags().BoolVar(&others, "others", false, "leave the session that this command uses")
	return c
}
