// Package cli is the command line of Capstan, with a file for each noun. It
// uses only a hub's HTTP API: it has no cluster credentials, reads no
// kubeconfig and needs only the rights of the signed-in user. The capstan
// command is its only caller. Standard output has the result, in the format of
// -o; everything else goes to standard error.
package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/actions"
	"github.com/capstan-cd/capstan/cli/appset"
	"github.com/capstan-cd/capstan/cli/argocd"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/complete"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/explain"
	"github.com/capstan-cd/capstan/cli/keys"
	"github.com/capstan-cd/capstan/cli/live"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/project"
	"github.com/capstan-cd/capstan/cli/rights"
	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/cli/tenancy"
	"github.com/capstan-cd/capstan/cli/transfer"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/version"
)

// Streams are where a command reads and writes.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// app is what the commands of one run share.
type app struct {
	output.Printer
	in     io.Reader
	choice session.Choice
	compat argocd.Flags
	tree   string // form of app get that only it has: tree or tree=detailed
}

// Main runs a command line and returns the exit code of the process.
func Main(ctx context.Context, args []string, s Streams) int {
	a := &app{Printer: output.Printer{Out: s.Out, Err: s.Err}, in: s.In}
	root := a.root()
	root.SetArgs(argocd.Arguments(args))
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if _, differ := exit.Found(err); err != nil && !differ {
		fmt.Fprintln(s.Err, "capstan: "+exit.Say(err))
	}
	return exit.Of(err)
}

// Commands returns the tree of all commands, from which the pages of the
// reference are made. It is not for running them: use Main.
func Commands() *cobra.Command {
	a := &app{Printer: output.Printer{Out: io.Discard, Err: io.Discard}, in: strings.NewReader("")}
	root := a.root()
	root.InitDefaultCompletionCmd()
	return root
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "capstan",
		Short:         "Deliver applications from Git to clusters through a Capstan hub",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usage.Verb,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		Long: `Deliver applications from Git to clusters through a Capstan hub.

"capstan help exit-codes" says what the exit codes mean.

CAPSTAN_SERVER and CAPSTAN_TOKEN take the place of "capstan login".`,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.choice.Context, "context", "", "name of a stored sign-in (default: the current one)")
	flags.StringVar(&a.choice.Server, "server", "", "URL of the hub (default: that of the last login)")
	flags.StringVar(&a.choice.Token, "token", "", "API token (default: that of the last login)")
	a.compat.Add(flags, &a.choice.Token)
	flags.StringVarP(&a.Format, "output", "o", "table", "table, wide, json, yaml or name")
	root.SetFlagErrorFunc(usage.Flag)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) (err error) {
		if a.choice.Transport, err = a.compat.Read(c.Flags(), a.Err); err != nil {
			return err
		}
		if a.tree = treeOf(c, a.Format); a.tree != "" {
			a.Format = "table"
		}
		a.Format, err = usage.Among("--output", a.Format, "table", "wide", "json", "yaml", "name")
		return err
	}
	account := a.accountCommand()
	account.AddCommand(rights.Account(a.env()).Commands()...)
	root.AddCommand(
		a.loginCommand(), a.reloginCommand(), a.setupCommand(), a.logoutCommand(), a.contextCommand(), argocd.Configure(a.env()), a.whoamiCommand(), a.versionCommand(),
		a.applyCommand(), a.applicationCommand(), appset.Commands(a.env()), a.clusterCommand(), a.repositoryCommand(), keys.Certificates(a.env()), keys.GPG(a.env()),
		a.projectCommand(), account, a.scimCommand(), tenancy.Tenant(a.env()), a.tokenCommand(), tenancy.Audit(a.env()), a.settingsCommand(), a.notificationsCommand(), a.pluginCommand(), a.adminCommand(), transfer.Export(a.env()), transfer.Import(a.env()), explain.Command(a.env()), live.Why(a.env()), argocd.Templates(a.env()), exitCodesTopic(),
	)
	argocd.Complete(root)
	complete.Names(a.env(), root)
	return root
}

// env is what commands of other packages work with.
func (a *app) env() *command.Env {
	return &command.Env{Printer: &a.Printer, In: a.in, Client: a.client, Confirm: a.confirm, Ask: a.ask}
}

// adminCommand groups the commands of administration under their names in Argo
// CD.
func (a *app) adminCommand() *cobra.Command {
	return noun("admin", "Export, import, and try out settings without a hub", nil,
		transfer.Export(a.env()), transfer.AdminImport(a.env()),
		project.Admin(a.env()), a.adminNotifications(),
		noun("settings", "Try out settings", nil, actions.Overrides(a.env()), rights.Policy(a.env())))
}

// noun groups the verbs of one kind of thing.
func noun(use, short string, aliases []string, verbs ...*cobra.Command) *cobra.Command {
	return command.Noun(use, short, aliases, verbs...)
}

// exitCodesTopic is a help page without a command behind it.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes of all commands mean", Long: "Exit codes of all commands:\n\n" + exit.Codes}
}
