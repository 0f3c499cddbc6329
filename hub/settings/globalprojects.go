package settings

import (
	"regexp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// readNamespaces checks patterns of namespaces: one that cannot be read would
// match nothing.
func (s *set) readNamespaces(_ string, t text) error {
	for _, p := range hub.SplitNamespaces(t.value) {
		if !hub.IsExpression(p) {
			if err := glob.Check(p); err != nil {
				return err
			}
			continue
		}
		if _, err := regexp.Compile(p[1 : len(p)-1]); err != nil {
			return fault.New(fault.Invalid, "%q is not a regular expression", short(p))
		}
	}
	return nil
}

// readGlobalProjects checks a list that a person sets. Of one that an earlier
// release stored, projects report what is wrong with it.
func (s *set) readGlobalProjects(_ string, t text) error {
	if !s.strict {
		return nil
	}
	if _, err := t.yaml(); err != nil {
		return err
	}
	_, err := hub.ParseGlobalProjects(t.value)
	return err
}

func (s *set) readPauses(_ string, t text) error {
	if !s.strict {
		return nil
	}
	_, err := hub.ParsePauses(t.value)
	return err
}
