package cli

import (
	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/rights"
)

// rights are the commands that ask what somebody may do.
func (a *app) rights() rights.Commands {
	return rights.Commands{Printer: &a.Printer, Connect: a.client}
}

func (a *app) accountCommand() *cobra.Command {
	return noun("account", "Accounts: what you may do, and why", nil, a.rights().CanI(), a.rights().Explain())
}
