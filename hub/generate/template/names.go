package template

import (
	"regexp"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

var (
	notInNames = regexp.MustCompile(`[^-a-z0-9.]`)
	dashes     = regexp.MustCompile(`-+`)
)

// maxName is the length of the longest name of an object.
const maxName = 253

// Normalize makes a text that a name may be: lower-case letters, digits, - and
// ., with a letter or digit at both ends.
func Normalize(s string) string {
	s = notInNames.ReplaceAllString(strings.ToLower(s), "-")
	return strings.Trim(s[:min(len(s), maxName)], "-.")
}

// slugify makes a label of a name: slugify [longest] [smart] name. A smart one
// ends at a dash, if there is one.
func slugify(args ...any) (string, error) {
	longest, smart := 50, true
	if len(args) == 0 || len(args) > 3 {
		return "", fault.New(fault.Invalid, "slugify needs a name, before it the longest length, and between them whether it ends at a dash")
	}
	name, ok := args[len(args)-1].(string)
	if len(args) > 1 && ok {
		longest, ok = args[0].(int)
	}
	if len(args) > 2 && ok {
		smart, ok = args[1].(bool)
	}
	if !ok || longest < 0 {
		return "", fault.New(fault.Invalid, "slugify needs a length that is a number, true or false, and a name that is a text")
	}
	return shortSlug(Normalize(name), longest, smart), nil
}

// shortSlug replaces the dots of a normalised name and shortens it.
func shortSlug(s string, longest int, smart bool) string {
	if !smart && len(s) >= longest {
		s = s[:longest]
	}
	s = strings.Trim(dashes.ReplaceAllString(strings.ReplaceAll(s, ".", "-"), "-"), "-_")
	if !smart || longest == 0 || len(s) <= longest {
		return s
	}
	if cut := strings.LastIndexByte(s[:longest+1], '-'); cut >= 0 {
		return s[:cut]
	}
	return s[:longest]
}
