// Package tenancy has the commands of organisations, their quotas and their
// audit logs. Package cli adds them to its own.
package tenancy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

const tenantName = "the name of the organisation"

type commands struct{ *command.Env }

// Tenant is the command tenant.
func Tenant(env *command.Env) *cobra.Command {
	a := commands{env}
	return command.Noun("tenant", "Organisations: create, suspend, limit, export, delete (platform admins)", []string{"tenants"},
		a.tenantList(), a.tenantGet(), a.tenantCreate(), a.tenantUpdate(), a.tenantSuspend(), a.tenantResume(), a.tenantExport(), a.tenantDelete(), a.tenantRestore(), a.tenantSetQuota(), a.tenantUsage())
}

func tenantTable(all ...apimodel.Tenant) output.Table {
	t := output.Table{Head: []string{"NAME", "DISPLAY NAME", "STATE", "CREATED"}}
	for _, x := range all {
		state := "Active"
		switch {
		case !x.PurgeAt.IsZero():
			state = "Deleting until " + x.PurgeAt.Local().Format("2006-01-02 15:04 MST")
		case x.Suspended:
			state = strings.TrimSuffix("Suspended: "+x.SuspendedReason, ": ")
		}
		t.Rows = append(t.Rows, []string{x.Name, output.Dash(x.DisplayName), state, output.Ago(x.CreatedAt)})
		t.Names = append(t.Names, "tenant/"+x.Name)
	}
	return t
}

func (a commands) tenantList() *cobra.Command {
	return a.Plain("list", "List organisations", "  capstan tenant list\n  capstan tenant list -o name", func(cmd *cobra.Command, api *client.Client) error {
		l, raw, err := client.Call[struct {
			Items []apimodel.Tenant `json:"items"`
		}](api.ListTenants(cmd.Context()))
		if err != nil {
			return err
		}
		return a.Print(raw, tenantTable(l.Items...))
	})
}

func (a commands) tenantGet() *cobra.Command {
	return a.Named("get NAME", "Show one organisation", tenantName, "  capstan tenant get acme\n  capstan tenant get acme -o yaml",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			t, raw, err := client.Call[apimodel.Tenant](api.GetTenant(cmd.Context(), name))
			if err != nil {
				return err
			}
			return a.Print(raw, tenantTable(t))
		})
}

func (a commands) tenantCreate() *cobra.Command {
	var display, id string
	create := a.Named("create NAME", "Make an organisation and a setup link for its first admin", tenantName,
		"  capstan tenant create acme\n  capstan tenant create acme --display-name 'Acme Inc.'\n  capstan tenant create acme --id 01a218d0-ce1d-7678-bf72-70796eb03725",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			n, raw, err := client.Call[apimodel.NewTenant](api.CreateTenant(cmd.Context(), apimodel.CreateTenantJSONRequestBody{Name: name, DisplayName: display, Id: id}))
			if err != nil {
				return err
			}
			return a.Print(raw, output.Table{
				Head: []string{"NAME", "SETUP LINK (works once)", "UNTIL"}, Names: []string{"tenant/" + n.Tenant.Name},
				Rows: [][]string{{n.Tenant.Name, n.SetupLink, n.ExpiresAt.Local().Format("2006-01-02 15:04 MST")}},
			})
		})
	create.Flags().StringVar(&display, "display-name", "", "name to show")
	create.Flags().StringVar(&id, "id", "", "id of a tenant that was lost with its hub, as the objects in its clusters have it (annotation capstan.dev/tenant)")
	return create
}

func (a commands) tenantUpdate() *cobra.Command {
	var display string
	c := a.Named("update NAME", "Change what an organisation is called for people", tenantName, "  capstan tenant update acme --display-name 'Acme Inc.'\n  capstan tenant update acme --display-name ''",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			t, raw, err := client.Call[apimodel.Tenant](api.UpdateTenant(cmd.Context(), name, apimodel.UpdateTenantJSONRequestBody{DisplayName: display}))
			if err != nil {
				return err
			}
			return a.Print(raw, tenantTable(t))
		})
	c.Flags().StringVar(&display, "display-name", "", "name to show")
	_ = c.MarkFlagRequired("display-name")
	return c
}

