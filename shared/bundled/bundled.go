// Package bundled contains the built-in health rules and actions for custom
// kinds: those of the Argo project, unchanged. It only returns their text and
// never runs it; agent/rule and shared/action do. The same kind always has the
// same text.
package bundled

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/v3/resource_customizations"
)

// Files contains the rules: GROUP/KIND/health.lua, and the actions of a kind
// below it, each with the Argo project's test cases. The core group has no
// folder.
func Files() fs.FS { return resource_customizations.Embedded }

// A Catalogue finds what is bundled for a kind. Many goroutines may use it.
type Catalogue struct {
	patterns []string // folders whose names are patterns, in order
}

// New reads which folders there are.
func New() *Catalogue {
	c := &Catalogue{}
	all, _ := fs.Glob(Files(), "*/*/health.lua") // the pattern is well formed
	for _, f := range all {
		if dir := path.Dir(f); strings.Contains(dir, wild) {
			c.patterns = append(c.patterns, dir)
		}
	}
	slices.Sort(c.patterns)
	return c
}

// wild matches any text in the name of a folder.
const wild = "_"

// Health returns the rule for a kind: the one of its exact name, else the first
// whose pattern matches.
func (c *Catalogue) Health(group, kind string) (source string, ok bool) {
	if !named(group, kind) {
		return "", false
	}
	at := path.Join(group, kind)
	if source, ok = read(path.Join(at, "health.lua")); ok {
		return source, true
	}
	for _, p := range c.patterns {
		g, k := path.Split(p)
		if matches(strings.TrimSuffix(g, "/"), group) && matches(k, kind) {
			return read(path.Join(p, "health.lua"))
		}
	}
	return "", false
}

// Discovery returns the script that says which actions a kind offers.
func (c *Catalogue) Discovery(group, kind string) (source string, ok bool) {
	if !named(group, kind) {
		return "", false
	}
	return read(path.Join(group, kind, "actions", "discovery.lua"))
}

// Action returns the script of one action.
func (c *Catalogue) Action(group, kind, name string) (source string, ok bool) {
	if !named(group, kind) || !plain(name) {
		return "", false
	}
	dir := path.Join(group, kind, "actions", name)
	if source, ok = read(path.Join(dir, "action.lua")); ok {
		return source, true
	}
	return read(path.Join(dir, "actions.lua")) // a kind has exactly this name
}

// named reports whether a kind can have a folder: names that come from a cluster
// must not lead elsewhere.
func named(group, kind string) bool {
	return (group == "" || plain(group)) && plain(kind)
}

func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/_*\\")
}

// matches reports whether a name matches a pattern.
func matches(pattern, name string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, wild, "*"), name)
	return err == nil && ok
}

func read(name string) (string, bool) {
	data, err := fs.ReadFile(Files(), name)
	return string(data), err == nil
}
