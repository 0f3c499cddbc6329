// Package cli is the command line of Capstan, noun by noun. It talks to a hub
// through its HTTP API alone: it holds no cluster credential, reads no
// kubeconfig and needs no rights beyond those of whoever signed in. The
// capstan command is its only caller. What goes to standard output is the
// answer, in the form that -o asks for; everything else goes to standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/version"
)

// Exit codes (UX-CLI-5).
const (
	exitOK        = 0
	exitFailed    = 1
	exitUsage     = 2
	exitDiffers   = 3
	exitSignIn    = 4
	exitForbidden = 5
	exitMissing   = 6
	exitTimeout   = 7
	exitAway      = 8
)

// Streams are where a command reads and writes.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// app is what the commands of one run share.
type app struct {
	streams Streams
	server  string
	token   string
	output  string
}

// errDiffers ends a diff that found differences.
var errDiffers error = differs(exitDiffers)

// differs is errDiffers with the exit code that was asked for.
type differs int

// Error is empty: nothing went wrong.
func (differs) Error() string { return "" }

// found says whether a command ended because it found differences.
func found(err error) (code int, is bool) {
	var d differs
	is = errors.As(err, &d)
	return int(d), is
}

// usageError is a mistake in the words of a command.
type usageError struct{ error }

// Main runs a command line and gives the exit code of the process.
func Main(ctx context.Context, args []string, s Streams) int {
	a := &app{streams: s}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if _, differ := found(err); err != nil && !differ {
		fmt.Fprintln(s.Err, "capstan: "+say(err))
	}
	return exitCode(err)
}

// say is one line: what is wrong, what to do, and the reference.
func say(err error) string {
	var answer *answerError
	if errors.As(err, &answer) {
		return answer.sentence()
	}
	if e, ok := fault.As(err); ok && e.Fix != "" {
		return err.Error() + "; " + e.Fix
	}
	return err.Error()
}

func exitCode(err error) int {
	if code, differ := found(err); differ {
		return code
	}
	var usage usageError
	var answer *answerError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage), errors.Is(err, context.Canceled), strings.HasPrefix(err.Error(), "unknown command"), strings.HasPrefix(err.Error(), "unknown flag"), strings.HasPrefix(err.Error(), "required flag"):
		return exitUsage
	case errors.Is(err, errAway):
		return exitAway
	case errors.Is(err, errTimeout):
		return exitTimeout
	case errors.As(err, &answer):
		return answer.exitCode()
	}
	switch fault.KindOf(err) {
	case fault.Unknown:
		return exitSignIn
	case fault.Denied:
		return exitForbidden
	case fault.Missing:
		return exitMissing
	}
	return exitFailed
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "capstan",
		Short:         "Deliver applications from Git to clusters through a Capstan hub",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Long: `Deliver applications from Git to clusters through a Capstan hub.

Exit codes: 0 done, 1 failed, 2 wrong usage or cancelled, 3 differs (diff),
4 sign-in needed, 5 forbidden, 6 not found, 7 timed out, 8 the state cannot be
confirmed because the cluster's agent is away.

CAPSTAN_SERVER and CAPSTAN_TOKEN take the place of "capstan login".`,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", "", "URL of the hub (default: that of the last login)")
	flags.StringVar(&a.token, "token", "", "API token (default: that of the last login)")
	flags.StringVarP(&a.output, "output", "o", "table", "table, wide, json, yaml or name")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		a.loginCommand(), a.setupCommand(), a.logoutCommand(), a.whoamiCommand(), a.versionCommand(),
		a.applyCommand(), a.applicationCommand(), a.clusterCommand(), a.repositoryCommand(), a.certificateCommand(),
		a.projectCommand(), a.tenantCommand(), a.tokenCommand(), a.auditCommand(), a.settingsCommand(), a.adminCommand(),
	)
	return root
}

// noun groups the verbs of one kind of thing.
func noun(use, short string, aliases []string, verbs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Aliases: aliases, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(verbs...)
	return c
}

// exactly asks for named arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usageError{fmt.Errorf("no argument is expected, %d given", len(args))}
		}
		return usageError{fmt.Errorf("expected %s", strings.Join(names, " and "))}
	}
}
