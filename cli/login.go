package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/version"
)

func (a *app) loginCommand() *cobra.Command {
	var tenant, username, name string
	var passwordIn, tokenIn bool
	var browser singleSignOn
	var job jobToken
	var device bool
	c := &cobra.Command{
		Use: "login URL", Short: "Sign in to a hub", Args: cobra.MaximumNArgs(1),
		Example: "  capstan login https://capstan.example.com\n  capstan login https://capstan.example.com --username jane --password-stdin < secret\n  capstan login https://capstan.example.com --token-stdin < token\n  capstan login https://capstan.example.com --sso --tenant acme\n  capstan login https://capstan.example.com --device\n  capstan login https://capstan.example.com --tenant acme --id-token-file token.jwt",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.target(args)
			if err != nil {
				return err
			}
			cfg.Name = cmp.Or(name, cfg.Name)
			if browser.on {
				return a.signInByBrowser(cmd.Context(), cfg, tenant, browser)
			}
			if device {
				return a.signInByDevice(cmd.Context(), cfg, tenant)
			}
			if job.file != "" {
				return a.signInByJob(cmd.Context(), cfg, tenant, job)
			}
			return a.signIn(cmd.Context(), cfg, credentials{tenant, username, passwordIn, tokenIn})
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "organisation (default: default)")
	c.Flags().StringVarP(&username, "username", "u", "", "user name; asked for if absent")
	c.Flags().BoolVar(&passwordIn, "password-stdin", false, "read the password from standard input")
	c.Flags().BoolVar(&tokenIn, "token-stdin", false, "read an API token from standard input")
	c.Flags().StringVar(&name, "name", "", "name of the context for this sign-in (default: host and path of the hub)")
	browser.flags(c.Flags())
	job.flags(c.Flags())
	deviceFlag(c, &device)
	c.MarkFlagsMutuallyExclusive("sso", "device", "password-stdin", "token-stdin", "id-token-file")
	c.MarkFlagsMutuallyExclusive("sso", "device", "username")
	return c
}

// reloginCommand signs in again where a session has ended.
func (a *app) reloginCommand() *cobra.Command {
	var passwordIn, tokenIn, device bool
	var browser singleSignOn
	c := &cobra.Command{
		Use: "relogin", Short: "Sign in again to the hub of the current context", Args: usage.Exactly(),
		Example: "  capstan relogin\n  capstan relogin --context prod --password-stdin < secret\n  capstan relogin --sso\n  capstan relogin --device",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if browser.on {
				return a.signInByBrowser(cmd.Context(), cfg, cfg.Tenant, browser)
			}
			if device {
				return a.signInByDevice(cmd.Context(), cfg, cfg.Tenant)
			}
			return a.signIn(cmd.Context(), cfg, credentials{cfg.Tenant, cfg.User, passwordIn, tokenIn})
		},
	}
	c.Flags().BoolVar(&passwordIn, "password-stdin", false, "read the password from standard input")
	c.Flags().BoolVar(&tokenIn, "token-stdin", false, "read an API token from standard input")
	browser.flags(c.Flags())
	deviceFlag(c, &device)
	c.MarkFlagsMutuallyExclusive("sso", "device", "password-stdin", "token-stdin")
	return c
}

func deviceFlag(c *cobra.Command, on *bool) {
	c.Flags().BoolVar(on, "device", false, "show a code to type in a browser, which may be on another machine")
}

// credentials are what a sign-in is given, and from where the rest is read.
type credentials struct {
	tenant, username    string
	passwordIn, tokenIn bool
}

// signIn proves who somebody is, by token or by password, and stores that.
func (a *app) signIn(ctx context.Context, cfg session.Context, who credentials) (err error) {
	if who.tokenIn {
		if cfg.Token, err = a.secret(""); err != nil {
			return err
		}
		return a.storeSignIn(ctx, cfg)
	}
	if a.choice.Token != "" {
		cfg.Token = a.choice.Token
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
	api, err := session.NewClient(cfg)
	if err != nil {
		return err
	}
	mode := apimodel.SignInMode("token")
	in, _, err := client.Call[apimodel.SignedInAnswer](api.Login(ctx, apimodel.LoginJSONRequestBody{
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
			api, err := session.NewClient(cfg)
			if err != nil {
				return err
			}
			mode := apimodel.SignInMode("token")
			in, _, err := client.Call[apimodel.SignedInAnswer](api.Setup(cmd.Context(), apimodel.SetupJSONRequestBody{
				Token: secret, Username: username, Password: password, Mode: mode,
			}))
			if err != nil {
				return err
			}
			cfg.Name, cfg.Token = cmp.Or(name, cfg.Name), in.Token
			return a.storeSignIn(cmd.Context(), cfg)
		},
	}
	c.Flags().StringVar(&name, "name", "", "name of the context for this sign-in (default: host and path of the hub)")
	c.Flags().StringVar(&secret, "setup-token", "", "the secret of the setup link")
	c.Flags().StringVarP(&username, "username", "u", "admin", "user name of the new account")
	_ = c.MarkFlagRequired("setup-token")
	return c
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End the session and forget it", Args: usage.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if api, err := session.NewClient(cfg); err == nil {
				if _, err := client.Read(api.Logout(cmd.Context())); err != nil && exit.Of(err) != exit.SignIn {
					a.Note("capstan: warning: the hub did not end the session: %s", exit.Say(err))
				}
			}
			cfg.Token = ""
			return session.Save(cfg, a.Err)
		},
	}
}

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Say who is signed in, and what they may do", Args: usage.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			me, raw, err := client.Call[apimodel.Me](api.GetMe(cmd.Context()))
			if err != nil {
				return err
			}
			return a.Print(raw, output.Table{
				Head:  []string{"USER", "TENANT", "ROLES", "VIA"},
				Rows:  [][]string{{me.Username, me.Tenant, output.Dash(strings.Join(me.Roles, ",")), string(me.Via)}},
				Names: []string{me.Username},
			})
		},
	}
}

