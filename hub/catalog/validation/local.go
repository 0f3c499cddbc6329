package validation

import (
	"fmt"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// ReadLocal reads the manifests of a request, each text a stream of objects.
func ReadLocal(texts []string) (*hub.Local, error) {
	out := &hub.Local{}
	for i, text := range texts {
		objects, err := manifest.Parse(fmt.Sprintf("manifest %d", i+1), []byte(text), manifest.Limits{})
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			if err := addLocal(out, o); err != nil {
				return nil, err
			}
		}
	}
	if len(out.Objects) == 0 {
		return nil, fault.With(fault.New(fault.Invalid, "the manifests hold no object"), "", "give at least one")
	}
	return out, nil
}

// addLocal adds one object, in the form of a renderer's result.
func addLocal(l *hub.Local, o *manifest.Object) error {
	if err := manifest.Normalize(o); err != nil {
		return err
	}
	key := manifest.KeyOf(o)
	if key.Name == "" && o.GetGenerateName() == "" {
		return fault.With(fault.New(fault.Invalid, "a %s has neither metadata.name nor metadata.generateName", key.Kind), "", "name it")
	}
	hooks, err := manifest.Hooks(o)
	if err != nil {
		return err
	}
	if key.Name == "" {
		key.Name = o.GetGenerateName()
		if len(hooks) == 0 {
			key.Name = manifest.StandIn(key.Name) // the agent refuses it alone
		}
	}
	text, err := manifest.Canonical(o)
	if err != nil {
		return err
	}
	l.Objects = append(l.Objects, hub.ObjectRef{
		Group: key.Group, Version: manifest.Version(o), Kind: key.Kind, Namespace: key.Namespace, Name: key.Name,
		Wave: manifest.Wave(o), Hook: strings.Join(hooks, ","),
	})
	l.Bodies = append(l.Bodies, text)
	return nil
}
