package console_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub/api/console"
)

func TestDocumentation(t *testing.T) {
	missing := errors.New("missing")
	handler := console.Handler(fstest.MapFS{
		"index.html": {Data: []byte("console")}, "docs.html": {Data: []byte("leads there")}, "docs/index.html": {Data: []byte("first")},
		"docs/syncing.html": {Data: []byte("syncing")}, "docs/cli.html": {Data: []byte("cli")}, "docs/cli/app.html": {Data: []byte("app")},
		"docs/assets/site.css": {Data: []byte("style")}, "secret.html": {Data: []byte("no page")},
	}, "", missing)
	get := func(path string) (string, error) {
		w := httptest.NewRecorder()
		err := handler(echo.New().NewContext(httptest.NewRequest(http.MethodGet, path, nil), w))
		return w.Body.String(), err
	}
	t.Run("UX-API-8 each page of the documentation has an address without its ending", func(t *testing.T) {
		for path, want := range map[string]string{
			"/docs": "leads there", "/docs/": "first", "/docs/syncing": "syncing", "/docs/cli": "cli", "/docs/cli/app": "app", "/docs/assets/site.css": "style",
			"/docs/nothing": "console", "/docs/cli/": "console", "/secret": "console", "/docs/../secret": "console",
		} {
			if got, err := get(path); err != nil || got != want {
				t.Errorf("%s: %q %v, want %q", path, got, err, want)
			}
		}
	})
	t.Run("a file of the documentation that is not there is missing", func(t *testing.T) {
		for _, path := range []string{"/docs/assets/nothing.js", "/docs/a.html"} {
			if got, err := get(path); !errors.Is(err, missing) {
				t.Errorf("%s: %q %v", path, got, err)
			}
		}
	})
	t.Run("no address leaves the folder", func(t *testing.T) {
		for _, path := range []string{"/docs/../../etc/passwd", "/docs/%2e%2e/secret", "/docs//secret"} {
			if got, err := get(path); err == nil && strings.Contains(got, "no page") {
				t.Errorf("%s: %q", path, got)
			}
		}
	})
}

func TestStyleSheets(t *testing.T) {
	missing := errors.New("missing")
	styles := fstest.MapFS{
		"acme.css": {Data: []byte("nav {}")}, "logo.svg": {Data: []byte("<svg/>")}, "notes.txt": {Data: []byte("secret")}, "page.html": {Data: []byte("secret")},
		"deep/a.css": {Data: []byte("secret")}, ".hidden.css": {Data: []byte("secret")},
	}
	handler := console.Handler(console.WithStyles(fstest.MapFS{"index.html": {Data: []byte("console")}, "assets/a.css": {Data: []byte("ours")}}, styles), "", missing)
	t.Run("UI-20 style sheets of the operator, and pictures and fonts that they name, are served under custom, and nothing else", func(t *testing.T) {
		for path, want := range map[string]string{
			"/custom/acme.css": "nav {}", "/custom/logo.svg": "<svg/>", "/assets/a.css": "ours", "/": "console",
			"/custom/notes.txt": "", "/custom/page.html": "", "/custom/deep/a.css": "", "/custom/.hidden.css": "", "/custom/none.css": "", "/custom/../index.html": "",
		} {
			w := httptest.NewRecorder()
			err := handler(echo.New().NewContext(httptest.NewRequest(http.MethodGet, path, nil), w))
			if got := w.Body.String(); got != want || (want == "") != errors.Is(err, missing) || strings.Contains(got, "secret") {
				t.Errorf("%s: %q %v, want %q", path, got, err, want)
			}
		}
	})
}
