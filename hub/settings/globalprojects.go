package settings

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const noGlobalProjects = "restrictions of one project are not inherited by others"

// readGlobalProjects refuses global projects, because projects would not
// inherit their restrictions. Values stored by an earlier release stay;
// Inherited handles them.
func (s *set) readGlobalProjects(_ string, t text) error {
	if !s.strict {
		return nil
	}
	root, err := t.yaml()
	if err != nil || root.empty() {
		return err
	}
	items, err := root.list("the global projects")
	if err != nil || len(items) == 0 {
		return err
	}
	return fault.With(fault.New(fault.Invalid, "global projects are not carried out: %s", noGlobalProjects), "",
		"write the restrictions into each project, and leave "+hub.GlobalProjectsKey+" empty")
}

type globalProject struct {
	Project  string `yaml:"projectName"`
	Selector struct {
		Labels      map[string]string `yaml:"matchLabels"`
		Expressions []struct {
			Key      string   `yaml:"key"`
			Operator string   `yaml:"operator"`
			Values   []string `yaml:"values"`
		} `yaml:"matchExpressions"`
	} `yaml:"labelSelector"`
}

func (g globalProject) matches(labels map[string]string) bool {
	for k, v := range g.Selector.Labels {
		if have, there := labels[k]; !there || have != v {
			return false
		}
	}
	for _, e := range g.Selector.Expressions {
		have, there := labels[e.Key]
		switch strings.ToLower(e.Operator) {
		case "in":
			there = there && slices.Contains(e.Values, have)
		case "notin":
			there = !there || !slices.Contains(e.Values, have)
		case "doesnotexist":
			there = !there
		}
		if !there {
			return false
		}
	}
	return true
}

// Inherited is the project whose restrictions a project would inherit by a
// stored value of globalProjects; empty: none. Of a value that cannot be read
// it is said that all inherit.
func Inherited(value, project string, labels map[string]string) (from string) {
	if strings.TrimSpace(value) == "" {
		return ""
	}
	const unreadable = "that cannot be read"
	defer func() {
		if recover() != nil { // the library panics on some hostile texts
			from = unreadable
		}
	}()
	var all []globalProject
	if yaml.Unmarshal([]byte(value), &all) != nil {
		return unreadable
	}
	for _, g := range all {
		if g.Project != project && g.matches(labels) {
			return g.Project
		}
	}
	return ""
}
