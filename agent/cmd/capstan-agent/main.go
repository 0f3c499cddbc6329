// Command capstan-agent enforces in one cluster what its hub has accepted. Run
// it without arguments for its commands.
package main

import (
	"context"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/agent/daemon"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/telemetry"
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

// say adds to an error what to do.
func say(err error) string {
	if e, ok := fault.As(err); ok && e.Fix != "" {
		return err.Error() + " (" + e.Fix + ")"
	}
	return err.Error()
}

func commands() *cobra.Command {
	root := &cobra.Command{
		Use: "capstan-agent", Short: "The agent of Capstan: enforces in one cluster what its hub has accepted",
		SilenceUsage: true, SilenceErrors: true, Version: version.String(),
	}
	root.AddCommand(runCommand(), doctorCommand(), upgradeCommand(), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
			return err
		},
	})
	root.AddCommand(hidden()...)
	return root
}

// runCommand reads its settings from flags, and for flags that are not set from
// the environment.
func runCommand() *cobra.Command {
	var c daemon.Config
	var level, format string
	cmd := &cobra.Command{
		Use: "run", Short: "Run the agent until it is asked to stop", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// An idle agent shares the node with workloads: memory matters more
			// than the CPU time of more frequent garbage collection.
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(50)
			}
			if text := os.Getenv("CAPSTAN_WATCHDOG"); text != "" && !cmd.Flags().Changed("watchdog") {
				d, err := time.ParseDuration(text)
				if err != nil {
					return fault.New(fault.Invalid, "CAPSTAN_WATCHDOG %q is not a duration; write it like 10m", text)
				}
				c.Watchdog = d
			}
			if err := waveDelay(&c, os.Getenv("ARGOCD_SYNC_WAVE_DELAY"), cmd.Flags().Changed("wave-delay")); err != nil {
				return err
			}
			log, variable, err := logger(level, format)
			if err != nil {
				return err
			}
			c.Log = log
			lifecycle.BoundMemory(0.9, 0, log)
			defer switchable(cmd.Context(), log, variable)()
			return daemon.Run(cmd.Context(), c)
		},
	}
	flags(cmd.Flags(), &c)
	cmd.Flags().DurationVar(&c.Watchdog, "watchdog", 10*time.Minute, "exit, to be restarted, when the hub has not replied for this time; negative: never (CAPSTAN_WATCHDOG)")
	cmd.Flags().DurationVar(&c.WaveDelay, "wave-delay", 0, "pause between two waves of a sync, at most 1m; the tenant's setting and an application's option win (ARGOCD_SYNC_WAVE_DELAY, in seconds)")
	cmd.Flags().StringVar(&c.Listen, "listen", env("CAPSTAN_LISTEN", ""), "address for /livez, /readyz and /metrics, such as 127.0.0.1:8081; empty: none (CAPSTAN_LISTEN)")
	cmd.Flags().BoolVar(&c.Profiles, "profiles", env("CAPSTAN_PROFILES", "") == "true", "serve /debug/pprof at --listen too (CAPSTAN_PROFILES=true)")
	cmd.Flags().BoolVar(&c.Upgrades, "upgrades", env("CAPSTAN_UPGRADES", "") == "true", "let the hub exchange the agent's image (CAPSTAN_UPGRADES=true)")
	cmd.Flags().StringSliceVar(&c.UpgradeRepositories, "upgrade-repositories", list(env("CAPSTAN_UPGRADE_REPOSITORIES", "")), "repositories that images may be of, besides that of the present one (CAPSTAN_UPGRADE_REPOSITORIES)")
	c.Upgrade = env("CAPSTAN_UPGRADE", "") // the pod's annotation
	cmd.Flags().StringVar(&level, "log-level", env("CAPSTAN_LOG_LEVEL", "info"), "debug, info, warn or error (CAPSTAN_LOG_LEVEL)")
	cmd.Flags().StringVar(&format, "log-format", env("CAPSTAN_LOG_FORMAT", "text"), "text or json (CAPSTAN_LOG_FORMAT)")
	return cmd
}

