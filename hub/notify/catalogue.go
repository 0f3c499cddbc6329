package notify

import (
	_ "embed"
	"reflect"
	"sync"

	"sigs.k8s.io/yaml"
)

//go:embed catalogue.yaml
var catalogueText []byte

// Catalogue has the triggers and templates that every tenant may use without
// setting them.
var Catalogue = sync.OnceValue(func() *Config { //nolint:gochecknoglobals // a constant that is expensive to make
	var values map[string]string
	if err := yaml.Unmarshal(catalogueText, &values); err != nil {
		panic("the catalogue of notifications: " + err.Error())
	}
	c := empty()
	for key, value := range values {
		if err := c.read(key, value); err != nil {
			panic("the catalogue of notifications: " + key + ": " + err.Error())
		}
	}
	return c
})

// BuiltInTrigger reports whether a trigger is the catalogue's own.
func (c *Config) BuiltInTrigger(name string) bool {
	own, ok := Catalogue().Triggers[name]
	return ok && len(own) > 0 && len(c.Triggers[name]) > 0 && &own[0] == &c.Triggers[name][0]
}

// BuiltInTemplate reports whether a template is the catalogue's own.
func (c *Config) BuiltInTemplate(name string) bool {
	own, ok := Catalogue().Templates[name]
	return ok && reflect.ValueOf(own.tree).Pointer() == reflect.ValueOf(c.Templates[name].tree).Pointer()
}
