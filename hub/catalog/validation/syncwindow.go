package validation

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// maxWindows bounds what is computed for each application of a project.
const maxWindows = 100

// checkWindows validates the sync windows of a project (WIN-01, WIN-12).
func checkWindows(spec hub.ProjectSpec) error {
	if n := len(spec.SyncWindows); n > maxWindows {
		return fault.New(fault.Exceeded, "spec.syncWindows has %d windows, and may have %d", n, maxWindows)
	}
	for i, w := range spec.SyncWindows {
		where := fmt.Sprintf("spec.syncWindows[%d]", i)
		if err := w.Validate(); err != nil {
			return prefix(err, where)
		}
		same := func(o syncwindow.Window) bool { return reflect.DeepEqual(o, w) }
		if first := slices.IndexFunc(spec.SyncWindows, same); first != i {
			return fault.With(fault.New(fault.Invalid, "%s is the same as spec.syncWindows[%d]", where, first), "", "remove one of them")
		}
	}
	return nil
}

func windowWarnings(spec hub.ProjectSpec) []string {
	var out []string
	for i, w := range spec.SyncWindows {
		for _, text := range w.Warnings() {
			out = append(out, fmt.Sprintf("spec.syncWindows[%d]: %s", i, text))
		}
	}
	return out
}
