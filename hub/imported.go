package hub

import "github.com/capstan-cd/capstan/shared/fault"

// ImportedAnnotation says that an Application came from another installation
// with objects that run already (CLI-13). It counts under our prefix alone.
const ImportedAnnotation = ownPrefix + "imported"

// The values of ImportedAnnotation.
const (
	// ImportObserve has the application rendered and compared, and nothing
	// applied, healed or pruned by itself. A person may still sync it.
	ImportObserve = "observe"
	// ImportConfirmed starts its automation. Objects that equal what is rendered
	// are adopted as they are.
	ImportConfirmed = "confirmed"
)

// Observed reports whether the application was imported and its automation
// waits for a confirmation.
func (m Meta) Observed() bool { return m.Annotations[ImportedAnnotation] == ImportObserve }

// ImportIsConfirmed reports whether the application was imported and confirmed.
func (m Meta) ImportIsConfirmed() bool { return m.Annotations[ImportedAnnotation] == ImportConfirmed }

// checkImported refuses other values of the annotation.
func checkImported(m Meta) error {
	text, found := m.Annotations[ImportedAnnotation]
	if !found || text == ImportObserve || text == ImportConfirmed {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "annotation %s is %q", ImportedAnnotation, cut(text)), "", "write "+ImportObserve+" or "+ImportConfirmed)
}
