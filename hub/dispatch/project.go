package dispatch

import (
	"encoding/json"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
)

// projectSpec decodes what a project says, with its limit of deletions.
func projectSpec(p hub.Project) (hub.ProjectSpec, error) {
	if len(p.Spec) == 0 {
		return hub.ProjectSpec{Prunes: p.PruneLimit()}, nil
	}
	var s hub.ProjectSpec
	if err := json.Unmarshal(p.Spec, &s); err != nil {
		return s, fmt.Errorf("read project %q: %w", p.Name, err)
	}
	s.Prunes = p.PruneLimit()
	return s, nil
}
