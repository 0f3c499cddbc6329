// Command capstan-hub is the hub: it renders manifests from Git and hands
// them to the agents. Run it without arguments for its commands.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/hub/daemon"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/plugin"
	"github.com/capstan-cd/capstan/hub/render/worker"
	"github.com/capstan-cd/capstan/hub/secret"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/version"
)

func main() {
	// A rendering worker is this binary under another name: it must become
	// one before anything else happens in the process.
	if len(os.Args) > 1 && os.Args[1] == render.WorkerCommand {
		os.Exit(worker.Main(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == plugin.ProgramCommand {
		os.Exit(plugin.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Whoever signals twice does not want to wait for an orderly end.
	context.AfterFunc(ctx, stop)
	if err := commands().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "capstan-hub: "+say(err))
		os.Exit(1)
	}
}

// say prefers the sentence for people; an operator may see the chain as well.
func say(err error) string {
	if e, ok := fault.As(err); ok && e.Fix != "" {
		return err.Error() + " (" + e.Fix + ")"
	}
	return err.Error()
}

func commands() *cobra.Command {
	root := &cobra.Command{
		Use: "capstan-hub", Short: "The hub of Capstan: GitOps continuous delivery for many teams and clusters",
		SilenceUsage: true, SilenceErrors: true, Version: version.String(),
	}
	var file string
	root.PersistentFlags().StringVar(&file, "config", "/etc/capstan/hub.yaml", "configuration file")
	with := func(use, short string, do func(context.Context, daemon.Config) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := daemon.Load(file)
			if err != nil {
				return err
			}
			return do(cmd.Context(), cfg)
		}}
	}
	root.AddCommand(
		with("serve", "Serve the API, the console and the agents", daemon.Run),
		with("migrate", "Bring the database's schema up to date, as its owner", func(ctx context.Context, cfg daemon.Config) error {
			if cfg.Database.Owner == "" {
				return fault.New(fault.Invalid, "database.owner is not set in %s", file)
			}
			return store.Migrate(ctx, cfg.Database.Owner, daemon.Logger(cfg.Log))
		}),
		with("setup-link", "Print a link that makes an admin of the tenant `default`, once", func(ctx context.Context, cfg daemon.Config) error {
			link, err := daemon.SetupLink(ctx, cfg)
			if err == nil {
				fmt.Println(link)
			}
			return err
		}),
		with("restored", "Say that the database was restored from a backup: agents accept no change, and enrolment and pruning stop, until an admin accepts the hub's state", func(ctx context.Context, cfg daemon.Config) error {
			n, err := daemon.Restored(ctx, cfg)
			if err == nil {
				fmt.Printf("%d clusters wait for a decision: capstan cluster list, then capstan cluster accept-hub NAME (or --all)\n", n)
			}
			return err
		}),
		masterKey(),
	)
	root.AddCommand(hidden()...)
	return root
}

func masterKey() *cobra.Command {
	return &cobra.Command{
		Use: "master-key FILE", Short: "Make a master key in a new file", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := secret.Create(args[0])
			return err
		},
	}
}
