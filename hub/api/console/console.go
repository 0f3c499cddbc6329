// Package console serves the files of the browser application, and the pages of
// the documentation under docs/. An address that is no file shows the first page,
// because the application has addresses of its own.
package console

import (
	"bytes"
	"html"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/shared/fault"
)

// indexPage is the page of the browser application; every address that is no
// file shows it, because the application has addresses of its own.
const indexPage = "index.html"

// docs is the folder of the documentation, and the name of the page that leads there.
const docs = "docs"

// Handler returns a handler that answers with one file. Names are those of
// io/fs: none leaves the tree. Where there is nothing, the error is missing. The
// root is the path that the console has in a browser, without a slash at its end.
func Handler(files fs.FS, root string, missing error) echo.HandlerFunc {
	h := handler{files: files, missing: missing}
	if text, err := fs.ReadFile(files, indexPage); err == nil {
		h.index = rooted(text, root)
	}
	return h.serve
}

type handler struct {
	files   fs.FS
	index   []byte // of the browser application; nil: there is none
	missing error
}

// rooted returns the first page with its root. Its own links are relative, but it
// is shown at many addresses.
func rooted(page []byte, root string) []byte {
	root = html.EscapeString(root)
	page = bytes.ReplaceAll(page, []byte(`="./`), []byte(`="`+root+`/`))
	return bytes.Replace(page, []byte(`name="capstan-root" content=""`), []byte(`name="capstan-root" content="`+root+`"`), 1)
}

func (h handler) serve(c echo.Context) error {
	files, missing := h.files, h.missing
	name := strings.Trim(c.Request().URL.Path, "/")
	if name == "api" || strings.HasPrefix(name, "api/") {
		return missing
	}
	if name == indexPage {
		name = "" // as it is stored, it has no root
	}
	file := open(files, name)
	if page := docsPage(c.Request().URL.Path); file == nil && page != "" {
		if file = open(files, page); file != nil {
			name = page
		}
	}
	if file == nil {
		if path.Ext(name) != "" {
			return missing // a file of an older release, not a page
		}
		if h.index == nil {
			return fault.New(fault.Missing, "this hub was built without its console")
		}
		c.Response().Header().Set("Cache-Control", "no-cache")
		http.ServeContent(c.Response(), c.Request(), indexPage, time.Time{}, bytes.NewReader(h.index))
		return nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, "assets/") {
		// Their names hold a hash of what is in them.
		c.Response().Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		c.Response().Header().Set("Cache-Control", "no-cache")
	}
	content, ok := file.(io.ReadSeeker)
	if !ok {
		b, err := io.ReadAll(file)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	http.ServeContent(c.Response(), c.Request(), name, info.ModTime(), content)
	return nil
}

// docsPage is the file of an address of the documentation, or empty. Its links are
// relative: the first page is /docs/, and no other address ends with a slash.
func docsPage(address string) string {
	name := strings.TrimPrefix(address, "/")
	switch {
	case name == docs+"/":
		return name + indexPage
	case name == docs || strings.HasPrefix(name, docs+"/"):
		return name + ".html"
	}
	return ""
}

// open returns a file, or nil for what is none.
func open(files fs.FS, name string) fs.File {
	if !fs.ValidPath(name) || name == "." {
		return nil
	}
	f, err := files.Open(name)
	if err != nil {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		_ = f.Close()
		return nil
	}
	return f
}
