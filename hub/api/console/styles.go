package console

import (
	"io/fs"
	"regexp"
	"strings"
)

// stylesFolder is where style sheets of the operator are found.
const stylesFolder = "custom/"

// styleFile is what is served of them: style sheets, and what those refer to.
var styleFile = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*\.(css|png|svg|woff2)$`)

// WithStyles adds files of the operator's folder to the console's, under custom/.
// Nothing of a tenant is among them.
func WithStyles(files, styles fs.FS) fs.FS { return styled{files, styles} }

type styled struct{ files, styles fs.FS }

// Open opens a file. Of the folder, names without a path and of a known kind.
func (s styled) Open(name string) (fs.File, error) {
	own, is := strings.CutPrefix(name, stylesFolder)
	if !is {
		return s.files.Open(name)
	}
	if !styleFile.MatchString(own) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return s.styles.Open(own)
}
