// Package labels reads label selectors of requests, as kubectl writes them. The
// API calls it; a term of the result is a condition that all must hold.
package labels

import (
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const maxTerms = 50

// Parse reads a label selector as kubectl writes it:
// a=b, c==d, e!=f, g in (h,i), j notin (k), l, !m. The error is fault.Invalid for another text, and
// fault.Exceeded for one of too many terms.
func Parse(s string) ([]hub.LabelTerm, error) {
	var out []hub.LabelTerm
	for _, part := range splitTerms(s) {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		t, ok := parseTerm(part)
		if !ok {
			return nil, fault.With(fault.New(fault.Invalid, "%q is no term of a label selector", shorten(part)), "parameter labels",
				"write it like team=shop,env!=dev,tier in (web,api),!legacy")
		}
		out = append(out, t)
	}
	if len(out) > maxTerms {
		return nil, fault.New(fault.Exceeded, "the label selector has %d terms, and %d are the limit", len(out), maxTerms)
	}
	return out, nil
}

// splitTerms cuts at commas outside of brackets.
func splitTerms(s string) []string {
	var out []string
	depth, start := 0, 0
	for i, c := range s {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			out = append(out, s[start:i])
			start = i + 1
		}
	}
	return append(out, s[start:])
}

func parseTerm(s string) (hub.LabelTerm, bool) {
	if key, rest, found := strings.Cut(s, "("); found {
		values, closed := strings.CutSuffix(strings.TrimSpace(rest), ")")
		words := strings.Fields(key)
		if !closed || len(words) != 2 || (words[1] != "in" && words[1] != "notin") {
			return hub.LabelTerm{}, false
		}
		t := hub.LabelTerm{Key: words[0], Not: words[1] == "notin"}
		for _, v := range strings.Split(values, ",") {
			t.Values = append(t.Values, strings.TrimSpace(v))
		}
		return t, plainKey(t.Key) && plainValues(t.Values)
	}
	t := hub.LabelTerm{Key: s}
	for _, op := range []string{"!=", "==", "="} {
		if key, value, found := strings.Cut(s, op); found {
			t = hub.LabelTerm{Key: strings.TrimSpace(key), Values: []string{strings.TrimSpace(value)}, Not: op == "!="}
			return t, plainKey(t.Key) && plainValues(t.Values)
		}
	}
	if key, found := strings.CutPrefix(s, "!"); found {
		t = hub.LabelTerm{Key: strings.TrimSpace(key), Not: true}
	}
	return t, plainKey(t.Key)
}

func plainKey(s string) bool {
	return s != "" && len(s) <= 317 && !strings.ContainsAny(s, "()!=, \t\x00")
}

func plainValues(values []string) bool {
	for _, v := range values {
		if len(v) > 63 || strings.ContainsAny(v, "()!=, \t\x00") {
			return false
		}
	}
	return true
}

// shorten keeps what is repeated of a request short.
func shorten(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
