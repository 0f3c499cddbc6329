package live

import "os"

// A palette colours words for people at a terminal; the zero value leaves them
// plain.
type palette struct{ on bool }

// palette is plain where output is piped, NO_COLOR is set, or TERM is dumb.
func (a commands) palette() palette {
	return palette{isTerminal(a.Out) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

func (p palette) paint(code, text string) string {
	if !p.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p palette) bad(text string) string  { return p.paint("1;31", text) }
func (p palette) good(text string) string { return p.paint("32", text) }

// source colours the name of a container, each with a colour of its own.
func (p palette) source(name, text string) string {
	sum := 0
	for _, c := range []byte(name) {
		sum = sum*31 + int(c)
	}
	return p.paint([...]string{"36", "35", "33", "34", "32", "96", "95", "93", "94", "92"}[(sum&0xffff)%10], text)
}
