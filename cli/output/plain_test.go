package output_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/output"
)

// hostile are texts that change a terminal, or hide in it.
var hostile = map[string]string{
	"colour":           "a\x1b[31mb",
	"title":            "a\x1b]0;owned\x07b",
	"link (OSC 8)":     "a\x1b]8;;https://evil.example.com\x1b\\click\x1b]8;;\x1b\\b",
	"clipboard":        "a\x1b]52;c;ZXZpbA==\x07b",
	"answer":           "a\x1b[6nb",
	"C1":               "a\u009b31mb",
	"line again":       "a\rb",
	"deleted":          "a\bb\x7f",
	"direction":        "a\u202egnp.exe\u2066b",
	"line separator":   "a\u2028b",
	"device and reset": "a\x1bP1$r\x1bcb",
}

func TestTerminal(t *testing.T) {
	odd := func(text string) bool {
		return strings.ContainsFunc(text, func(r rune) bool {
			return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
		})
	}
	t.Run("SEC-H9 SEC-L1 no text of others reaches a terminal as a control sequence, in tables, notes and lines", func(t *testing.T) {
		for name, text := range hostile {
			var out, errs bytes.Buffer
			p := output.Printer{Out: &out, Err: &errs}
			if err := p.Print(nil, output.Table{Head: []string{"NAME", "MESSAGE"}, Rows: [][]string{{"web", text}}}); err != nil {
				t.Fatal(err)
			}
			p.Note("the hub says: %s", text)
			p.Warn([]string{text})
			for where, got := range map[string]string{"table": out.String(), "note": errs.String(), "line": output.Plain(text)} {
				if odd(got) || !strings.Contains(got, "a") || !strings.Contains(got, "b") {
					t.Errorf("%s in a %s: %q", name, where, got)
				}
			}
		}
	})
	t.Run("SEC-H9 a line of a log is one line, and a note may have several", func(t *testing.T) {
		var errs bytes.Buffer
		(&output.Printer{Err: &errs}).Note("one\ntwo")
		if got := output.Plain("one\ntwo\tthree"); got != "one\u240atwo\tthree" || errs.String() != "one\ntwo\n" {
			t.Errorf("%q %q", got, errs.String())
		}
	})
}
