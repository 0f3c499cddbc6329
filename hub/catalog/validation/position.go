package validation

import (
	"regexp"
	"strings"
)

// LinesAbove counts the lines above the value of a setting that an error is about.
func LinesAbove(object string, line func(path ...string) int, rows [][]byte) int {
	_, key, found := strings.Cut(object, ", key ")
	if !found {
		return line() - 1
	}
	at := line("data", key)
	if at == line("data") {
		at = line("stringData", key)
	}
	if at > 0 && at <= len(rows) && blockScalar.Match(rows[at-1]) {
		return at // the value begins on the line after its key
	}
	return at - 1
}

var blockScalar = regexp.MustCompile(`:\s*[|>][-+0-9]*\s*(#.*)?\r?$`)

var fieldText = regexp.MustCompile(`\b(?:spec|metadata|data|stringData)(?:\.[A-Za-z][\w-]*|\[\d+\])+`)

// FieldPath is the path of the first field that a refusal names, in steps.
func FieldPath(cause string) []string {
	field := strings.NewReplacer("[", ".", "]", "").Replace(fieldText.FindString(cause))
	if field == "" {
		return nil
	}
	return strings.Split(field, ".")
}
