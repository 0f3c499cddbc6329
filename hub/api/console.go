package api

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

// console serves the browser application.
func (s *Server) console(e *echo.Echo) {
	if s.cfg.Console == nil {
		return
	}
	e.GET("/", s.serveFile)
	e.GET("/*", s.serveFile)
	e.HEAD("/*", s.serveFile)
}

// serveFile returns one file. Names are those of io/fs: none leaves the tree.
func (s *Server) serveFile(c echo.Context) error {
	name := strings.Trim(c.Request().URL.Path, "/")
	if name == "api" || strings.HasPrefix(name, "api/") {
		return errNoOperation()
	}
	file := s.open(name)
	if file == nil {
		if path.Ext(name) != "" {
			return errNoOperation() // a file of an older release, not a page
		}
		if name, file = indexPage, s.open(indexPage); file == nil {
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
func (s *Server) open(name string) fs.File {
	if !fs.ValidPath(name) || name == "." {
		return nil
	}
	f, err := s.cfg.Console.Open(name)
	if err != nil {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		_ = f.Close()
		return nil
	}
	return f
}
