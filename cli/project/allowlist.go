package project

import (
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxInput bounds a file that is read, in bytes.
const maxInput = 16 << 20

// Admin are the verbs about projects that need no hub.
func Admin(env *command.Env) *cobra.Command {
	return command.Noun("proj", "Make texts of projects", []string{"project"}, allowList(env))
}

// allowList makes a project that allows the kinds that a ClusterRole lets its
// subjects create (PROJ-24). What the resources of a role are called as kinds
// comes from kubectl, because this command has no credentials of clusters.
func allowList(env *command.Env) *cobra.Command {
	var discovery string
	c := &cobra.Command{
		Use: "generate-allow-list CLUSTERROLE-FILE PROJECT", Short: "Make a project that allows the kinds that a ClusterRole may create",
		Example: "  kubectl api-resources | capstan admin proj generate-allow-list clusterrole.yaml shop --api-resources -",
		Args:    usage.Exactly("a file with a ClusterRole", "the name of the project"),
		RunE: func(_ *cobra.Command, args []string) error {
			if discovery == "" {
				return usage.Errorf("--api-resources is missing: a file with the output of `kubectl api-resources`, or - for standard input")
			}
			role, err := readRole(args[0])
			if err != nil {
				return err
			}
			text, err := input(discovery, env.In)
			if err != nil {
				return err
			}
			served, err := parseServed(string(text))
			if err != nil {
				return err
			}
			out, err := yaml.Marshal(allowed(args[1], role, served))
			if err != nil {
				return err
			}
			_, err = env.Out.Write(out)
			return err
		},
	}
	c.Flags().StringVar(&discovery, "api-resources", "", "file with the output of kubectl api-resources, or - for standard input")
	return c
}

func input(path string, in io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(in, maxInput))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%q cannot be read", path)
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxInput))
}

// A rule is one of a ClusterRole.
type rule struct {
	APIGroups []string `json:"apiGroups"`
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
}

func readRole(path string) ([]rule, error) {
	text, err := input(path, nil)
	if err != nil {
		return nil, err
	}
	var role struct {
		Kind  string `json:"kind"`
		Rules []rule `json:"rules"`
	}
	if err := yaml.Unmarshal(text, &role); err != nil || role.Kind != "ClusterRole" {
		return nil, fault.New(fault.Invalid, "the file %q has no ClusterRole", path)
	}
	return role.Rules, nil
}

// A servedKind is a line of kubectl api-resources.
type servedKind struct {
	resource, group, kind string
	namespaced            bool
}

func parseServed(text string) (out []servedKind, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		at := slices.IndexFunc(words, func(w string) bool { return w == "true" || w == "false" })
		switch {
		case len(words) == 0 || words[0] == "NAME":
		case at < 2 || at+1 >= len(words):
			return nil, fault.New(fault.Invalid, "%q is no line of `kubectl api-resources`", strings.TrimSpace(line))
		default:
			group, _, grouped := strings.Cut(words[at-1], "/")
			if !grouped {
				group = "" // the version of the core group
			}
			out = append(out, servedKind{words[0], group, words[at+1], words[at] == "true"})
		}
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Invalid, "the output of `kubectl api-resources` is empty")
	}
	return out, nil
}

type allowedKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
}

// allowed is the project: kinds in the order of the rules, each once.
func allowed(name string, role []rule, served []servedKind) map[string]any {
	namespaced, clusterWide := []allowedKind{}, []allowedKind{}
	for _, r := range role {
		if !names(r.Verbs, "create") {
			continue
		}
		for _, s := range served {
			if !names(r.APIGroups, s.group) || !names(r.Resources, s.resource) {
				continue
			}
			list, k := &clusterWide, allowedKind{s.group, s.kind}
			if s.namespaced {
				list = &namespaced
			}
			if !slices.Contains(*list, k) {
				*list = append(*list, k)
			}
		}
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"namespaceResourceWhitelist": namespaced, "clusterResourceWhitelist": clusterWide},
	}
}

// names reports whether a list of a rule has a word, or everything.
func names(list []string, word string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == "*" || strings.EqualFold(s, word) })
}
