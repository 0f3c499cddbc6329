// Package web holds the built console for the hub to serve. It has no logic.
// The hub's composition root is its only caller. A page that says how to build
// the console stands in until it has been built.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist placeholder
var files embed.FS

// Console returns the built console, or the placeholder if it was not built.
func Console() (fs.FS, error) {
	if _, err := fs.Stat(files, "dist/index.html"); err == nil {
		return fs.Sub(files, "dist")
	}
	return fs.Sub(files, "placeholder")
}
