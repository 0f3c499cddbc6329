package render

import "github.com/capstan-cd/capstan/hub"

// ValidFolders lets tests compare what is remembered with Fresh.
type ValidFolders struct{ validFolders }

func NewValidFolders() ValidFolders { return ValidFolders{newValidFolders()} }

func (v ValidFolders) Fresh(id hub.SnapshotID, inputs []hub.Input, trees []hub.Tree, req Request) (bool, error) {
	return v.fresh(id, inputs, trees, req)
}

// Same reports for how many sources the folder is what it was.
func (v ValidFolders) Same(id hub.SnapshotID, sources []hub.Source, trees []hub.Tree) (n int) {
	for _, same := range v.of(id, sources, trees).same {
		if same {
			n++
		}
	}
	return n
}

// Opened is a tree as the stage opens it.
func Opened(tree hub.Tree) hub.Tree { return answering(WithBases(tree, nil)) }
