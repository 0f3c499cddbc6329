// Package keys has the commands of what servers and commits are verified with:
// host keys, certificates and public keys. Package cli adds them to its own.
package keys

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

const maxKnownHosts = 1 << 20

type commands struct{ *command.Env }

// Certificates is the command cert.
func Certificates(env *command.Env) *cobra.Command {
	a := commands{env}
	return command.Noun("cert", "Host keys of SSH servers and TLS certificates of Git servers: add-ssh, add-tls, list, remove", []string{"certs", "certificate"},
		a.certAddSSH(), a.certAddTLS(), a.certList(), a.certRemove())
}

func (a commands) certAddSSH() *cobra.Command {
	var batch, upsert bool
	var from, fingerprint string
	c := &cobra.Command{
		Use: "add-ssh", Short: "Trust SSH servers, given as lines of ssh-keyscan or known_hosts", Args: usage.Exactly(),
		Example: "  ssh-keyscan -t ed25519 git.example.com | capstan cert add-ssh --batch --fingerprint SHA256:…\n  capstan cert add-ssh --batch --from known_hosts",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := a.knownHosts(batch, from)
			if err != nil {
				return err
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			body := apimodel.AddCertificatesJSONRequestBody{KnownHosts: text, Upsert: upsert, Fingerprint: fingerprint}
			l, raw, err := client.Call[apimodel.CertificateList](api.AddCertificates(cmd.Context(), body))
			if err != nil {
				return err
			}
			return a.Print(raw, certTable(l.Items))
		},
	}
	c.Flags().BoolVar(&batch, "batch", false, "read lines from standard input, or from the file of --from")
	c.Flags().StringVar(&from, "from", "", "file with the lines")
	c.Flags().StringVar(&fingerprint, "fingerprint", "", "trust only a key with this fingerprint")
	c.Flags().BoolVar(&upsert, "upsert", false, "replace a key that is known and differs")
	return c
}

func (a commands) certAddTLS() *cobra.Command {
	var upsert bool
	var from string
	c := &cobra.Command{
		Use: "add-tls SERVER", Short: "Store the certificates that those of a Git server over HTTPS must come from", Args: usage.Exactly("the host of the server, without a port"),
		Long: "Stores certificates in PEM: those of a private authority, or the one that the server itself shows.\n" +
			"For repositories of that host they take the place of the authorities that the hub trusts otherwise.",
		Example: "  capstan cert add-tls git.example.com --from ca.crt\n  capstan cert add-tls git.example.com --upsert < ca.crt",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := a.lines(from, "is the PEM of the certificate there?")
			if err != nil {
				return err
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			body := apimodel.AddCertificatesJSONRequestBody{Tls: []apimodel.ServerCertificates{{ServerName: args[0], Data: text}}, Upsert: upsert}
			l, raw, err := client.Call[apimodel.CertificateList](api.AddCertificates(cmd.Context(), body))
			if err != nil {
				return err
			}
			return a.Print(raw, certTable(l.Items))
		},
	}
	c.Flags().StringVar(&from, "from", "", "file with the certificates; without it they are read from standard input")
	c.Flags().BoolVar(&upsert, "upsert", false, "replace what is stored for the server and differs")
	return c
}

func (a commands) knownHosts(batch bool, from string) (string, error) {
	if from == "" && !batch {
		return "", usage.Wrap(fault.New(fault.Invalid, "say where the lines come from: --batch for standard input, or --from FILE"))
	}
	return a.lines(from, "does ssh-keyscan reach the server?")
}

// lines reads a file, or standard input where none is named.
func (a commands) lines(from, question string) (string, error) {
	in := a.In
	if from != "" {
		f, err := os.Open(from)
		if err != nil {
			return "", fault.Wrap(fault.Invalid, err, "the file %s cannot be read", from)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxKnownHosts))
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the lines cannot be read")
	}
	if len(text) == 0 {
		return "", fault.With(fault.New(fault.Invalid, "there is no line to read"), "", question)
	}
	return string(text), nil
}

