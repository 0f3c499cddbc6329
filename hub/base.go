package hub

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub/repourl"
)

// BasesDir is the directory of a tree that has the bases of other repositories.
const BasesDir = ".capstan-bases"

// BaseFresh is how long the branches of a base are not listed again, unless it is
// known that somebody has pushed to it.
const BaseFresh = 5 * time.Second

// BaseAt splits the name of a file below BasesDir into repository, revision, the
// base's directory, and what is below it. Ok is false for every other name.
func BaseAt(name string) (address, revision, root, below string, ok bool) {
	rest, ok := strings.CutPrefix(name, BasesDir+"/")
	if !ok {
		return "", "", "", "", false
	}
	first, below, _ := strings.Cut(rest, "/")
	text, err := url.PathUnescape(first)
	i := strings.LastIndex(text, "?ref=")
	if err != nil || i < 0 {
		return "", "", "", "", false
	}
	return text[:i], text[i+len("?ref="):], BasesDir + "/" + first, cmp.Or(below, "."), true
}

// HasBases reports whether files of bases are among inputs.
func HasBases(inputs []Input) bool {
	return slices.ContainsFunc(inputs, func(in Input) bool { return strings.HasPrefix(in.Path, BasesDir+"/") })
}

// BaseAddresses returns the normal URLs of the repositories whose files are
// among inputs as bases.
func BaseAddresses(inputs []Input) []string {
	var out []string
	for _, in := range inputs {
		if in.Kind == InputFact || in.Kind == InputRemote || in.Kind == InputChart {
			continue
		}
		address, _, _, _, ok := BaseAt(in.Path)
		if !ok {
			continue
		}
		if normal, err := repourl.Normalize(address); err == nil && !slices.Contains(out, normal) {
			out = append(out, normal)
		}
	}
	return out
}
