package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/cli/usage"
)

// contextCommand shows the stored sign-ins and chooses among them. No token is
// printed.
func (a *app) contextCommand() *cobra.Command {
	var remove bool
	c := &cobra.Command{
		Use: "context [NAME]", Short: "List the stored sign-ins, or choose the one that commands use", Args: cobra.MaximumNArgs(1),
		Example: "  capstan context\n  capstan context prod\n  capstan context prod --delete",
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := session.ReadFile(a.Err)
			if err != nil {
				return err
			}
			switch {
			case len(args) == 0 && remove:
				return usage.Errorf("expected the name of the context to delete")
			case len(args) == 0:
				return a.printContexts(f)
			case f.Find(args[0]) == nil:
				return f.Missing(args[0])
			case remove:
				return a.deleteContext(f, args[0])
			}
			f.Current = args[0]
			if err := session.WriteFile(f); err != nil {
				return err
			}
			a.Note("Commands use context %s now.", f.Current)
			return nil
		},
	}
	c.Flags().BoolVar(&remove, "delete", false, "delete the context; its session stays valid until it expires, so log out first")
	return c
}

// deleteContext deletes one context. Without a current one, commands need
// --context.
func (a *app) deleteContext(f session.File, name string) error {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c session.Context) bool { return c.Name == name })
	if f.Current == name {
		f.Current = ""
	}
	if err := session.WriteFile(f); err != nil {
		return err
	}
	a.Note("Context %s is forgotten.", name)
	return nil
}

func (a *app) printContexts(f session.File) error {
	type shown struct {
		Name     string `json:"name"`
		Current  bool   `json:"current"`
		Server   string `json:"server"`
		Tenant   string `json:"tenant,omitempty"`
		User     string `json:"user,omitempty"`
		SignedIn bool   `json:"signedIn"`
	}
	all := make([]shown, 0, len(f.Contexts))
	t := output.Table{Head: []string{"CURRENT", "NAME", "SERVER", "TENANT", "USER", "SIGNED IN"}}
	for _, c := range f.Contexts {
		x := shown{c.Name, c.Name == f.Current, c.Server, c.Tenant, c.User, c.Token != ""}
		all = append(all, x)
		t.Rows = append(t.Rows, []string{output.Dash(map[bool]string{true: "*"}[x.Current]), x.Name, x.Server, output.Dash(x.Tenant), output.Dash(x.User), map[bool]string{true: "yes", false: "no"}[x.SignedIn]})
		t.Names = append(t.Names, x.Name)
	}
	return a.PrintValue(all, t)
}
