// Package overrides reads customisations of kinds from a ConfigMap in a file, to try
// them out on this machine. It asks no hub and no cluster.
package overrides

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/action"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// maxManifest bounds a file that is tried out.
const maxManifest = 16 << 20

// Settings are the settings that are tried out.
type Settings struct{ file string }

// AddFlags adds the flag that names the file.
func (c *Settings) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.file, "argocd-cm-path", "", "file with the ConfigMap argocd-cm; without it only the built-in actions are there")
}

// actions reads the users' actions.
func (c *Settings) actions() (*action.Actions, error) {
	if c.file == "" {
		return action.New(nil), nil
	}
	var cm struct {
		Data map[string]string `json:"data"`
	}
	if err := readYAML(c.file, &cm); err != nil {
		return nil, err
	}
	sets := map[string]action.Set{}
	if err := splitSets(cm.Data, sets); err != nil {
		return nil, err
	}
	return action.New(func(group, kind string) (action.Set, bool) {
		set, ok := sets[kindKey(group, kind)]
		return set, ok
	}), nil
}

func kindKey(group, kind string) string {
	if group == "" {
		return kind
	}
	return group + "_" + kind
}

const (
	actionsPrefix = "resource.customizations.actions."
	libsPrefix    = "resource.customizations.useOpenLibs."
)

// splitSets reads the keys of one kind each, and the older map of all.
func splitSets(data map[string]string, sets map[string]action.Set) error {
	var old map[string]struct {
		Actions     string `json:"actions"`
		UseOpenLibs bool   `json:"health.lua.useOpenLibs"`
	}
	if err := yaml.Unmarshal([]byte(data["resource.customizations"]), &old); err != nil {
		return notYAML("resource.customizations", data["resource.customizations"], err)
	}
	for kind, o := range old {
		if o.Actions == "" {
			continue
		}
		set, err := readSet("resource.customizations of "+kind, o.Actions)
		if err != nil {
			return err
		}
		set.OpenLibs = o.UseOpenLibs
		sets[strings.Replace(kind, "/", "_", 1)] = set
	}
	for key, text := range data {
		kind, ok := strings.CutPrefix(key, actionsPrefix)
		if !ok {
			continue
		}
		set, err := readSet(key, text)
		if err != nil {
			return err
		}
		set.OpenLibs = data[libsPrefix+kind] == "true"
		sets[kind] = set
	}
	return nil
}

func readSet(key, text string) (action.Set, error) {
	var in struct {
		Discovery    string `json:"discovery.lua"`
		MergeBuiltin bool   `json:"mergeBuiltinActions"`
		Definitions  []struct {
			Name string `json:"name"`
			Lua  string `json:"action.lua"`
		} `json:"definitions"`
	}
	if err := yamltext.Decode(key, []byte(text), &in); err != nil {
		return action.Set{}, err
	}
	set := action.Set{Discovery: in.Discovery, MergeBuiltin: in.MergeBuiltin, Scripts: map[string]string{}}
	for _, d := range in.Definitions {
		set.Scripts[d.Name] = d.Lua
	}
	return set, nil
}

// notYAML says where a text cannot be read.
func notYAML(name, text string, err error) error {
	line, cause := yamltext.Place([]byte(text), errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")))
	return fault.New(fault.Invalid, "%s, line %d: not YAML: %s", name, line, cause)
}

// readYAML reads a file that is not absurdly large.
func readYAML(name string, into any) error {
	f, err := os.Open(name)
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "%q cannot be read", name)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return fault.Wrap(fault.Invalid, err, "%q cannot be read", name)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return notYAML(name, string(text), err)
	}
	return nil
}

// liveObject reads the object that actions are tried out on.
func liveObject(name string) (map[string]any, error) {
	var o map[string]any
	if err := readYAML(name, &o); err != nil {
		return nil, err
	}
	if kind, _ := o["kind"].(string); kind == "" {
		return nil, fault.New(fault.Invalid, "%q contains no object with a kind", name)
	}
	return o, nil
}

// Load reads the actions there are and the object in a file.
func (c *Settings) Load(file string) (*action.Actions, map[string]any, error) {
	all, err := c.actions()
	if err != nil {
		return nil, nil, err
	}
	o, err := liveObject(file)
	return all, o, err
}
