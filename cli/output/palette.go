package output

import (
	"io"
	"os"

	"golang.org/x/term"
)

// A Palette colours words for people at a terminal; the zero value leaves them
// plain.
type Palette struct{ on bool }

// PaletteOf is plain where a stream is piped, NO_COLOR is set, or TERM is dumb.
func PaletteOf(w io.Writer) Palette {
	return Palette{IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// IsTerminal reports whether a person reads a stream at a terminal.
func IsTerminal(w io.Writer) bool {
	f, is := w.(*os.File)
	return is && term.IsTerminal(int(f.Fd()))
}

func (p Palette) paint(code, text string) string {
	if !p.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bad is for what has failed.
func (p Palette) Bad(text string) string { return p.paint("1;31", text) }

// Good is for what is as it should be.
func (p Palette) Good(text string) string { return p.paint("32", text) }

// Pending is for what is on its way.
func (p Palette) Pending(text string) string { return p.paint("33", text) }

// Faint is for what matters less than the rest of its line.
func (p Palette) Faint(text string) string { return p.paint("2", text) }

// Source colours the name of a container, each with a colour of its own.
func (p Palette) Source(name, text string) string {
	sum := 0
	for _, c := range []byte(name) {
		sum = sum*31 + int(c)
	}
	return p.paint([...]string{"36", "35", "33", "34", "32", "96", "95", "93", "94", "92"}[(sum&0xffff)%10], text)
}
