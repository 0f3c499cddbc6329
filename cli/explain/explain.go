// Package explain says what the stable codes of errors and the conditions of
// applications mean: what happened, why, and what to do. The command explain
// prints it, and docs/errors.md is the same text. It calls no hub.
package explain

import (
	"fmt"
	"slices"
	"strings"
)

// A Topic is one code or one type of a condition.
type Topic struct {
	Code   string   `json:"code"`
	Title  string   `json:"title"`
	Means  string   `json:"means"`
	Causes []string `json:"causes"`
	Fixes  []string `json:"fixes"`
}

// Find returns the topic of a code; case does not count.
func Find(code string) (Topic, bool) {
	for _, t := range Topics() {
		if strings.EqualFold(t.Code, code) {
			return t, true
		}
	}
	return Topic{}, false
}

// Codes lists the codes of all topics, in their order.
func Codes() (out []string) {
	for _, t := range Topics() {
		out = append(out, t.Code)
	}
	return out
}

// Text is a topic for a terminal.
func (t Topic) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n%s\n\nCauses:\n", t.Code, t.Title, t.Means)
	for _, c := range t.Causes {
		fmt.Fprintf(&b, "  - %s\n", c)
	}
	b.WriteString("\nWhat to do:\n")
	for _, f := range t.Fixes {
		fmt.Fprintf(&b, "  - %s\n", f)
	}
	return b.String()
}

// Markdown is the page docs/errors.md.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Errors and conditions\n\nEvery error of the API has a code that stays the same between releases. `capstan explain CODE` prints these texts.\n")
	for _, t := range Topics() {
		fmt.Fprintf(&b, "\n## %s\n\n**%s** %s\n\nCauses:\n\n", t.Code, capital(t.Title)+".", t.Means)
		for _, c := range t.Causes {
			fmt.Fprintf(&b, "- %s\n", c)
		}
		b.WriteString("\nWhat to do:\n\n")
		for _, f := range t.Fixes {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	return b.String()
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// Topics lists all topics: codes by number, then conditions by name.
func Topics() []Topic {
	named := slices.Concat(conditions(), setConditions())
	slices.SortFunc(named, func(a, b Topic) int { return strings.Compare(a.Code, b.Code) })
	return slices.Concat(codes(), named)
}
