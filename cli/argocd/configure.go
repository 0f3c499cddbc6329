package argocd

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/cli/usage"
)

// Configure stores what commands do unless a flag says otherwise. Its
// flag hides the global one of that name, which is for one command.
func Configure(a *command.Env) *cobra.Command {
	var prompts bool
	c := &cobra.Command{
		Use: "configure", Short: "Store whether commands ask before they delete something", Args: usage.Exactly(),
		Example: "  capstan configure\n  capstan configure --prompts-enabled=false",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := session.ReadFile(a.Err)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("prompts-enabled") {
				f.NoPrompts = !prompts
				if err := session.WriteFile(f); err != nil {
					return err
				}
			}
			return a.PrintValue(map[string]bool{"promptsEnabled": !f.NoPrompts}, output.Table{
				Head: []string{"NAME", "VALUE"}, Rows: [][]string{{"prompts-enabled", strconv.FormatBool(!f.NoPrompts)}}, Names: []string{"prompts-enabled"},
			})
		},
	}
	c.Flags().BoolVar(&prompts, "prompts-enabled", true, "whether commands ask")
	return c
}
