package keys

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// GPG is the command gpg.
func GPG(env *command.Env) *cobra.Command {
	a := commands{env}
	return command.Noun("gpg", "Public keys that signatures of commits are checked with: add, get, list, rm", nil, a.gpgAdd(), a.gpgGet(), a.gpgList(), a.gpgRemove())
}

func (a commands) gpgAdd() *cobra.Command {
	var from string
	var upsert bool
	c := &cobra.Command{
		Use: "add", Short: "Store public keys, as gpg exports them", Args: usage.Exactly(),
		Example: "  gpg --armor --export D56C4FCA57A46444 | capstan gpg add\n  capstan gpg add --from release-key.asc",
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := a.lines(from, "is the output of `gpg --armor --export KEY` there?")
			if err != nil {
				return err
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			body := apimodel.AddPublicKeysJSONRequestBody{KeyData: text, Upsert: upsert}
			answer, raw, err := client.Call[apimodel.PublicKeysAdded](api.AddPublicKeys(cmd.Context(), body))
			if err != nil {
				return err
			}
			for _, id := range answer.Skipped {
				a.Note("key %s is there already", id)
			}
			return a.Print(raw, keyTable(answer.Created))
		},
	}
	c.Flags().StringVar(&from, "from", "", "file with the keys; without it they are read from standard input")
	c.Flags().BoolVar(&upsert, "upsert", false, "replace a key of the same id that is stored in another form")
	return c
}

func (a commands) gpgList() *cobra.Command {
	return a.Plain("list", "List the public keys", "  capstan gpg list", func(cmd *cobra.Command, api *client.Client) error {
		l, raw, err := client.Call[apimodel.PublicKeyList](api.ListPublicKeys(cmd.Context()))
		if err != nil {
			return err
		}
		return a.Print(raw, keyTable(l.Items))
	})
}

func (a commands) gpgGet() *cobra.Command {
	return &cobra.Command{
		Use: "get KEY", Short: "Show a public key, by its id or fingerprint", Args: usage.Exactly("the id of a key"),
		Example: "  capstan gpg get D56C4FCA57A46444",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.Client()
			if err != nil {
				return err
			}
			k, raw, err := client.Call[apimodel.PublicKey](api.GetPublicKey(cmd.Context(), args[0]))
			if err != nil {
				return err
			}
			return a.Print(raw, keyTable([]apimodel.PublicKey{k}))
		},
	}
}

func (a commands) gpgRemove() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "rm KEY", Aliases: []string{"remove", "delete"}, Short: "Delete a public key, by its id", Args: usage.Exactly("the id of a key"),
		Long: "Deletes a public key. Projects that demand signatures refuse what only this key has signed from then on;\n" +
			"what is deployed stays as it is.",
		Example: "  capstan gpg rm D56C4FCA57A46444",
		RunE: func(cmd *cobra.Command, args []string) error {
			id := strings.ToUpper(args[0])
			if err := a.Confirm(yes, "Delete the public key "+id+"?"); err != nil {
				return err
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			if _, err := client.Read(api.DeletePublicKey(cmd.Context(), id)); err != nil {
				return err
			}
			a.Note("key %s is deleted", id)
			return nil
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func keyTable(keys []apimodel.PublicKey) output.Table {
	t := output.Table{Head: []string{"KEY", "TYPE", "OWNER", "EXPIRES", "FINGERPRINT"}}
	for _, k := range keys {
		expires := "never"
		switch {
		case k.Revoked:
			expires = "revoked"
		case !k.ExpiresAt.IsZero():
			expires = k.ExpiresAt.Format(time.DateOnly)
		}
		t.Rows = append(t.Rows, []string{k.KeyID, k.SubType, k.Owner, expires, k.Fingerprint})
		t.Names = append(t.Names, "gpgkey/"+k.KeyID)
	}
	return t
}
