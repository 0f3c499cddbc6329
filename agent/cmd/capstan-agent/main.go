// Command capstan-agent keeps one cluster as its hub has accepted it. Run it
// without arguments for its commands.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/agent/daemon"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := commands().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "capstan-agent: "+say(err))
		os.Exit(1)
	}
}

// say adds what to do about an error.
func say(err error) string {
	if e, ok := fault.As(err); ok && e.Fix != "" {
		return err.Error() + " (" + e.Fix + ")"
	}
	return err.Error()
}

func commands() *cobra.Command {
	root := &cobra.Command{
		Use: "capstan-agent", Short: "The agent of Capstan: keeps one cluster as its hub has accepted it",
		SilenceUsage: true, SilenceErrors: true, Version: version.String(),
	}
	root.AddCommand(runCommand(), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
			return err
		},
	})
	root.AddCommand(hidden()...)
	return root
}

// runCommand takes its settings from flags, and where a flag is not given
// from the environment.
func runCommand() *cobra.Command {
	var c daemon.Config
	var level string
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent until it is asked to stop", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// An agent idles beside people's workloads: memory counts for
			// more than the little work of collecting it twice as often.
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(50)
			}
			log, err := logger(level)
			if err != nil {
				return err
			}
			c.Log = log
			return daemon.Run(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.StateDir, "state-dir", env("CAPSTAN_STATE_DIR", "/var/lib/capstan-agent"), "directory for what must survive a restart (CAPSTAN_STATE_DIR)")
	f.StringVar(&c.Namespace, "namespace", env("CAPSTAN_NAMESPACE", "capstan-system"), "namespace of the agent's Secret and Lease (CAPSTAN_NAMESPACE)")
	f.StringVar(&c.Kubeconfig, "kubeconfig", env("KUBECONFIG", ""), "file to reach the cluster with; empty: the pod's own rights (KUBECONFIG)")
	f.StringVar(&c.JoinTokenFile, "join-token-file", env("CAPSTAN_JOIN_TOKEN_FILE", ""), "file with the join token of the first start (CAPSTAN_JOIN_TOKEN_FILE)")
	f.StringVar(&c.Mode, "mode", env("CAPSTAN_MODE", daemon.ModeCluster), "what the agent may do: cluster, namespaced or observe (CAPSTAN_MODE)")
	f.StringSliceVar(&c.Namespaces, "namespaces", list(env("CAPSTAN_NAMESPACES", "")), "the namespaces that it manages in mode namespaced, or sees in mode observe (CAPSTAN_NAMESPACES)")
	f.StringVar(&c.GuardFile, "guard-file", env("CAPSTAN_GUARD_FILE", ""), "file with rules that the hub cannot change (CAPSTAN_GUARD_FILE)")
	f.StringVar(&c.FieldManager, "field-manager", env("CAPSTAN_FIELD_MANAGER", ""), "name under which fields are owned; empty: capstan (CAPSTAN_FIELD_MANAGER)")
	f.StringVar(&level, "log-level", env("CAPSTAN_LOG_LEVEL", "info"), "debug, info, warn or error (CAPSTAN_LOG_LEVEL)")
	return cmd
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// list reads comma-separated words.
func list(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fault.New(fault.Invalid, "log level %q is not one of debug, info, warn, error", level)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}
