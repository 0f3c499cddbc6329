package render

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/capstan-cd/capstan/hub"
)

// countedTree counts its calls.
type countedTree struct {
	hub.Tree
	files fstest.MapFS
	fails error
	asked int
}

func (c *countedTree) Stat(name string) (fs.FileInfo, error) {
	c.asked++
	if c.fails != nil {
		return nil, c.fails
	}
	return fs.Stat(c.files, name)
}

func TestAnsweredTree(t *testing.T) {
	t.Parallel()
	t.Run("B24 a name is looked up once for all applications of a folder, also if it does not exist", func(t *testing.T) {
		t.Parallel()
		under := &countedTree{files: fstest.MapFS{"web/a.yaml": {}}}
		tree := answering(under)
		for range 3 {
			if fi, err := tree.Stat("web"); err != nil || !fi.IsDir() {
				t.Errorf("web: %v, %v", fi, err)
			}
			if _, err := tree.Stat("web/Chart.yaml"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("no chart: error %v", err)
			}
		}
		if under.asked != 2 {
			t.Errorf("the tree was asked %d times, want 2", under.asked)
		}
	})
	t.Run("a failure is no answer", func(t *testing.T) {
		t.Parallel()
		under := &countedTree{files: fstest.MapFS{"web/a.yaml": {}}, fails: errors.New("the disk is away")}
		tree := answering(under)
		if _, err := tree.Stat("web"); err == nil {
			t.Error("no error")
		}
		under.fails = nil
		if _, err := tree.Stat("web"); err != nil {
			t.Error(err)
		}
	})
	t.Run("its memory is bounded", func(t *testing.T) {
		t.Parallel()
		tree := answering(&countedTree{})
		name := make([]byte, 3)
		for n := range 2 * mostAnswers {
			name[0], name[1], name[2] = byte('a'+n%26), byte('a'+n/26%26), byte('a'+n/26/26%26)
			_, _ = tree.Stat(string(name))
		}
		if len(tree.stats) != mostAnswers {
			t.Errorf("%d answers are kept, want %d", len(tree.stats), mostAnswers)
		}
	})
}
