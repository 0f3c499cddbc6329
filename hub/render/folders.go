package render

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/lru"
)

const (
	// foldersMemory is what is remembered of some 50,000 applications, in bytes.
	foldersMemory = 16 << 20
	// mostInFolder is how many entries a folder may have for its links to be
	// looked for. A larger one is compared input by input.
	mostInFolder = 512
)

// linked marks what is remembered of a folder that has links.
const linked = "!"

// validFolders remembers which trees the folders of sources were when the
// inputs of a snapshot held. While a folder is the same tree, the inputs in it
// hold as well, and need not be looked up one by one.
type validFolders struct {
	cache *lru.Cache[hub.SnapshotID, []string] // by source: folder and hash
}

func newValidFolders() validFolders {
	return validFolders{lru.New[hub.SnapshotID, []string](foldersMemory)}
}

// fresh is Fresh for the inputs of a snapshot.
func (v validFolders) fresh(id hub.SnapshotID, inputs []hub.Input, trees []hub.Tree, req Request) (bool, error) {
	known := v.of(id, req.Sources, trees)
	fresh, err := freshBesides(known, inputs, trees, req)
	if fresh && err == nil {
		v.hold(id, known, trees)
	}
	return fresh, err
}

// of compares the folders of a snapshot's sources with what they were.
func (v validFolders) of(id hub.SnapshotID, sources []hub.Source, trees []hub.Tree) *folders {
	former, _ := v.cache.Get(id)
	f := &folders{names: make([]string, len(sources)), now: make([]string, len(sources)), same: make([]bool, len(sources)), linked: make([]bool, len(sources))}
	for i, s := range sources {
		name := path.Clean(s.Path)
		if s.Path == "" || name == "." || !fs.ValidPath(name) || i >= len(trees) || trees[i] == nil {
			continue
		}
		in, err := trees[i].Input(hub.InputTree, name)
		if err != nil || in.Kind != hub.InputTree {
			continue
		}
		f.names[i], f.now[i] = name, name+" "+in.Hash
		if i < len(former) {
			f.same[i], f.linked[i] = former[i] == f.now[i], former[i] == linked+f.now[i]
		}
	}
	return f
}

// hold notes that the inputs of a snapshot hold in these trees.
func (v validFolders) hold(id hub.SnapshotID, f *folders, trees []hub.Tree) {
	now, size, changed := slices.Clone(f.now), int64(0), false
	for i, name := range f.names {
		found := f.linked[i]
		if now[i] != "" && !f.same[i] && !found {
			found, changed = !trees[i].Linkless(name, mostInFolder), true
		}
		if found {
			now[i] = linked + now[i]
		}
		size += int64(len(now[i]))
	}
	if changed {
		v.cache.Put(id, now, size)
	}
}

// folders are those of the sources of one application.
type folders struct {
	names []string // by source
	now   []string
	same  []bool
	// linked are those with links, or with too many entries to look for them.
	linked []bool
}

// holds reports whether an input is one in a folder that is the same.
func (f *folders) holds(in hub.Input) bool {
	if f == nil || in.Source < 0 || in.Source >= len(f.same) || !f.same[in.Source] {
		return false
	}
	switch in.Kind {
	case hub.InputFile, hub.InputList, hub.InputTree, hub.InputLink, hub.InputMissing, hub.InputDir:
	default:
		return false
	}
	rest, within := strings.CutPrefix(in.Path, f.names[in.Source])
	return within && (rest == "" || rest[0] == '/')
}
