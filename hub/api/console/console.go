// Package console serves the files of the browser application. An address that is no
// file shows the first page, because the application has addresses of its own.
package console

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/shared/fault"
)

// indexPage is the page of the browser application; every address that is no
// file shows it, because the application has addresses of its own.
const indexPage = "index.html"

// Handler returns a handler that answers with one file. Names are those of
// io/fs: none leaves the tree. Where there is nothing, the error is missing.
func Handler(files fs.FS, missing error) echo.HandlerFunc {
	return func(c echo.Context) error { return serveFile(c, files, missing) }
}

func serveFile(c echo.Context, files fs.FS, missing error) error {
	name := strings.Trim(c.Request().URL.Path, "/")
	if name == "api" || strings.HasPrefix(name, "api/") {
		return missing
	}
	file := open(files, name)
	if file == nil {
		if path.Ext(name) != "" {
			return missing // a file of an older release, not a page
		}
		if name, file = indexPage, open(files, indexPage); file == nil {
			return fault.New(fault.Missing, "this hub was built without its console")
		}
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