func (a commands) certList() *cobra.Command {
	var kind, pattern string
	c := a.Plain("list", "List host keys of SSH servers and TLS certificates of Git servers",
		"  capstan cert list\n  capstan cert list --cert-type https\n  capstan cert list -o wide", func(cmd *cobra.Command, api *client.Client) error {
			if err := certType(kind); err != nil {
				return err
			}
			if _, err := path.Match(pattern, ""); err != nil {
				return usage.Wrap(fault.New(fault.Invalid, "--hostname-pattern %q is no pattern", pattern))
			}
			l, raw, err := client.Call[apimodel.CertificateList](api.ListCertificates(cmd.Context()))
			if err != nil {
				return err
			}
			all := len(l.Items)
			l.Items = slices.DeleteFunc(l.Items, func(c apimodel.Certificate) bool {
				matches, _ := path.Match(pattern, c.ServerName)
				return kind != "" && string(c.Type) != kind || pattern != "" && !matches
			})
			if len(l.Items) != all {
				if raw, err = json.Marshal(l); err != nil {
					return fmt.Errorf("encode what is left of the list: %w", err)
				}
			}
			return a.Print(raw, certTable(l.Items))
		})
	c.Flags().StringVar(&kind, "cert-type", "", "ssh or https alone")
	c.Flags().StringVar(&pattern, "hostname-pattern", "", "servers whose names match, such as '*.example.com'")
	return c
}

func certType(kind string) error {
	if kind == "" || kind == string(apimodel.CertificateTypeSsh) || kind == string(apimodel.CertificateTypeHttps) {
		return nil
	}
	return usage.Wrap(fault.New(fault.Invalid, "--cert-type %q is neither ssh nor https", kind))
}

func certTable(all []apimodel.Certificate) output.Table {
	t := output.Table{Head: []string{"SERVER", "TYPE", "SUBTYPE", "FINGERPRINT", "ORIGIN", "INFO", "KEY"}, Wide: 1}
	for _, c := range all {
		origin := "added"
		if c.BuiltIn {
			origin = "built in"
		}
		key := c.Data
		if c.Type == apimodel.CertificateTypeHttps {
			key = "-" // a text of many lines: -o yaml shows it
		}
		t.Rows = append(t.Rows, []string{c.ServerName, string(c.Type), c.SubType, c.Fingerprint, origin, certInfo(c), key})
		t.Names = append(t.Names, "certificate/"+c.ServerName)
	}
	return t
}

// certInfo says what a TLS certificate is and when it ends.
func certInfo(c apimodel.Certificate) string {
	info := c.Info
	if c.ExpiresAt.IsZero() {
		return info
	}
	return strings.TrimSpace(info + " until " + c.ExpiresAt.Format(time.DateOnly))
}

func (a commands) certRemove() *cobra.Command {
	var yes bool
	var kind, keyType string
	c := &cobra.Command{
		Use: "rm SERVER", Short: "Forget the host keys and the TLS certificates of a server", Aliases: []string{"remove"}, Args: usage.Exactly("the name of the server as listed"),
		Example: "  capstan cert rm git.example.com\n  capstan cert rm '[git.example.com]:2222' --cert-sub-type ssh-rsa --yes\n  capstan cert rm git.example.com --cert-type https",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := certType(kind); err != nil {
				return err
			}
			if err := a.Confirm(yes, "Forget what is known of "+args[0]+"?"); err != nil {
				return err
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			params := apimodel.DeleteCertificatesParams{ServerName: args[0], SubType: keyType, Type: apimodel.DeleteCertificatesParamsType(kind)}
			l, raw, err := client.Call[apimodel.CertificateList](api.DeleteCertificates(cmd.Context(), params))
			if err != nil {
				return err
			}
			return a.Print(raw, certTable(l.Items))
		},
	}
	c.Flags().StringVar(&kind, "cert-type", "", "ssh or https alone")
	c.Flags().StringVar(&keyType, "cert-sub-type", "", "one type of host key alone, such as ssh-rsa")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