func (a *app) versionCommand() *cobra.Command {
	var alone bool
	c := &cobra.Command{
		Use: "version", Short: "Print the versions of this command and of the hub", Args: usage.Exactly(),
		Example: "  capstan version\n  capstan version -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			type release struct {
				Version string `json:"version"`
			}
			out := struct {
				Client release  `json:"client"`
				Hub    *release `json:"hub,omitempty"`
			}{Client: release{version.String()}}
			t := output.Table{Head: []string{"PART", "VERSION"}, Rows: [][]string{{"client", out.Client.Version}}, Names: []string{"client/" + out.Client.Version}}
			// Without a hub the client's version is all there is to say.
			if api, err := a.client(); err == nil && !alone {
				hub, _, err := client.Call[release](api.GetVersion(cmd.Context()))
				if err != nil {
					return err
				}
				out.Hub = &hub
				t.Rows, t.Names = append(t.Rows, []string{"hub", hub.Version}), append(t.Names, "hub/"+hub.Version)
			}
			return a.PrintValue(out, t)
		},
	}
	c.Flags().BoolVar(&alone, "client", false, "of this command alone, without a request")
	return c
}

// target is the hub that a sign-in is for.
func (a *app) target(args []string) (session.Context, error) {
	server := cmp.Or(append(args, a.choice.Server, os.Getenv("CAPSTAN_SERVER"))...)
	if server == "" {
		cfg, err := a.load()
		if err != nil {
			return cfg, usage.Errorf("expected the URL of a hub")
		}
		return session.Context{Name: cfg.Name, Server: cfg.Server, Transport: a.choice.Transport}, nil
	}
	server = a.choice.Transport.Address(server)
	return session.Context{Name: cmp.Or(a.choice.Context, session.NameOf(server)), Server: server, Transport: a.choice.Transport}, nil
}

// storeSignIn stores a sign-in after it was proved to work.
func (a *app) storeSignIn(ctx context.Context, cfg session.Context) error {
	api, err := session.NewClient(cfg)
	if err != nil {
		return err
	}
	me, _, err := client.Call[apimodel.Me](api.GetMe(ctx))
	if err != nil {
		return err
	}
	cfg.User, cfg.Tenant = me.Username, me.Tenant
	if err := session.Save(cfg, a.Err); err != nil {
		return err
	}
	a.Note("Signed in to %s as %s (organisation %s).", cfg.Server, me.Username, me.Tenant)
	return nil
}

func (a *app) promptFor(prompt string) (string, error) {
	if !a.interactive() {
		return "", usage.Errorf("--username is needed without a terminal; --device signs in with a browser of another machine")
	}
	fmt.Fprint(a.Err, prompt)
	line, err := bufio.NewReader(a.in).ReadString('\n')
	return strings.TrimSpace(line), err
}

// ask is promptFor where there may be no terminal.
func (a *app) ask(prompt string) (string, bool, error) {
	if !a.interactive() {
		return "", false, nil
	}
	line, err := a.promptFor(prompt)
	return line, true, err
}

// secret reads a secret without showing it, or the first line of standard
// input where there is no terminal.
func (a *app) secret(prompt string) (string, error) {
	if f, ok := a.in.(*os.File); ok && prompt != "" && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(a.Err, prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.Err)
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
	return ok && a.compat.Prompts(a.Err) && term.IsTerminal(int(f.Fd()))
}

// load returns the hub that is meant and who is signed in there.
func (a *app) load() (session.Context, error) { return a.choice.Load(a.Err) }

// client opens the API of the hub.
func (a *app) client() (*client.Client, error) {
	c, err := a.load()
	if err != nil {
		return nil, err
	}
	return session.NewClient(c)
}
