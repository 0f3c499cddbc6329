package notify

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// reference is a key of the Secret as options name it.
var reference = regexp.MustCompile(`\$[\w-]+`)

// With returns the service with the values of secrets in the place of their
// names. A name that is not set stays, as in Argo CD.
func (s Service) With(values map[string]string) (Service, error) {
	var tree any
	if err := json.Unmarshal(s.Options, &tree); err != nil {
		return s, fault.New(fault.Invalid, "the options of the service %s cannot be read", s.Name)
	}
	options, err := json.Marshal(replaceSecrets(tree, values))
	s.Options = options
	return s, err
}

func replaceSecrets(node any, values map[string]string) any {
	switch n := node.(type) {
	case string:
		return reference.ReplaceAllStringFunc(n, func(name string) string {
			if v, ok := values[name[1:]]; ok {
				return strings.TrimSpace(v)
			}
			return name
		})
	case map[string]any:
		for k, v := range n {
			n[k] = replaceSecrets(v, values)
		}
	case []any:
		for i, v := range n {
			n[i] = replaceSecrets(v, values)
		}
	}
	return node
}

// Hidden are the values that nobody may see of what is sent: all of the Secret,
// and what options of the service hold under names of secrets.
func (s Service) Hidden(values map[string]string) []string {
	var out []string
	for _, v := range values {
		out = append(out, v)
	}
	var tree any
	if json.Unmarshal(s.Options, &tree) == nil {
		out = collectSecrets("", tree, out)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// secretNames are parts of names of options whose values are secrets.
func secretNames() []string {
	return []string{"token", "password", "secret", "key", "url", "webhook", "bearer", "headers", "nkey"}
}

func collectSecrets(name string, node any, out []string) []string {
	switch n := node.(type) {
	case string:
		lower := strings.ToLower(name)
		address := strings.HasPrefix(n, "http") && !strings.Contains(lower, "recipient") && !strings.Contains(lower, "webhooks")
		if slices.ContainsFunc(secretNames(), func(part string) bool { return strings.Contains(lower, part) }) && !address {
			out = append(out, n)
		}
	case map[string]any:
		for k, v := range n {
			inner := k
			if strings.Contains(strings.ToLower(name), "urls") || strings.Contains(strings.ToLower(name), "keys") || strings.Contains(strings.ToLower(name), "webhooks") || name == "headers" && k == "value" {
				inner = name
			}
			out = collectSecrets(inner, v, out)
		}
	case []any:
		for _, v := range n {
			out = collectSecrets(name, v, out)
		}
	}
	return out
}
