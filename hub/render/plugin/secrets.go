package plugin

import (
	"bytes"
	"slices"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// found returns the secrets of the plugin that an output contains, in any of
// the forms in which manifests have them.
func (w *workspace) found(output []byte) []string {
	var out []string
	for _, s := range w.secrets {
		if len(s) >= manifest.ShortestSecret && slices.ContainsFunc(manifest.FormsOf(s), func(form string) bool { return bytes.Contains(output, []byte(form)) }) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
