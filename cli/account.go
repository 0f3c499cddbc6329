package cli

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/bcrypt"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

func (a *app) accountCommand() *cobra.Command {
	return noun("account", "Accounts of the organisation, their passwords and tokens", []string{"accounts", "user", "users"},
		a.accountList(), a.accountGet(), a.accountCreate(), a.accountDelete(), a.accountPassword(), a.accountGenerate(), a.accountDeleteToken(), a.accountSessions(), a.accountSignOut(),
		a.accountBcrypt(), a.accountSessionToken(), a.accountUserInfo())
}

func accountTable(all []apimodel.User) output.Table {
	t := output.Table{Head: []string{"NAME", "ENABLED", "CAPABILITIES", "ROLES", "FROM"}}
	for _, u := range all {
		t.Rows = append(t.Rows, []string{
			u.Name, strconv.FormatBool(!u.Disabled), output.Dash(strings.Join(u.Capabilities, ", ")), output.Dash(strings.Join(u.Roles, ",")), output.Dash(u.Origin),
		})
		t.Names = append(t.Names, "account/"+u.Name)
	}
	return t
}

func (a *app) accountList() *cobra.Command {
	return a.plain("list", "List accounts", "  capstan account list\n  capstan account list -o name", func(cmd *cobra.Command, api *client.Client) error {
		l, raw, err := client.Call[struct {
			Items []apimodel.User `json:"items"`
		}](api.ListUsers(cmd.Context()))
		if err != nil {
			return err
		}
		return a.Print(raw, accountTable(l.Items))
	})
}

// ownAccount is the account that a flag names, or that of who is signed in.
func ownAccount(cmd *cobra.Command, api *client.Client, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	me, _, err := client.Call[apimodel.Me](api.GetMe(cmd.Context()))
	return me.Username, err
}

func (a *app) accountGet() *cobra.Command {
	var name string
	c := a.plain("get", "Show an account and its tokens", "  capstan account get\n  capstan account get --account ci", func(cmd *cobra.Command, api *client.Client) error {
		name, err := ownAccount(cmd, api, name)
		if err != nil {
			return err
		}
		u, raw, err := client.Call[apimodel.User](api.GetUser(cmd.Context(), name))
		if err != nil {
			return err
		}
		if a.Format != "table" && a.Format != "wide" {
			return a.Print(raw, accountTable([]apimodel.User{u}))
		}
		l, _, err := client.Call[struct {
			Items []apimodel.Token `json:"items"`
		}](api.ListAccountTokens(cmd.Context(), name))
		if err != nil {
			return err
		}
		if err := a.Tabulate(accountTable([]apimodel.User{u})); err != nil {
			return err
		}
		fmt.Fprintln(a.Out)
		return a.Tabulate(tokenTable(l.Items))
	})
	c.Flags().StringVarP(&name, "account", "a", "", "name of the account (default: yours)")
	return c
}

func tokenTable(all []apimodel.Token) output.Table {
	t := output.Table{Head: []string{"ID", "NAME", "PREFIX", "CREATED", "EXPIRES", "USED"}}
	for _, x := range all {
		expires := "never"
		if !x.ExpiresAt.IsZero() {
			expires = x.ExpiresAt.Local().Format("2006-01-02 15:04 MST")
		}
		t.Rows = append(t.Rows, []string{x.Id, x.Name, x.Prefix, output.Ago(x.CreatedAt), expires, output.Ago(x.UsedAt)})
		t.Names = append(t.Names, "token/"+x.Id)
	}
	return t
}

func (a *app) accountCreate() *cobra.Command {
	var roles []string
	var service bool
	c := a.named("create NAME", "Make an account; its password is read from standard input", "the name of the account",
		"  capstan account create jane --role readonly < password\n  capstan account create ci --service",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			body := apimodel.CreateUserJSONRequestBody{Name: name, Roles: roles}
			if service {
				body.Capabilities = apimodel.Capabilities{"apiKey"}
			} else {
				var err error
				if body.Password, err = a.secret("Password of the account (at least 12 characters): "); err != nil {
					return err
				}
			}
			u, raw, err := client.Call[apimodel.User](api.CreateUser(cmd.Context(), body))
			if err != nil {
				return err
			}
			return a.Print(raw, accountTable([]apimodel.User{u}))
		})
	c.Flags().StringArrayVar(&roles, "role", nil, "role of the account: platform-admin, tenant-admin or readonly")
	c.Flags().BoolVar(&service, "service", false, "a service account: no password, tokens only")
	return c
}

func (a *app) accountDelete() *cobra.Command {
	var yes bool
	c := a.named("delete NAME", "Delete an account with its sessions and tokens", "the name of the account", "  capstan account delete jane --yes",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			if err := a.confirm(yes, "Delete account "+name+"?"); err != nil {
				return err
			}
			_, err := client.Read(api.DeleteUser(cmd.Context(), name))
			return err
		})
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// accountPassword changes the caller's password, or that of another account.
func (a *app) accountPassword() *cobra.Command {
	var name, current, fresh string
	c := a.plain("update-password", "Change the password of an account; all its sessions end",
		"  capstan account update-password\n  capstan account update-password --account jane\n  printf '%s\\n%s\\n' \"$OLD\" \"$NEW\" | capstan account update-password",
		func(cmd *cobra.Command, api *client.Client) error {
			me, err := ownAccount(cmd, api, "")
			if err != nil {
				return err
			}
			in := bufio.NewReader(a.in)
			own := name == "" || name == me
			if own && current == "" {
				if current, err = a.secretOf(in, "Your current password: "); err != nil {
					return err
				}
			}
			if fresh == "" {
				if fresh, err = a.secretOf(in, "New password (at least 12 characters): "); err != nil {
					return err
				}
			}
			if own {
				_, err = client.Read(api.ChangePassword(cmd.Context(), apimodel.ChangePasswordJSONRequestBody{Current: current, New: fresh}))
			} else {
				_, err = client.Read(api.UpdateUser(cmd.Context(), name, apimodel.UpdateUserJSONRequestBody{Password: fresh}))
			}
			if err == nil {
				a.Note("The password of %s is changed. All sessions of the account have ended.", cmp.Or(name, me))
			}
			return err
		})
	c.Flags().StringVar(&name, "account", "", "name of the account (default: yours)")
	c.Flags().StringVar(&current, "current-password", "", "your current password; visible to other users of this machine: standard input is better")
	c.Flags().StringVar(&fresh, "new-password", "", "the new password; visible to other users of this machine: standard input is better")
	return c
}

