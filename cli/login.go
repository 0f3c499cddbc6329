package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/version"
)

func (a *app) loginCommand() *cobra.Command {
	var tenant, username, name string
	var passwordIn, tokenIn bool
	c := &cobra.Command{
		Use: "login URL", Short: "Sign in to a hub", Args: cobra.MaximumNArgs(1),
		Example: "  capstan login https://capstan.example.com\n  capstan login https://capstan.example.com --username jane --password-stdin < secret\n  capstan login https://capstan.example.com --token-stdin < token",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.target(args)
			if err != nil {
				return err
			}
			cfg.Name = first(name, cfg.Name)
			return a.signIn(cmd.Context(), cfg, credentials{tenant, username, passwordIn, tokenIn})
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "organisation (default: default)")
	c.Flags().StringVarP(&username, "username", "u", "", "user name; asked for if absent")
	c.Flags().BoolVar(&passwordIn, "password-stdin", false, "read the password from standard input")
	c.Flags().BoolVar(&tokenIn, "token-stdin", false, "read an API token from standard input")
	c.Flags().StringVar(&name, "name", "", "name of the context for this sign-in (default: the host of the hub)")
	return c
}

// reloginCommand signs in again where a session has ended.
func (a *app) reloginCommand() *cobra.Command {
	var passwordIn, tokenIn bool
	c := &cobra.Command{
		Use: "relogin", Short: "Sign in again to the hub of the current context", Args: exactly(),
		Example: "  capstan relogin\n  capstan relogin --context prod --password-stdin < secret",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return a.signIn(cmd.Context(), cfg, credentials{cfg.Tenant, cfg.User, passwordIn, tokenIn})
		},
	}
	c.Flags().BoolVar(&passwordIn, "password-stdin", false, "read the password from standard input")
	c.Flags().BoolVar(&tokenIn, "token-stdin", false, "read an API token from standard input")
	return c
}

// credentials are what a sign-in is given, and from where the rest is read.
type credentials struct {
	tenant, username    string
	passwordIn, tokenIn bool
}

// signIn proves who somebody is, by token or by password, and stores that.
func (a *app) signIn(ctx context.Context, cfg config, who credentials) (err error) {
	if who.tokenIn {
		if cfg.Token, err = a.secret(""); err != nil {
			return err
		}
		return a.storeSignIn(ctx, cfg)
	}
	if a.choice.token != "" {
		cfg.Token = a.choice.token
		return a.storeSignIn(ctx, cfg)
	}
	if who.username == "" {
		if who.username, err = a.promptFor("User name: "); err != nil {
			return err
		}
	}
	prompt := "Password: "
	if who.passwordIn {
		prompt = ""
	}
	password, err := a.secret(prompt)
	if err != nil {
		return err
	}
	cfg.Token = "" // of a session that may have ended
	api, err := newClient(cfg)
	if err != nil {
		return err
	}
	mode := apimodel.SignInMode("token")
	in, _, err := call[apimodel.SignedInAnswer](api.Login(ctx, apimodel.LoginJSONRequestBody{
		Username: who.username, Password: password, Tenant: who.tenant, Mode: mode,
	}))
	if err != nil {
		return err
	}
	cfg.Token = in.Token
	return a.storeSignIn(ctx, cfg)
}

