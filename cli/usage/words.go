package usage

import "strings"

// Words splits a text as a shell does: at spaces outside of quotes.
func Words(text string) (out []string) {
	var word strings.Builder
	var quote rune
	begun := false
	for _, c := range text {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, begun = c, true
		case quote == 0 && (c == ' ' || c == '\t' || c == '\n'):
			if begun {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if begun {
		out = append(out, word.String())
	}
	return out
}
