package render

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/capstan-cd/capstan/hub"
)

// Fresh reports whether all recorded inputs are what they were, in the trees of
// new commits and for the cluster as it is now. If they are, a render would
// return the same objects again. It reads no file contents. req needs no trees
// of its own. An error means that the answer could not be found out.
func Fresh(inputs []hub.Input, trees []hub.Tree, req Request) (bool, error) {
	return freshBesides(nil, inputs, trees, req)
}

// freshBesides is Fresh for inputs of which some are known to be the same.
func freshBesides(known *folders, inputs []hub.Input, trees []hub.Tree, req Request) (bool, error) {
	req.Trees = trees
	for _, in := range inputs {
		if known.holds(in) {
			continue
		}
		same, err := holds(in, trees, req)
		if err != nil {
			return false, fmt.Errorf("look up input %q of source %d: %w", in.Path, in.Source+1, err)
		}
		if !same {
			return false, nil
		}
	}
	return true, nil
}

func holds(in hub.Input, trees []hub.Tree, req Request) (bool, error) {
	if in.Kind == hub.InputForgotten {
		return false, nil
	}
	if in.Kind == hub.InputFact {
		return factInput(in.Source, in.Path, req.fact(in.Source, in.Path)) == in, nil
	}
	if in.Kind == hub.InputRemote {
		data, err := req.remote(in.Source, in.Path, maxRemote)
		// If it cannot be read, the render returns the error.
		return err == nil && remoteInput(in.Source, in.Path, data) == in, nil
	}
	if in.Kind == hub.InputChart {
		chart, err := req.chart(hub.ParseChartRef(in.Path), in.Hash)
		return err == nil && chart.Digest == in.Hash, nil
	}
	if in.Source < 0 || in.Source >= len(trees) || trees[in.Source] == nil {
		return false, nil
	}
	tree := trees[in.Source]
	switch in.Kind {
	case hub.InputMissing, hub.InputDir:
		fi, err := tree.Stat(in.Path)
		if in.Kind == hub.InputMissing {
			return errors.Is(err, fs.ErrNotExist), outage(err)
		}
		return err == nil && fi.IsDir(), outage(err)
	default:
		now, err := tree.Input(in.Kind, in.Path)
		if err != nil {
			return false, outage(err)
		}
		return now.Kind == in.Kind && now.Hash == in.Hash, nil
	}
}

// outage drops the errors that are answers: nothing there, another kind of
// thing there, or a link that leaves the tree. They mean "no longer the same".
func outage(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) || refused(err) {
		return nil
	}
	return err
}