func (a commands) tenantSuspend() *cobra.Command {
	var reason string
	c := a.Named("suspend NAME", "End the service of an organisation until it is resumed", tenantName,
		"  capstan tenant suspend acme --reason 'unpaid since May'\n  capstan tenant suspend acme",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			t, raw, err := client.Call[apimodel.Tenant](api.SuspendTenant(cmd.Context(), name, apimodel.SuspendTenantJSONRequestBody{Reason: reason}))
			if err != nil {
				return err
			}
			return a.Print(raw, tenantTable(t))
		})
	c.Long = "End the service of an organisation until it is resumed. Nobody signs in, nothing is rendered or synced, and its\n" +
		"agents are disconnected. They go on enforcing the last state; nothing in a cluster is deleted."
	c.Flags().StringVar(&reason, "reason", "", "shown to platform admins and recorded in the audit logs")
	return c
}

func (a commands) tenantResume() *cobra.Command {
	return a.Named("resume NAME", "Take the suspension of an organisation back", tenantName, "  capstan tenant resume acme\n  capstan tenant resume acme -o json",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			t, raw, err := client.Call[apimodel.Tenant](api.ResumeTenant(cmd.Context(), name))
			if err != nil {
				return err
			}
			return a.Print(raw, tenantTable(t))
		})
}

func (a commands) tenantRestore() *cobra.Command {
	return a.Named("restore NAME", "Take the deletion of an organisation back", tenantName, "  capstan tenant restore acme\n  capstan tenant restore acme -o json",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			t, raw, err := client.Call[apimodel.Tenant](api.RestoreTenant(cmd.Context(), name))
			if err != nil {
				return err
			}
			return a.Print(raw, tenantTable(t))
		})
}

func (a commands) tenantExport() *cobra.Command {
	var file string
	c := a.Named("export NAME", "Save an archive of all that an organisation owns, without secrets", tenantName,
		"  capstan tenant export acme\n  capstan tenant export acme --file acme.zip",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			path := file
			if path == "" {
				path = name + ".zip"
			}
			res, err := api.ExportTenant(cmd.Context(), name)
			if err := client.SaveFile(path, res, err); err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.Out, path)
			return err
		})
	c.Flags().StringVarP(&file, "file", "f", "", "where to save it (default NAME.zip)")
	return c
}

func (a commands) tenantDelete() *cobra.Command {
	var confirm string
	var dryRun bool
	c := a.Named("delete NAME", "Delete an organisation; it can be restored for a while", tenantName,
		"  capstan tenant delete acme\n  capstan tenant delete acme --dry-run\n  capstan tenant delete acme --confirm acme",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			d, raw, err := client.Call[apimodel.TenantDeletion](api.GetTenantDeletion(cmd.Context(), name))
			if err != nil {
				return err
			}
			if dryRun {
				t := output.Table{Head: []string{"WHAT WOULD HAPPEN"}, Names: []string{"tenant/" + name}}
				for _, e := range d.Effects {
					t.Rows = append(t.Rows, []string{e})
				}
				return a.Print(raw, t)
			}
			if err := a.confirmTenant(name, confirm, d.Effects); err != nil {
				return err
			}
			t, raw, err := client.Call[apimodel.Tenant](api.DeleteTenant(cmd.Context(), name, apimodel.DeleteTenantParams{Confirm: name}))
			if err != nil {
				return err
			}
			return a.Print(raw, tenantTable(t))
		})
	c.Flags().StringVar(&confirm, "confirm", "", "the name of the organisation once more; without it you are asked")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would happen, and change nothing")
	return c
}

// confirmTenant has the name of an organisation typed once more, after it has
// said what its deletion does.
func (a commands) confirmTenant(name, confirm string, effects []string) (err error) {
	if confirm == "" {
		for _, e := range effects {
			fmt.Fprintln(a.Err, "- "+e)
		}
		var terminal bool
		if confirm, terminal, err = a.Ask("Type the name of the organisation to delete it: "); err != nil {
			return err
		}
		if !terminal {
			return usage.Errorf("a deletion needs the name of the organisation once more. There is no terminal to ask; add --confirm %s", name)
		}
	}
	if confirm != name {
		return usage.Errorf("cancelled: %s is not %s", strconv.Quote(confirm), name)
	}
	return nil
}
