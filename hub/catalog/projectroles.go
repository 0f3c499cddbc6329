package catalog

import (
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
)

// checkExpressions refuses roles whose patterns are no regular expressions, in a
// tenant whose policies have these.
func (w *writer) checkExpressions(p hub.Project) error {
	if !w.Rights.Regex() {
		return nil
	}
	spec, err := hub.DecodeProject(p.Spec)
	if err == nil {
		_, _, err = access.ParseProject(p.Name, spec, true)
	}
	return fault.With(err, "project "+p.Name, "")
}
