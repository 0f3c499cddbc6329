package helm

import (
	"context"
	"encoding/base64"
	"path"
	"slices"
	"strings"

	"github.com/gobwas/glob"

	"github.com/capstan-cd/capstan/hub/render"
)

// A fileMap is what templates see as .Files where the files are known: name
// to content.
type fileMap map[string][]byte

// Get returns the text of a file; empty if there is none.
func (f fileMap) Get(name string) string { return string(f[name]) }

// GetBytes returns the content of a file; empty if there is none.
func (f fileMap) GetBytes(name string) []byte {
	if data, ok := f[name]; ok {
		return data
	}
	return []byte{}
}

// Glob returns the files that match a pattern. One that is malformed matches all.
func (f fileMap) Glob(pattern string) fileMap {
	match := matcher(pattern)
	out := fileMap{}
	for name, data := range f {
		if match.Match(name) {
			out[name] = data
		}
	}
	return out
}

// AsConfig returns the files as the data of a ConfigMap, by base name.
func (f fileMap) AsConfig() string {
	return f.as(func(data []byte) string { return string(data) })
}

// AsSecrets returns the files as the data of a Secret, by base name.
func (f fileMap) AsSecrets() string {
	return f.as(base64.StdEncoding.EncodeToString)
}

func (f fileMap) as(write func([]byte) string) string {
	if f == nil {
		return ""
	}
	out := make(map[string]string, len(f))
	for _, name := range sortedKeys(f) {
		out[path.Base(name)] = write(f[name])
	}
	return toYAML(out)
}

// Lines returns the lines of a file.
func (f fileMap) Lines(name string) []string { return lines(f[name]) }

func lines(data []byte) []string {
	if len(data) == 0 {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

func matcher(pattern string) glob.Glob {
	g, err := glob.Compile(pattern, '/')
	if err != nil {
		return glob.MustCompile("**")
	}
	return g
}

// lazyFiles is .Files of a chart whose templates only call its methods. A file
// is read on access, so that a change of another one renders nothing. The
// context is that of the render.
type lazyFiles struct {
	ctx   context.Context //nolint:containedctx // templates call without one
	files render.Files
	chart *loaded
	names []string
}

// GetBytes returns the content of a file; empty if there is none.
func (f *lazyFiles) GetBytes(name string) ([]byte, error) {
	data, err := f.read(name)
	if err != nil {
		return nil, err
	}
	return fileMap(data).GetBytes(name), nil
}

// Get returns the text of a file; empty if there is none.
func (f *lazyFiles) Get(name string) (string, error) {
	data, err := f.read(name)
	return string(data[name]), err
}

// Lines returns the lines of a file.
func (f *lazyFiles) Lines(name string) ([]string, error) {
	data, err := f.read(name)
	return lines(data[name]), err
}

// Glob returns the files that match a pattern. One that is malformed matches all.
func (f *lazyFiles) Glob(pattern string) (fileMap, error) {
	if err := f.list(); err != nil {
		return nil, err
	}
	match := matcher(pattern)
	var names []string
	for _, n := range f.names {
		if match.Match(n) {
			names = append(names, n)
		}
	}
	return f.read(names...)
}

// AsConfig returns all files as the data of a ConfigMap, by base name.
func (f *lazyFiles) AsConfig() (string, error) { return f.all(fileMap.AsConfig) }

// AsSecrets returns all files as the data of a Secret, by base name.
func (f *lazyFiles) AsSecrets() (string, error) { return f.all(fileMap.AsSecrets) }

func (f *lazyFiles) all(as func(fileMap) string) (string, error) {
	if err := f.list(); err != nil {
		return "", err
	}
	data, err := f.read(f.names...)
	return as(data), err
}

// list finds out which files the chart has besides those of its own making.
func (f *lazyFiles) list() error {
	if f.names != nil {
		return nil
	}
	all, err := f.chart.names(f.ctx, f.files)
	f.names = slices.DeleteFunc(all, func(n string) bool { return !extra(n) })
	return err
}

// extra reports whether Helm counts a name among a chart's other files.
func extra(name string) bool {
	switch name {
	case "Chart.yaml", "Chart.lock", "values.yaml", "values.schema.json", "requirements.yaml", "requirements.lock":
		return false
	}
	return !strings.HasPrefix(name, "templates/") && (!strings.HasPrefix(name, "charts/") || path.Ext(name) == ".prov")
}

// read returns the named files that exist, are in the chart and are not ignored.
func (f *lazyFiles) read(names ...string) (fileMap, error) {
	var want []string
	for _, n := range names {
		// A name that is not clean is no name of a file, and finds nothing.
		if n != "" && path.Clean(n) == n && !path.IsAbs(n) && n != ".." && !strings.HasPrefix(n, "../") &&
			!strings.ContainsRune(n, 0) && extra(n) && !f.chart.ignored(n) {
			want = append(want, n)
		}
	}
	out := fileMap{}
	if len(want) == 0 {
		return out, nil
	}
	full := make([]string, len(want))
	for i, n := range want {
		full[i] = path.Join(f.chart.dir, n)
	}
	stats, err := f.files.Stat(f.ctx, full...)
	if err != nil {
		return out, err
	}
	var have, there []string
	for i, s := range stats {
		if s.Kind == "file" {
			have, there = append(have, full[i]), append(there, want[i])
		}
	}
	found, err := f.files.Read(f.ctx, have...)
	if err != nil {
		return out, err
	}
	for i, file := range found {
		if file.Found {
			out[there[i]] = buffered(there[i], file.Data).Data
		}
	}
	return out, nil
}
