package cli

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/fault"
)

const maxKnownHosts = 1 << 20

func (a *app) certificateCommand() *cobra.Command {
	return noun("cert", "Host keys of SSH servers: add-ssh, list, remove", []string{"certs", "certificate"}, a.certAddSSH(), a.certList(), a.certRemove())
}

func (a *app) certAddSSH() *cobra.Command {
	var batch, upsert bool
	var from, fingerprint string
	c := &cobra.Command{
		Use: "add-ssh", Short: "Trust SSH servers, given as lines of ssh-keyscan or known_hosts", Args: exactly(),
		Example: "  ssh-keyscan -t ed25519 git.example.com | capstan cert add-ssh --batch --fingerprint SHA256:…\n  capstan cert add-ssh --batch --from known_hosts",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := a.knownHosts(batch, from)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			body := client.AddCertificatesJSONRequestBody{KnownHosts: text, Upsert: ref(upsert), Fingerprint: ref(fingerprint)}
			l, raw, err := call[client.CertificateList](api.AddCertificates(cmd.Context(), nil, body))
			if err != nil {
				return err
			}
			return a.print(raw, certTable(l.Items))
		},
	}
	c.Flags().BoolVar(&batch, "batch", false, "read lines from standard input, or from the file of --from")
	c.Flags().StringVar(&from, "from", "", "file with the lines")
	c.Flags().StringVar(&fingerprint, "fingerprint", "", "trust only a key with this fingerprint")
	c.Flags().BoolVar(&upsert, "upsert", false, "replace a key that is known and differs")
	return c
}

func (a *app) knownHosts(batch bool, from string) (string, error) {
	in := a.streams.In
	switch {
	case from != "":
		f, err := os.Open(from)
		if err != nil {
			return "", fault.Wrap(fault.Invalid, err, "the file %s cannot be read", from)
		}
		defer f.Close()
		in = f
	case !batch:
		return "", usageError{fault.New(fault.Invalid, "say where the lines come from: --batch for standard input, or --from FILE")}
	}
	text, err := io.ReadAll(io.LimitReader(in, maxKnownHosts))
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "the lines cannot be read")
	}
	if len(text) == 0 {
		return "", fault.With(fault.New(fault.Invalid, "there is no line to read"), "", "does ssh-keyscan reach the server?")
	}
	return string(text), nil
}

func (a *app) certList() *cobra.Command {
	return a.plain("list", "List the SSH servers that are known", "  capstan cert list\n  capstan cert list -o wide", func(cmd *cobra.Command, api *client.Client) error {
		l, raw, err := call[client.CertificateList](api.ListCertificates(cmd.Context()))
		if err != nil {
			return err
		}
		return a.print(raw, certTable(l.Items))
	})
}

func certTable(all []client.Certificate) table {
	t := table{head: []string{"SERVER", "TYPE", "FINGERPRINT", "ORIGIN", "KEY"}, wide: 1}
	for _, c := range all {
		origin := "added"
		if c.BuiltIn {
			origin = "built in"
		}
		t.rows = append(t.rows, []string{c.ServerName, c.SubType, c.Fingerprint, origin, c.Data})
		t.name = append(t.name, "certificate/"+c.ServerName)
	}
	return t
}

func (a *app) certRemove() *cobra.Command {
	var yes bool
	var kind string
	c := &cobra.Command{
		Use: "rm SERVER", Short: "Forget the host keys of an SSH server", Aliases: []string{"remove"}, Args: exactly("the name of the server as listed"),
		Example: "  capstan cert rm git.example.com\n  capstan cert rm '[git.example.com]:2222' --cert-sub-type ssh-rsa --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(yes, "Forget the host keys of "+args[0]+"?"); err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			l, raw, err := call[client.CertificateList](api.DeleteCertificates(cmd.Context(), &client.DeleteCertificatesParams{ServerName: args[0], SubType: ref(kind)}))
			if err != nil {
				return err
			}
			return a.print(raw, certTable(l.Items))
		},
	}
	c.Flags().StringVar(&kind, "cert-sub-type", "", "one type of key alone, such as ssh-rsa")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