// secretOf reads one secret of several: from the terminal without showing it, or
// a line of standard input.
func (a *app) secretOf(in *bufio.Reader, prompt string) (string, error) {
	if a.interactive() {
		return a.secret(prompt)
	}
	line, err := in.ReadString('\n')
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		if err != nil && err != io.EOF {
			return "", err
		}
		return "", fault.New(fault.Invalid, "standard input contains no secret")
	}
	return line, nil
}

func (a *app) accountGenerate() *cobra.Command {
	var name, id, life string
	c := a.plain("generate-token", "Make an API token of an account; it is shown once",
		"  capstan account generate-token\n  capstan account generate-token --account ci --id deploy --expires-in 720h",
		func(cmd *cobra.Command, api *client.Client) error {
			name, err := ownAccount(cmd, api, name)
			if err != nil {
				return err
			}
			n, raw, err := client.Call[apimodel.NewToken](api.CreateAccountToken(cmd.Context(), name, apimodel.CreateAccountTokenJSONRequestBody{Name: id, ExpiresIn: life}))
			if err != nil {
				return err
			}
			return a.printToken(n, raw)
		})
	c.Flags().StringVarP(&name, "account", "a", "", "name of the account (default: yours)")
	c.Flags().StringVar(&id, "id", "", "a name for the token (default: one that is made up)")
	c.Flags().StringVarP(&life, "expires-in", "e", "", "how long it can be used, such as 720h or 30d (default: 90 days, at most 366)")
	return c
}

// printToken prints the secret of a new token alone, for pipes.
func (a *app) printToken(n apimodel.NewToken, raw []byte) error {
	if a.Format == "table" || a.Format == "wide" {
		_, err := fmt.Fprintln(a.Out, n.Token)
		return err
	}
	return a.Print(raw, output.Table{Names: []string{"token/" + n.Info.Id}})
}

func (a *app) accountDeleteToken() *cobra.Command {
	var name string
	c := a.named("delete-token ID", "End an API token of an account, by its id or its name", "the id of the token",
		"  capstan account delete-token deploy --account ci",
		func(cmd *cobra.Command, api *client.Client, id string) error {
			name, err := ownAccount(cmd, api, name)
			if err != nil {
				return err
			}
			_, err = client.Read(api.DeleteAccountToken(cmd.Context(), name, id))
			return err
		})
	c.Flags().StringVarP(&name, "account", "a", "", "name of the account (default: yours)")
	return c
}

// accountBcrypt makes a hash as argocd-secret has it. It needs no hub.
func (a *app) accountBcrypt() *cobra.Command {
	var password string
	c := &cobra.Command{
		Use: "bcrypt", Short: "Make the hash of a password for argocd-secret", Args: usage.Exactly(),
		Example: "  capstan account bcrypt < password",
		RunE: func(*cobra.Command, []string) (err error) {
			if password == "" {
				if password, err = a.secret("Password: "); err != nil {
					return err
				}
			}
			hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
			if err != nil {
				return fault.New(fault.Invalid, "the password has more than 72 bytes, which bcrypt cannot hash")
			}
			_, err = fmt.Fprintln(a.Out, string(hash))
			return err
		},
	}
	c.Flags().StringVar(&password, "password", "", "the password; visible to other users of this machine: standard input is better")
	return c
}

func (a *app) accountSessionToken() *cobra.Command {
	return &cobra.Command{
		Use: "session-token", Short: "Print the secret of this sign-in, for other programs", Args: usage.Exactly(),
		Example: "  curl -H \"Authorization: Bearer $(capstan account session-token)\" https://capstan.example.com/api/v1/me",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if _, err := session.NewClient(cfg); err != nil {
				return err
			}
			if cfg.Token == "" {
				return fault.With(fault.New(fault.Unknown, "you are not signed in"), "", "run `capstan login URL`")
			}
			_, err = fmt.Fprintln(a.Out, cfg.Token)
			return err
		},
	}
}

func (a *app) accountUserInfo() *cobra.Command {
	return a.plain("get-user-info", "Show who is signed in, with groups", "  capstan account get-user-info\n  capstan account get-user-info -o json",
		func(cmd *cobra.Command, api *client.Client) error {
			me, raw, err := client.Call[apimodel.Me](api.GetMe(cmd.Context()))
			if err != nil {
				return err
			}
			return a.Print(raw, output.Table{
				Head:  []string{"USER", "TENANT", "ROLES", "VIA"},
				Rows:  [][]string{{me.Username, me.Tenant, output.Dash(strings.Join(me.Roles, ",")), string(me.Via)}},
				Names: []string{me.Username},
			})
		})
}
