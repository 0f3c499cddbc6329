// Package live has the commands that show and change what runs in clusters now:
// logs, events and live objects. Package cli adds them to its own.
package live

import (
	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/command"
)

type commands struct{ *command.Env }

// App returns the verbs about the live objects of an application.
func App(env *command.Env) []*cobra.Command {
	a := commands{env}
	return []*cobra.Command{a.logs(), a.events(), a.getResource(), a.patchResource(), a.editResource(), a.exec(), a.portForward(), a.why()}
}
