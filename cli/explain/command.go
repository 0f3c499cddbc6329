package explain

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/suggest"
)

// Command is the command explain.
func Command(env *command.Env) *cobra.Command {
	return &cobra.Command{
		Use: "explain [CODE]", Short: "Explain the code of an error, or a condition of an application", Args: cobra.MaximumNArgs(1),
		Example:   "  capstan explain CAP-1409\n  capstan explain ComparisonError\n  capstan explain",
		ValidArgs: Codes(),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return list(env)
			}
			t, ok := Find(args[0])
			if !ok {
				return fault.With(fault.New(fault.Missing, "there is no code %q%s", args[0], suggest.Question(args[0], Codes())), "", "`capstan explain` lists them")
			}
			if env.Format == "table" || env.Format == "wide" {
				_, err := fmt.Fprint(env.Out, t.Text())
				return err
			}
			return env.PrintValue(t, output.Table{Names: []string{t.Code}})
		},
	}
}

func list(env *command.Env) error {
	t := output.Table{Head: []string{"CODE", "TITLE"}}
	for _, topic := range Topics() {
		t.Rows, t.Names = append(t.Rows, []string{topic.Code, topic.Title}), append(t.Names, topic.Code)
	}
	return env.PrintValue(Topics(), t)
}
