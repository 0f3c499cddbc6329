package dispatch

import (
	"fmt"

	"github.com/capstan-cd/capstan/hub"
)

// projectSpec decodes what a project says and inherits, with its limit of
// deletions.
func projectSpec(p hub.Project) (hub.ProjectSpec, error) {
	s, err := p.Effective()
	if err != nil {
		return s, fmt.Errorf("read project %q: %w", p.Name, err)
	}
	s.Prunes = p.PruneLimit()
	return s, nil
}
