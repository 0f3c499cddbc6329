package helm

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chart"

	"github.com/capstan-cd/capstan/shared/fault"
)

// schemaFile is the file of a chart with the JSON schema of its values.
const schemaFile = "values.schema.json"

// checkValues validates the values of a chart and of the charts below it
// against their schemas, as Helm does (HELM-13). Unlike Helm it reads nothing
// but the schemas: a reference to a file or an address is refused.
func checkValues(dir string, c *chart.Chart, values map[string]any) error {
	var broken strings.Builder
	file := path.Join(dir, schemaFile)
	var first string
	err := eachSchema(c, values, func(c *chart.Chart, values map[string]any, why string) error {
		at := repoName(dir, path.Join(c.ChartFullPath(), schemaFile))
		if why == "" {
			var loader ownLoader
			err := checkSchema(c.Schema, values, &loader)
			switch {
			case loader.refused != "":
				return fault.With(fault.New(fault.Invalid, "the schema refers to %q, and only what is in the schema itself is read", short(loader.refused)),
					at, "copy what it refers to into the schema's $defs, or set helm.skipSchemaValidation")
			case err == nil:
				return nil
			}
			why = err.Error()
		}
		if first == "" {
			first = at
		}
		fmt.Fprintf(&broken, "%s:\n%s\n", c.Name(), strings.TrimSpace(why))
		return nil
	})
	switch {
	case err != nil:
		return err
	case broken.Len() == 0:
		return nil
	case first != "":
		file = first
	}
	return fault.With(fault.New(fault.Invalid, "values don't meet the specifications of the schema(s) in the following chart(s):\n%s", strings.TrimSpace(broken.String())),
		file, "correct the values, or set helm.skipSchemaValidation")
}

// eachSchema calls check for each chart that has a schema, with the values that
// the chart gets, or with why it can have none.
func eachSchema(c *chart.Chart, values map[string]any, check func(c *chart.Chart, values map[string]any, why string) error) error {
	if c.Schema != nil {
		if err := check(c, values, ""); err != nil {
			return err
		}
	}
	for _, sub := range c.Dependencies() {
		raw, there := values[sub.Name()]
		if !there || raw == nil {
			continue
		}
		below, ok := raw.(map[string]any)
		if !ok {
			if err := check(sub, nil, fmt.Sprintf("invalid type for values: expected object (map), got %T", raw)); err != nil {
				return err
			}
			continue
		}
		if err := eachSchema(sub, below, check); err != nil {
			return err
		}
	}
	return nil
}

// ownScheme separates relative references from any file system.
const ownScheme = "capstan:///"

// checkSchema validates values against one schema.
func checkSchema(text []byte, values map[string]any, loader *ownLoader) (err error) {
	defer func() {
		if r := recover(); r != nil { // the library panics on some schemas
			err = fmt.Errorf("unable to validate schema: %v", r)
		}
	}()
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("the schema is not JSON: %w", err)
	}
	const name = ownScheme + schemaFile
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(loader)
	if err := compiler.AddResource(name, schema); err != nil {
		return fmt.Errorf("the schema cannot be read: %w", err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		return fmt.Errorf("the schema cannot be read: %w", err)
	}
	if err := compiled.Validate(values); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "jsonschema validation failed with '"+name+"#'\n"))
	}
	return nil
}

// ownLoader is called for references to outside of a schema. It opens nothing
// and records what it refused. A URN names no location: Helm treats it as a
// schema that matches everything, and so does this.
type ownLoader struct{ refused string }

// Load implements jsonschema.URLLoader.
func (l *ownLoader) Load(url string) (any, error) {
	if strings.HasPrefix(url, "urn:") {
		return true, nil
	}
	if l.refused == "" {
		l.refused = strings.TrimPrefix(url, ownScheme)
	}
	return nil, fault.New(fault.Denied, "the schema refers to what is not in it")
}

// short bounds a text of the repository in a message.
func short(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
