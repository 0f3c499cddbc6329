package hub

import (
	"slices"

	"github.com/capstan-cd/capstan/shared/glob"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// WindowsOf returns the sync windows of a project that concern an application:
// those of which one of the lists names it, its cluster or its namespace, and
// with andOperator those of which all lists do that are there (WIN-02). A
// cluster is matched by name or server as the application's destination has it.
func (s ProjectSpec) WindowsOf(app string, d Destination) []syncwindow.Window {
	var out []syncwindow.Window
	for _, w := range s.SyncWindows {
		if concerns(w, app, d) {
			out = append(out, w)
		}
	}
	return out
}

func concerns(w syncwindow.Window, app string, d Destination) bool {
	named := func(patterns []string, values ...string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool {
			return slices.ContainsFunc(values, func(v string) bool { return v != "" && glob.Match(p, v) })
		})
	}
	matched := false
	for _, list := range [...]struct {
		patterns []string
		hit      bool
	}{
		{w.Applications, named(w.Applications, app)},
		{w.Namespaces, named(w.Namespaces, d.Namespace)},
		{w.Clusters, named(w.Clusters, d.Name, d.Server)},
	} {
		if len(list.patterns) == 0 {
			continue
		}
		if w.AndOperator && !list.hit {
			return false
		}
		matched = matched || list.hit
	}
	return matched
}
