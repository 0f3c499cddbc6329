package badge_test

import (
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/badge"
)

func TestBadge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		b    badge.Badge
		want []string
		not  []string
	}{
		"UI-24 what is not known is said":                {badge.Badge{}, []string{">Unknown<", `height="20"`}, []string{"Healthy", "Synced"}},
		"UI-24 both states are words":                    {badge.Badge{Health: hub.Healthy, Sync: hub.Synced}, []string{">Healthy<", ">Synced<", `aria-label="Healthy Synced"`}, []string{"Unknown"}},
		"UI-24 the name is a line of its own":            {badge.Badge{Name: "web", Health: hub.Degraded, Sync: hub.OutOfSync}, []string{">web<", ">Degraded<", ">OutOfSync<", `height="40"`}, nil},
		"UI-24 the revision is behind the states":        {badge.Badge{Revision: "abc1234", Health: hub.Progressing}, []string{">(abc1234)<", ">Progressing<"}, nil},
		"UI-24 a width keeps the proportions":            {badge.Badge{Width: 1000, Health: hub.Healthy, Sync: hub.Synced}, []string{`width="1000"`}, []string{`height="20" viewBox`}},
		"UI-24 SEC-H1 SEC-H8 no text leaves its element": {badge.Badge{Name: `"><script>x</script>`, Revision: "</svg>"}, []string{"&lt;script&gt;"}, []string{"<script"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := c.b.SVG()
			for d := xml.NewDecoder(strings.NewReader(got)); ; {
				token, err := d.Token()
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatalf("%v: %s", err, got)
				}
				inert(t, token)
			}
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in %s", w, got)
				}
			}
			for _, n := range c.not {
				if strings.Contains(got, n) {
					t.Errorf("%q is in %s", n, got)
				}
			}
		})
	}
}

// inert fails for what could run or load something: a picture has shapes and text.
func inert(t *testing.T, token xml.Token) {
	t.Helper()
	e, is := token.(xml.StartElement)
	if !is {
		return
	}
	if !slices.Contains([]string{"svg", "title", "g", "rect", "text", "path"}, e.Name.Local) {
		t.Errorf("SEC-H8 the picture has an element %s", e.Name.Local)
	}
	for _, a := range e.Attr {
		if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" || a.Name.Local == "style" || strings.Contains(a.Value, "url(") {
			t.Errorf("SEC-H8 the picture has the attribute %s=%q", a.Name.Local, a.Value)
		}
	}
}