func (a *app) setupCommand() *cobra.Command {
	var secret, username, name string
	c := &cobra.Command{
		Use: "setup URL", Short: "Make the first account of an organisation with a one-time setup token", Args: cobra.MaximumNArgs(1),
		Example: "  capstan setup https://capstan.example.com --setup-token TOKEN --username admin\n  capstan setup https://capstan.example.com --setup-token TOKEN < password",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.target(args)
			if err != nil {
				return err
			}
			password, err := a.secret("New password (at least 12 characters): ")
			if err != nil {
				return err
			}
			api, err := newClient(cfg)
			if err != nil {
				return err
			}
			mode := apimodel.SignInMode("token")
			in, _, err := call[apimodel.SignedInAnswer](api.Setup(cmd.Context(), apimodel.SetupJSONRequestBody{
				Token: secret, Username: username, Password: password, Mode: mode,
			}))
			if err != nil {
				return err
			}
			cfg.Name, cfg.Token = first(name, cfg.Name), in.Token
			return a.storeSignIn(cmd.Context(), cfg)
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the context for this sign-in (default: the host of the hub)")
	c.Flags().StringVar(&secret, "setup-token", "", "the secret of the setup link")
	c.Flags().StringVarP(&username, "username", "u", "admin", "user name of the new account")
	_ = c.MarkFlagRequired("setup-token")
	return c
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End the session and forget it", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if api, err := newClient(cfg); err == nil {
				if _, err := read(api.Logout(cmd.Context())); err != nil && exitCode(err) != exitSignIn {
					a.note("capstan: warning: the hub did not end the session: %s", say(err))
				}
			}
			cfg.Token = ""
			return save(cfg, a.err)
		},
	}
}

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Say who is signed in, and what they may do", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			me, raw, err := call[apimodel.Me](api.GetMe(cmd.Context()))
			if err != nil {
				return err
			}
			return a.print(raw, table{
				head: []string{"USER", "TENANT", "ROLES", "VIA"},
				rows: [][]string{{me.Username, me.Tenant, dash(strings.Join(me.Roles, ",")), string(me.Via)}},
				name: []string{me.Username},
			})
		},
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of this command and of the hub", Args: exactly(),
		Example: "  capstan version\n  capstan version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			type release struct {
				Version string `json:"version"`
			}
			out := struct {
				Client release  `json:"client"`
				Hub    *release `json:"hub,omitempty"`
			}{Client: release{version.String()}}
			t := table{head: []string{"PART", "VERSION"}, rows: [][]string{{"client", out.Client.Version}}, name: []string{"client/" + out.Client.Version}}
			// Without a hub the client's version is all there is to say.
			if api, err := a.client(); err == nil {
				hub, _, err := call[release](api.GetVersion(cmd.Context()))
				if err != nil {
					return err
				}
				out.Hub = &hub
				t.rows, t.name = append(t.rows, []string{"hub", hub.Version}), append(t.name, "hub/"+hub.Version)
			}
			return a.printValue(out, t)
		},
	}
}

// target is the hub that a sign-in is for.
func (a *app) target(args []string) (config, error) {
	server := first(append(args, a.choice.server, os.Getenv("CAPSTAN_SERVER"))...)
	if server == "" {
		cfg, err := a.load()
		if err != nil {
			return cfg, usageErrorf("expected the URL of a hub")
		}
		return config{Name: cfg.Name, Server: cfg.Server}, nil
	}
	server = strings.TrimSuffix(server, "/")
	return config{Name: first(a.choice.context, contextOf(server)), Server: server}, nil
}

// storeSignIn stores a sign-in after it was proved to work.
func (a *app) storeSignIn(ctx context.Context, cfg config) error {
	api, err := newClient(cfg)
	if err != nil {
		return err
	}
	me, _, err := call[apimodel.Me](api.GetMe(ctx))
	if err != nil {
		return err
	}
	cfg.User, cfg.Tenant = me.Username, me.Tenant
	if err := save(cfg, a.err); err != nil {
		return err
	}
	a.note("Signed in to %s as %s (organisation %s).", cfg.Server, me.Username, me.Tenant)
	return nil
}

func (a *app) promptFor(prompt string) (string, error) {
	if !a.interactive() {
		return "", usageErrorf("--username is needed without a terminal")
	}
	fmt.Fprint(a.err, prompt)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	return strings.TrimSpace(line), err
}

// secret reads a secret without showing it, or the first line of standard
// input where there is no terminal.
func (a *app) secret(prompt string) (string, error) {
	if f, ok := a.in.(*os.File); ok && prompt != "" && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(a.err, prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.err)
		return string(b), err
	}
	b, err := io.ReadAll(io.LimitReader(a.in, 64<<10))
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimRight(line, "\r"); line == "" {
		return "", fault.New(fault.Invalid, "standard input contains no secret")
	}
	return line, nil
}

func (a *app) interactive() bool {
	f, ok := a.in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// load returns the hub that is meant and who is signed in there.
func (a *app) load() (config, error) { return a.choice.load(a.err) }

// client opens the API of the hub.
func (a *app) client() (*client.Client, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	return newClient(c)
}
