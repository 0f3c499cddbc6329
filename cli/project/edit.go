package project

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/editor"
	"github.com/capstan-cd/capstan/cli/usage"
)

// editing is put above the spec, like a comment of kubectl edit.
const editing = "# The spec of project %s. Lines that begin with # are left out. An unchanged or\n# empty file changes nothing.\n"

func (c Commands) edit() *cobra.Command {
	return &cobra.Command{
		Use: "edit NAME", Short: "Edit the spec of a project with $EDITOR", Args: usage.Exactly("the name of the project"),
		Example: "  capstan project edit shop\n  EDITOR=nano capstan project edit shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Connect()
			if err != nil {
				return err
			}
			p, _, tag, err := c.read(cmd, api, args[0])
			if err != nil {
				return err
			}
			spec, err := yaml.JSONToYAML(p.Spec)
			if err != nil {
				return fmt.Errorf("the spec of project %q cannot be read: %w", args[0], err)
			}
			before := append(fmt.Appendf(nil, editing, args[0]), spec...)
			after, err := editor.Edit(cmd.Context(), editor.Streams{In: cmd.InOrStdin(), Out: cmd.ErrOrStderr()}, before)
			if err != nil {
				return err
			}
			if bytes.Equal(before, after) || len(bytes.TrimSpace(after)) == 0 {
				c.Printer.Note("capstan: nothing was changed")
				return nil
			}
			if p.Spec, err = yaml.YAMLToJSONStrict(after); err != nil {
				return usage.Errorf("the edited spec cannot be read: %w", err)
			}
			if !json.Valid(p.Spec) || !bytes.HasPrefix(bytes.TrimSpace(p.Spec), []byte("{")) {
				return usage.Errorf("the edited spec is no object")
			}
			return c.put(cmd, api, p, tag)
		},
	}
}
