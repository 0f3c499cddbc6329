package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/editor"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// editing is put above the object that is edited.
const editing = "# %s of application %s, as its cluster has it now. These lines are left out.\n" +
	"# An unchanged or empty file changes nothing. A list that is changed is replaced as a whole.\n"

// An edit is the change of one live object with an editor.
type edit struct {
	commands
	cmd            *cobra.Command
	api            *client.Client
	namespace, app string
	node           apimodel.Node
	before         []byte // the object as JSON
}

func (a commands) editResource() *cobra.Command {
	var p picked
	c := a.One("edit-resource NAME", "Change a live object of an application in an editor, after a dry run by its cluster",
		"  capstan app edit-resource shop --kind Deployment --resource-name web\n"+
			"  EDITOR='code --wait' capstan app edit-resource shop --kind ConfigMap --resource-name web --resource-namespace shop",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			found, err := p.nodes(cmd.Context(), api, namespace, name)
			if err != nil {
				return err
			}
			live, err := liveOf(cmd.Context(), api, namespace, name, found[0])
			if err != nil {
				return err
			}
			before, err := editable(live)
			if err != nil {
				return err
			}
			e := edit{commands: a, cmd: cmd, api: api, namespace: namespace, app: name, node: found[0], before: before}
			return e.run()
		})
	p.flags(c)
	c.Long = "Change a live object of an application in the editor of VISUAL or EDITOR. The change is sent as a merge patch. " +
		"Its cluster tries it first; what it refuses is opened again, with the reason above it. " +
		"An application with self-heal undoes what Git does not say."
	return c
}

// run opens the editor until a change is taken, or nothing is changed any more.
func (e edit) run() error {
	body, err := yaml.JSONToYAML(e.before)
	if err != nil {
		return fmt.Errorf("%s cannot be read: %w", e.object(), err)
	}
	var refused error
	for {
		text := append(fmt.Appendf(nil, editing, e.object(), e.app), body...)
		if refused != nil {
			text = append(commented(exit.Say(refused)), text...)
		}
		after, err := editor.Edit(e.cmd.Context(), editor.Streams{In: e.In, Out: e.Err}, text)
		if err != nil {
			return err
		}
		edited := withoutHead(after)
		switch {
		case len(bytes.TrimSpace(edited)) == 0, refused == nil && bytes.Equal(edited, body):
			e.Note("capstan: nothing was changed")
			return nil
		case bytes.Equal(edited, body):
			return e.keep(body, refused)
		}
		body = edited
		changed, err := e.apply(body)
		if err == nil {
			if !changed {
				e.Note("capstan: nothing was changed")
			}
			return nil
		}
		if e.cmd.Context().Err() != nil {
			return e.keep(body, err)
		}
		refused = err
	}
}

// keep returns why a change was refused, and where its text is.
func (e edit) keep(text []byte, refused error) error {
	if name, err := editor.Keep(text); err == nil {
		e.Note("capstan: nothing was changed; your text is in %s", name)
	}
	return refused
}

// apply sends the difference, first as a dry run. changed is false if there is
// none.
func (e edit) apply(text []byte) (changed bool, err error) {
	after, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return false, usage.Errorf("the text cannot be read: %w", err)
	}
	patch, err := mergePatch(e.before, after)
	if err != nil || patch == nil {
		return false, err
	}
	for _, dry := range []bool{true, false} {
		if err := e.send(e.cmd.Context(), patch, dry); err != nil {
			return false, err
		}
	}
	e.Note("%s: changed", e.object())
	return true, nil
}

func (e edit) send(ctx context.Context, patch []byte, dry bool) error {
	n := e.node
	_, err := client.Read(e.api.PatchLiveResource(ctx, e.namespace, e.app, apimodel.PatchResource{
		Group: n.Group, Version: n.Version, Kind: n.Kind, Namespace: n.Namespace, Name: n.Name,
		Patch: string(patch), PatchType: apimodel.MergeLive, DryRun: dry,
	}))
	return err
}

func (e edit) object() string {
	return e.node.Kind + " " + strings.TrimPrefix(e.node.Namespace+"/"+e.node.Name, "/")
}

// mergePatch is what makes one object of the other; nil: they are equal. What
// names the object must stay.
func mergePatch(before, after []byte) ([]byte, error) {
	var from, to struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
			UID       string `json:"uid"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(before, &from); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &to); err != nil {
		return nil, usage.Errorf("the text is no object: %w", err)
	}
	if from != to {
		return nil, usage.Errorf("apiVersion, kind, and the name, namespace and uid of the metadata must stay as they are")
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil || bytes.Equal(bytes.TrimSpace(patch), []byte("{}")) {
		return nil, err
	}
	return patch, nil
}

// editable is a live object without what only the API server writes.
func editable(live []byte) ([]byte, error) {
	var o map[string]json.RawMessage
	if err := json.Unmarshal(live, &o); err != nil {
		return nil, fmt.Errorf("the live object cannot be read: %w", err)
	}
	delete(o, "status")
	var metadata map[string]json.RawMessage
	if err := json.Unmarshal(o["metadata"], &metadata); err != nil {
		return nil, fmt.Errorf("the metadata of the live object cannot be read: %w", err)
	}
	for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
		delete(metadata, field)
	}
	var err error
	if o["metadata"], err = json.Marshal(metadata); err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// commented writes a text as comments of YAML.
func commented(text string) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(text) {
		b.WriteString("# " + strings.TrimRight(line, "\r\n") + "\n")
	}
	b.WriteString("#\n")
	return b.Bytes()
}

// withoutHead leaves out the comments at the beginning of a text.
func withoutHead(text []byte) []byte {
	for bytes.HasPrefix(text, []byte("#")) {
		_, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
	}
	return text
}
