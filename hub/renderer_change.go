package hub

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Rendering says which renderers made a snapshot, and from what.
type Rendering struct {
	Version string `json:"v"` // of the renderers
	Params  string `json:"p"` // hash of the parameters, whatever the version
	Inputs  string `json:"i"` // hash of all that was read
}

// A RendererChange is what other renderers make of equal sources.
type RendererChange struct {
	From    string `json:"from"` // renderers that are no longer in use, with their versions
	To      string `json:"to"`   // those in their place
	Added   int    `json:"added"`
	Changed int    `json:"changed"`
	Removed int    `json:"removed"`
}

// ChangeOfRenderers returns what differs between two snapshots only because
// other renderers made the second one; nil: nothing does, or the sources differ,
// or it is not known what made the first one. The revisions are those that the
// snapshots stand for.
func ChangeOfRenderers(old Snapshot, oldRevisions []string, next Snapshot) *RendererChange {
	was, is := old.Commit.Rendering, next.Commit.Rendering
	if was == nil || is == nil || was.Version == is.Version || was.Params != is.Params {
		return nil
	}
	if !slices.Equal(oldRevisions, next.Revisions) && was.Inputs != is.Inputs {
		return nil
	}
	out := countChanges(old.Objects, next.Objects)
	if out.Added+out.Changed+out.Removed == 0 {
		return nil
	}
	// Where one was only added, or only removed, all are named.
	out.From, out.To = cmp.Or(without(was.Version, is.Version), was.Version), cmp.Or(without(is.Version, was.Version), is.Version)
	return &out
}

func countChanges(old, next []ObjectRef) RendererChange {
	before := make(map[manifest.Key]ObjectRef, len(old))
	for _, o := range old {
		before[o.Key()] = o
	}
	var out RendererChange
	for _, o := range next {
		was, there := before[o.Key()]
		switch {
		case !there:
			out.Added++
		case was != o:
			out.Changed++
		}
		delete(before, o.Key())
	}
	out.Removed = len(before)
	return out
}

// without returns the words of a list of versions that another one does not
// have. The word without a name is the version of our own rules.
func without(versions, other string) string {
	var out []string
	for _, v := range strings.Fields(versions) {
		if slices.Contains(strings.Fields(other), v) {
			continue
		}
		if !strings.Contains(v, "/") {
			v = "rules/" + v
		}
		out = append(out, v)
	}
	return strings.Join(out, " ")
}

// Sentence says what has changed.
func (c RendererChange) Sentence() string {
	return fmt.Sprintf("the renderers changed from %s to %s, and equal sources give other objects: %d changed, %d added, %d removed",
		c.From, c.To, c.Changed, c.Added, c.Removed)
}
