// Package badge draws the status of applications as a small picture for pages
// of others, such as the README of a repository (UI-24). It is pure.
package badge

import (
	"fmt"
	"html"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// A Badge is what a picture shows. The zero value is that of an application
// about which nothing is said.
type Badge struct {
	Name     string // above the states; empty: left out
	Health   hub.HealthStatus
	Sync     hub.SyncStatus
	Revision string // behind the states; empty: left out
	Width    int    // in pixels; 0: as wide as it is drawn
}

const (
	height = 20 // of a line, in pixels
	glyph  = 7  // the width of a character, in pixels, on average
	space  = 16 // left and right of a text together, in pixels
)

// A part is a text on a ground.
type part struct{ text, ground string }

// SVG draws the picture. It has no script, no link and nothing from elsewhere.
func (b Badge) SVG() string {
	parts := []part{health(b.Health), sync(b.Sync)}
	if b.Revision != "" {
		parts = append(parts, part{"(" + b.Revision + ")", neutral})
	}
	wide := 0
	for _, p := range parts {
		wide += width(p.text)
	}
	lines := 1
	if b.Name != "" {
		lines, wide = 2, max(wide, width(b.Name))
	}
	shown := wide
	if b.Width > 0 {
		shown = b.Width
	}
	title := strings.TrimSpace(b.Name + " " + parts[0].text + " " + parts[1].text)
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s"><title>%s</title>`,
		shown, lines*height*shown/wide, wide, lines*height, html.EscapeString(title), html.EscapeString(title))
	s.WriteString(`<g font-family="Inter,Verdana,sans-serif" font-size="12" fill="#ffffff">`)
	y := 0
	if b.Name != "" {
		box(&s, 0, y, wide, part{b.Name, dark})
		y = height
	}
	x := 0
	for i, p := range parts {
		w := width(p.text)
		if i == len(parts)-1 {
			w = wide - x
		}
		box(&s, x, y, w, p)
		x += w
	}
	s.WriteString(`</g></svg>`)
	return s.String()
}

func box(s *strings.Builder, x, y, wide int, p part) {
	fmt.Fprintf(s, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/><text x="%d" y="%d" text-anchor="middle">%s</text>`,
		x, y, wide, height, p.ground, x+wide/2, y+14, html.EscapeString(p.text))
}

func width(text string) int { return glyph*len(text) + space }

// Grounds on which white text has a contrast of 4.5 at least.
const (
	green   = "#14663a"
	blue    = "#1b52ac"
	amber   = "#804405"
	red     = "#b0211a"
	violet  = "#5b3bbb"
	neutral = "#545c6a"
	dark    = "#14181f"
)

func health(h hub.HealthStatus) part {
	switch h {
	case hub.Healthy:
		return part{"Healthy", green}
	case hub.Progressing:
		return part{"Progressing", blue}
	case hub.Suspended:
		return part{"Suspended", violet}
	case hub.Degraded:
		return part{"Degraded", red}
	case hub.MissingHealth:
		return part{"Missing", amber}
	default:
		return part{"Unknown", neutral}
	}
}

func sync(s hub.SyncStatus) part {
	switch s {
	case hub.Synced:
		return part{"Synced", green}
	case hub.OutOfSync:
		return part{"OutOfSync", amber}
	default:
		return part{"Unknown", neutral}
	}
}