// waveDelay reads the pause between waves from the environment in seconds, as
// Argo CD's controller does; a flag has precedence.
func waveDelay(c *daemon.Config, text string, given bool) error {
	if text == "" || given {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fault.New(fault.Invalid, "ARGOCD_SYNC_WAVE_DELAY %q is not a number of seconds; write it like 2", text)
	}
	c.WaveDelay = time.Duration(n) * time.Second
	return nil
}

// doctorCommand checks what `run` needs, with the same settings.
func doctorCommand() *cobra.Command {
	var c daemon.Config
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check step by step what the agent needs, and say what is wrong", Args: cobra.NoArgs,
		Long: "Check the way to the cluster's API server and to the hub, step by step, with the settings that `run` has. " +
			"It changes nothing, and works before enrolment and while an agent runs. The exit code is 0 if every check succeeds.",
		RunE: func(cmd *cobra.Command, _ []string) error { return daemon.Doctor(cmd.Context(), c, cmd.OutOrStdout()) },
	}
	flags(cmd.Flags(), &c)
	return cmd
}

// upgradeCommand is the command of the updater's Job, which the agent starts
// with another service account for an upgrade.
func upgradeCommand() *cobra.Command {
	var c daemon.Config
	var o daemon.UpgradeOrder
	var level, format string
	cmd := &cobra.Command{
		Use: "upgrade", Short: "Exchange the image of the agent's Deployment, and bring the former one back if the new one does not connect", Args: cobra.NoArgs,
		Long: "The agent starts this as a Job when its hub requests an upgrade; `capstan cluster upgrade` does that. It can be killed and restarted: " +
			"how far it is stands in an annotation of the Deployment.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, variable, err := logger(level, format)
			if err != nil {
				return err
			}
			c.Log = log
			defer switchable(cmd.Context(), log, variable)()
			return daemon.Upgrade(cmd.Context(), c, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Namespace, "namespace", env("CAPSTAN_NAMESPACE", "capstan-system"), "namespace of the agent (CAPSTAN_NAMESPACE)")
	f.StringVar(&c.Kubeconfig, "kubeconfig", env("KUBECONFIG", ""), "file to reach the cluster with; empty: the pod's own rights (KUBECONFIG)")
	f.StringVar(&o.ID, "id", "", "the order's id, a UUID")
	f.StringVar(&o.Image, "image", "", "full reference of the new image")
	f.StringVar(&o.Ordered, "ordered", "", "when it was ordered, in RFC 3339")
	f.StringVar(&o.BeginBefore, "begin-before", "", "when it must not begin any more, in RFC 3339")
	f.DurationVar(&o.Deadline, "deadline", 5*time.Minute, "how long the new version has to connect to the hub")
	f.StringVar(&level, "log-level", env("CAPSTAN_LOG_LEVEL", "info"), "debug, info, warn or error (CAPSTAN_LOG_LEVEL)")
	f.StringVar(&format, "log-format", env("CAPSTAN_LOG_FORMAT", "text"), "text or json (CAPSTAN_LOG_FORMAT)")
	return cmd
}

// flags are common to all commands of the agent.
func flags(f *pflag.FlagSet, c *daemon.Config) {
	f.StringVar(&c.StateDir, "state-dir", env("CAPSTAN_STATE_DIR", "/var/lib/capstan-agent"), "directory for what must survive a restart (CAPSTAN_STATE_DIR)")
	f.StringVar(&c.Namespace, "namespace", env("CAPSTAN_NAMESPACE", "capstan-system"), "namespace of the agent's Secret and Lease (CAPSTAN_NAMESPACE)")
	f.StringVar(&c.Kubeconfig, "kubeconfig", env("KUBECONFIG", ""), "file to reach the cluster with; empty: the pod's own rights (KUBECONFIG)")
	f.StringVar(&c.JoinTokenFile, "join-token-file", env("CAPSTAN_JOIN_TOKEN_FILE", ""), "file with the join token of the first start (CAPSTAN_JOIN_TOKEN_FILE)")
	f.StringVar(&c.Mode, "mode", env("CAPSTAN_MODE", daemon.ModeCluster), "what the agent may do: cluster, namespaced or observe (CAPSTAN_MODE)")
	f.StringSliceVar(&c.Namespaces, "namespaces", list(env("CAPSTAN_NAMESPACES", "")), "the namespaces that it manages in mode namespaced, or sees in mode observe (CAPSTAN_NAMESPACES)")
	f.StringVar(&c.GuardFile, "guard-file", env("CAPSTAN_GUARD_FILE", ""), "file with rules that the hub cannot change (CAPSTAN_GUARD_FILE)")
	f.StringVar(&c.SecretsFile, "secrets-file", env("CAPSTAN_SECRETS_FILE", ""), "file with the policy for references to secrets, which the hub cannot change (CAPSTAN_SECRETS_FILE)")
	f.StringSliceVar(&c.OwnRoles, "own-roles", list(env("CAPSTAN_OWN_ROLES", "")), "names of further roles and bindings that grant the agent its rights, and that no manifest may change (CAPSTAN_OWN_ROLES)")
	f.StringVar(&c.FieldManager, "field-manager", env("CAPSTAN_FIELD_MANAGER", ""), "name under which fields are owned; empty: capstan (CAPSTAN_FIELD_MANAGER)")
	// A password in the environment must not appear as a default in --help.
	c.HTTPSProxy, c.NoProxy = proxyEnv("HTTPS_PROXY"), proxyEnv("NO_PROXY")
	f.Var(setter{&c.HTTPSProxy}, "https-proxy", "HTTP proxy for the hub, http://[user:password@]host:port; put a password into the environment instead (HTTPS_PROXY)")
	f.Var(setter{&c.NoProxy}, "no-proxy", "hosts and networks that are reached without the proxy, separated by commas (NO_PROXY)")
	f.StringVar(&c.ProxyCAFile, "outer-ca-file", env("CAPSTAN_OUTER_CA_FILE", ""), "file of authorities (PEM) that, besides the system's, must have signed the certificate of a load balancer or TLS-inspecting proxy in front of the hub; empty: only the hub's own key is checked (CAPSTAN_OUTER_CA_FILE)")
}

// setter is a flag that does not show its default.
type setter struct{ to *string }

// String hides the value.
func (setter) String() string { return "" }

// Set sets the flag's value.
func (s setter) Set(v string) error {
	*s.to = v
	return nil
}

// Type names the kind of value in help texts.
func (setter) Type() string { return "string" }

// proxyEnv reads a variable that is written in capitals or small letters.
func proxyEnv(name string) string { return env(name, os.Getenv(strings.ToLower(name))) }

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

func logger(level, format string) (*slog.Logger, *slog.LevelVar, error) {
	if format != "text" && format != "json" {
		return nil, nil, fault.New(fault.Invalid, "log format %q is not one of text, json", format)
	}
	variable := new(slog.LevelVar)
	if err := variable.UnmarshalText([]byte(level)); err != nil {
		return nil, nil, fault.New(fault.Invalid, "log level %q is not one of debug, info, warn, error", level)
	}
	return telemetry.NewLog(os.Stderr, format, variable), variable, nil
}

// switchable makes SIGHUP switch the log level to debug and back, until the
// returned function is called.
func switchable(ctx context.Context, log *slog.Logger, level *slog.LevelVar) func() {
	configured := level.Level()
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-hup:
				level.Set(telemetry.NextLevel(level.Level(), configured))
				log.WarnContext(ctx, "log level changed", logkey.Level, level.Level())
			}
		}
	}()
	return func() {
		signal.Stop(hup)
		close(done)
		<-ended
	}
}
