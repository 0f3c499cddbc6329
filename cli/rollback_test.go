package cli

import (
	"testing"

	"github.com/spf13/cobra"
)

// A flag that was given decides, whatever its value; only without it does the
// application's annotation.
func TestRollbackHooks(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{"": "annotation", "--hooks": "true", "--hooks=true": "true", "--hooks=false": "false"} {
		t.Run("app rollback "+flag, func(t *testing.T) {
			t.Parallel()
			var hooks bool
			cmd := &cobra.Command{}
			cmd.Flags().BoolVar(&hooks, "hooks", false, "")
			var args []string
			if flag != "" {
				args = []string{flag}
			}
			if err := cmd.ParseFlags(args); err != nil {
				t.Fatal(err)
			}
			got := "annotation"
			if asked := rollbackRequest(cmd, 1, true, false, hooks, "").Hooks; asked != nil {
				got = map[bool]string{true: "true", false: "false"}[*asked]
			}
			if got != want {
				t.Errorf("it asks for %s, want %s", got, want)
			}
		})
	}
}
