package validation

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// KindApplicationSet is the kind of application sets.
const KindApplicationSet = "ApplicationSet"

// A SetShape is what the hub itself reads of the spec of a set.
type SetShape struct {
	Project string   // hub.AnyProject: templated
	Watches []string // what wakes the set
}

// CheckApplicationSet validates the metadata that a person wrote of a set, and
// fills in its namespace and project.
func CheckApplicationSet(s *hub.ApplicationSet) (SetShape, error) {
	var none SetShape
	if !subdomain(s.Name) {
		return none, fault.With(fault.New(fault.Invalid, "name %q is no DNS name", Shorten(s.Name)), "",
			"use lower-case letters, digits, hyphens and dots, with a letter or digit at both ends")
	}
	if s.Namespace == "" {
		s.Namespace = DefaultNamespace
	}
	if err := CheckLabel("namespace", s.Namespace); err != nil {
		return none, err
	}
	if err := checkMaps(s.Labels, s.Annotations); err != nil {
		return none, err
	}
	shape, err := shapeOf(s.Spec)
	if err != nil {
		return none, err
	}
	s.Project = shape.Project
	return shape, nil
}

// A setTemplate is what a template says of the project.
type setTemplate struct {
	Spec struct {
		Project string `json:"project"`
	} `json:"spec"`
}

// shapeOf reads the project and the watches of a spec.
func shapeOf(raw json.RawMessage) (SetShape, error) {
	var spec struct {
		Strategy struct {
			Type string `json:"type"`
		} `json:"strategy"`
		Template   setTemplate `json:"template"`
		Generators []map[string]struct {
			Template setTemplate `json:"template"`
		} `json:"generators"`
	}
	if err := json.Unmarshal(raw, &spec); err != nil {
		return SetShape{}, fault.Wrap(fault.Invalid, err, "the spec of the application set cannot be read")
	}
	main := cmp.Or(spec.Template.Spec.Project, "default")
	var projects []string
	for _, kinds := range spec.Generators {
		for kind, g := range kinds {
			if kind != "selector" {
				projects = append(projects, cmp.Or(g.Template.Spec.Project, main))
			}
		}
	}
	if len(projects) == 0 {
		projects = []string{main}
	}
	var out SetShape
	var err error
	if out.Project, err = oneProject(projects); err != nil {
		return out, err
	}
	if spec.Strategy.Type == "RollingSync" {
		out.Watches = append(out.Watches, hub.WatchRollout)
	}
	return out, nil
}

// oneProject is the project that all templates name, or hub.AnyProject.
func oneProject(projects []string) (string, error) {
	for _, p := range projects {
		if strings.Contains(p, "{{") || p != projects[0] {
			return hub.AnyProject, nil
		}
	}
	return projects[0], CheckLabel("project", projects[0])
}
