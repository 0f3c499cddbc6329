package render

import (
	"context"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Job is one source of one application, as a renderer gets it.
type Job struct {
	Application string
	Namespace   string // of the destination
	Index       int    // of the source
	Source      hub.Source
	Dir         string         // where the source's path is in its tree; "." is the root
	Refs        map[string]int // sources that others may name as $ref
	Files       Files          // of this source
	Limits      Limits
}

// An Output is what a renderer made of one source.
type Output struct {
	Objects  []Rendered
	Impure   bool
	Warnings []string
}

// A Rendered object remembers the file that it came from, for messages.
type Rendered struct {
	File   string
	Object *manifest.Object
}

// Files reads the tree of one source for a renderer.
type Files struct {
	Access Access
	Source int
}

// Of reads from another source of the same application.
func (f Files) Of(source int) Files { return Files{f.Access, source} }

// Stat returns what is at each name.
func (f Files) Stat(ctx context.Context, names ...string) ([]Stat, error) {
	a, err := f.request(ctx, Question{Op: OpStat, Names: names})
	return a.Stats, err
}

// Kind returns what is at one name.
func (f Files) Kind(ctx context.Context, name string) (hub.InputKind, error) {
	s, err := f.Stat(ctx, name)
	if err != nil {
		return "", err
	}
	return s[0].Kind, nil
}

// List returns the names in a directory; q has the depth. The first result
// is what is at dir itself, and there are entries only for a directory.
func (f Files) List(ctx context.Context, dir string, q Question) (hub.InputKind, []Entry, error) {
	q.Op, q.Names = OpList, []string{dir}
	a, err := f.request(ctx, q)
	if err != nil {
		return "", nil, err
	}
	return a.Stats[0].Kind, a.Entries, nil
}

// Read returns the contents of files. A missing one is not an error here.
func (f Files) Read(ctx context.Context, names ...string) ([]File, error) {
	if len(names) == 0 {
		return nil, nil
	}
	a, err := f.request(ctx, Question{Op: OpRead, Names: names})
	return a.Files, err
}

// Real resolves the links of a name.
func (f Files) Real(ctx context.Context, name string) (string, hub.InputKind, error) {
	a, err := f.request(ctx, Question{Op: OpReal, Names: []string{name}})
	if err != nil {
		return "", "", err
	}
	return a.Real, a.Stats[0].Kind, nil
}

// Fact returns the answer to a question about cluster or application.
func (f Files) Fact(ctx context.Context, name string) (string, error) {
	a, err := f.request(ctx, Question{Op: OpFact, Names: []string{name}})
	if err != nil {
		return "", err
	}
	return a.Facts[0], nil
}

// Remote returns the contents of an address that the source's spec names.
func (f Files) Remote(ctx context.Context, written string) (File, error) {
	a, err := f.request(ctx, Question{Op: OpRemote, Names: []string{written}})
	if err != nil {
		return File{}, err
	}
	return a.Files[0], nil
}

// Chart returns the archive of a chart that a file of the tree declares, by its
// place in the file's list. Refused is the reason if there is none.
func (f Files) Chart(ctx context.Context, file string, place int) (File, error) {
	a, err := f.request(ctx, Question{Op: OpChart, Names: []string{file, strconv.Itoa(place)}})
	if err != nil {
		return File{}, err
	}
	return a.Files[0], nil
}

// Setting returns the value of a setting that hub.Renders names; empty if it is
// not set.
func (f Files) Setting(ctx context.Context, key string) (string, error) {
	return f.Fact(ctx, FactSetting+key)
}

// Enabled reports whether the setting that switches a tool off leaves it on
// (SRC-15).
func (j Job) Enabled(ctx context.Context, key string) (bool, error) {
	value, err := j.Files.Setting(ctx, key)
	return value == "" || strings.TrimSpace(value) == "true", err
}

func (f Files) request(ctx context.Context, q Question) (Answer, error) {
	q.Source = f.Source
	return f.Access.Ask(ctx, q)
}

// Within returns the name in the tree that a path written in a spec or in a
// file means: relative to dir, or to the root if it begins with a slash. A path
// that leaves the tree is refused, whatever is there.
func Within(dir, written string) (string, error) {
	if strings.ContainsRune(written, 0) {
		return "", fault.New(fault.Invalid, "the path %s holds a zero byte", quote(written))
	}
	name := path.Join(dir, written)
	if path.IsAbs(written) {
		name = path.Clean(strings.TrimLeft(written, "/"))
	}
	if name == ".." || strings.HasPrefix(name, "../") {
		return "", fault.New(fault.Invalid, "the path %s leaves the repository", quote(written))
	}
	return name, nil
}

// Remote reports whether a path is a URL.
func Remote(written string) bool {
	u, err := url.Parse(written)
	return err == nil && len(u.Scheme) > 1 && (u.Host != "" || u.Opaque != "" || strings.Contains(written, "://"))
}

// Substitute replaces $VAR and ${VAR} by the build environment (SRC-18). Write
// $$ for a dollar sign. An unknown name is empty.
func (j Job) Substitute(ctx context.Context, s string) (string, error) {
	if !strings.ContainsRune(s, '$') {
		return s, nil
	}
	var failed error
	known := EnvNames()
	out := os.Expand(s, func(name string) string {
		if name == "$" {
			return "$"
		}
		if !slices.Contains(known, name) || failed != nil {
			return ""
		}
		v, err := j.Files.Fact(ctx, FactEnv+name)
		failed = err
		return v
	})
	return out, failed
}

// Foreign splits "$ref/rest" into the files of the source that is called ref
// and the rest. ok is false for any other path.
func (j Job) Foreign(written string) (f Files, rest string, ok bool, err error) {
	if !strings.HasPrefix(written, "$") {
		return Files{}, "", false, nil
	}
	name, rest, slash := strings.Cut(written[1:], "/")
	index, known := j.Refs[name]
	if known && slash {
		return j.Files.Of(index), rest, true, nil
	}
	if !slash || slices.Contains(EnvNames(), strings.Trim(name, "{}")) {
		return Files{}, "", false, nil
	}
	return Files{}, "", false, fault.With(fault.New(fault.Invalid, "%s names the ref %q, which no source has", quote(written), name),
		"", "add a source with ref: "+name)
}
