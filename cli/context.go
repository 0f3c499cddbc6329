package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

// contextCommand shows the stored sign-ins and chooses among them. No token is
// printed.
func (a *app) contextCommand() *cobra.Command {
	var remove bool
	c := &cobra.Command{
		Use: "context [NAME]", Short: "List the stored sign-ins, or choose the one that commands use", Args: cobra.MaximumNArgs(1),
		Example: "  capstan context\n  capstan context prod\n  capstan context prod --delete",
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := readConfig(a.err)
			if err != nil {
				return err
			}
			switch {
			case len(args) == 0 && remove:
				return usageErrorf("expected the name of the context to delete")
			case len(args) == 0:
				return a.printContexts(f)
			case f.context(args[0]) == nil:
				return f.missing(args[0])
			case remove:
				return a.deleteContext(f, args[0])
			}
			f.Current = args[0]
			if err := writeConfig(f); err != nil {
				return err
			}
			a.note("Commands use context %s now.", f.Current)
			return nil
		},
	}
	c.Flags().BoolVar(&remove, "delete", false, "delete the context; its session stays valid until it expires, so log out first")
	return c
}

// deleteContext deletes one context. Without a current one, commands need
// --context.
func (a *app) deleteContext(f configFile, name string) error {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c config) bool { return c.Name == name })
	if f.Current == name {
		f.Current = ""
	}
	if err := writeConfig(f); err != nil {
		return err
	}
	a.note("Context %s is forgotten.", name)
	return nil
}

func (a *app) printContexts(f configFile) error {
	type shown struct {
		Name     string `json:"name"`
		Current  bool   `json:"current"`
		Server   string `json:"server"`
		Tenant   string `json:"tenant,omitempty"`
		User     string `json:"user,omitempty"`
		SignedIn bool   `json:"signedIn"`
	}
	all := make([]shown, 0, len(f.Contexts))
	t := table{head: []string{"CURRENT", "NAME", "SERVER", "TENANT", "USER", "SIGNED IN"}}
	for _, c := range f.Contexts {
		x := shown{c.Name, c.Name == f.Current, c.Server, c.Tenant, c.User, c.Token != ""}
		all = append(all, x)
		t.rows = append(t.rows, []string{dash(map[bool]string{true: "*"}[x.Current]), x.Name, x.Server, dash(x.Tenant), dash(x.User), map[bool]string{true: "yes", false: "no"}[x.SignedIn]})
		t.name = append(t.name, x.Name)
	}
	return a.printValue(all, t)
}
