package template

import (
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// legacy replaces "{{name}}" by the text of a parameter. What is no parameter,
// or no text, stays as it is (ASET-03).
func legacy(text string, params map[string]any) (string, error) {
	if !templated(text) {
		return text, nil
	}
	var out strings.Builder
	for rest := text; ; {
		before, after, found := strings.Cut(rest, "{{")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		name, after, closed := strings.Cut(after, "}}")
		if !closed {
			return "", fault.New(fault.Invalid, "the template %q has {{ without }}", shorten(text))
		}
		if value, ok := params[strings.TrimSpace(name)].(string); ok && strings.TrimSpace(name) != "" {
			out.WriteString(value)
		} else {
			out.WriteString("{{" + name + "}}")
		}
		if out.Len() > maxOutput {
			return "", fault.New(fault.Exceeded, "a text has more than %d bytes", maxOutput)
		}
		rest = after
	}
}

// templated reports whether a line of a text has a placeholder.
func templated(text string) bool {
	for line := range strings.Lines(text) {
		if _, after, ok := strings.Cut(line, "{{"); ok && strings.Contains(after, "}}") {
			return true
		}
	}
	return false
}
