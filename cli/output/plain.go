package output

import "strings"

// Plain makes control characters visible, so that text of a cluster, a commit or
// another tenant can neither change a terminal nor hide in it. A tab stays.
func Plain(text string) string { return replaced(text, control) }

// lines is Plain for a text of several lines.
func lines(text string) string {
	return replaced(text, func(r rune) bool { return r != '\n' && control(r) })
}

func replaced(text string, odd func(rune) bool) string {
	if strings.IndexFunc(text, odd) < 0 {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case !odd(r):
			return r
		case r < 0x20:
			return '\u2400' + r // the picture of the character
		case r == 0x7f:
			return '\u2421'
		}
		return '\ufffd'
	}, text)
}

// control reports characters that a terminal obeys, and those that turn the
// direction of text.
func control(r rune) bool {
	switch {
	case r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	}
	return r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069'
}
