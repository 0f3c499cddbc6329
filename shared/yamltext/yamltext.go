// Package yamltext reads YAML that people write for Capstan's own programs,
// such as configuration files, and reports where it is wrong: file, line and
// field. It does not read manifests; shared/manifest does. Daemons and the
// command line call it.
package yamltext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/suggest"
)

// Decode reads a text into a struct, by the names of JSON. A field that the
// struct does not have is an error, as is a key that is given twice. Errors
// have kind Invalid and name the file, the line, the field and its valid form;
// they never repeat a value.
func Decode(file string, text []byte, into any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		line, cause := Place(text, err)
		return at(file, line, "", "it is not valid YAML: %s", cause)
	}
	if len(doc.Content) > 0 {
		if err := check(file, doc.Content[0], reflect.TypeOf(into), ""); err != nil {
			return err
		}
	}
	if err := sigs.UnmarshalStrict(text, into); err != nil {
		return at(file, 0, "", "%s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "), "while decoding JSON: "))
	}
	return nil
}

var (
	lineText = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)
	grammar  = regexp.MustCompile(`^did not find expected (node content|key|'-' indicator|',' or|<document start>|<stream-start>)`)
)

// Place returns the line, from 1, and the cause of an error of the YAML
// library.
func Place(text []byte, err error) (line int, cause string) {
	m := lineText.FindStringSubmatch(err.Error())
	line, _ = strconv.Atoi(m[1])
	cause = err.Error()[len(m[0]):]
	if grammar.MatchString(cause) { // the library counts these lines from 0
		line++
	}
	last := bytes.Count(bytes.TrimRight(text, " \t\r\n"), []byte("\n")) + 1
	return max(1, min(line, last)), cause
}

// at makes an error about a place in a file. A field is a path such as
// listen.http; line 0 is none.
func at(file string, line int, field, format string, args ...any) error {
	where := file
	if line > 0 {
		where += fmt.Sprintf(", line %d", line)
	}
	cause := fmt.Sprintf(format, args...)
	if field != "" {
		cause = field + ": " + cause
	}
	return &fault.Error{Kind: fault.Invalid, Object: where, Cause: cause, Line: line}
}

// check compares a node with the type that it is read into.
func check(file string, n *yaml.Node, t reflect.Type, path string) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return own(file, n, t, path)
	}
	switch t.Kind() {
	case reflect.Struct:
		return checkStruct(file, n, t, path)
	case reflect.Map:
		return checkMap(file, n, path, func(string) (reflect.Type, error) { return t.Elem(), nil })
	case reflect.Slice:
		return checkList(file, n, t, path)
	case reflect.Interface:
		return nil
	}
	return checkScalar(file, n, t, path)
}

// own reads a value by the type's own unmarshaller.
func own(file string, n *yaml.Node, t reflect.Type, path string) error {
	var v any
	if err := n.Decode(&v); err != nil {
		return at(file, n.Line, path, "it cannot be read")
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return at(file, n.Line, path, "it cannot be read")
	}
	if err := json.Unmarshal(raw, reflect.New(t).Interface()); err != nil {
		return at(file, n.Line, path, "%s", err)
	}
	return nil
}

func checkStruct(file string, n *yaml.Node, t reflect.Type, path string) error {
	fields := fieldsOf(t)
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return checkMap(file, n, path, func(key string) (reflect.Type, error) {
		// JSON names are matched in any case.
		i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, key) })
		if i >= 0 {
			return fields[names[i]], nil
		}
		where := "at the top of the file"
		if path != "" {
			where = "in " + path
		}
		question := suggest.Question(key, names)
		if question == "" {
			question = "; there are " + strings.Join(names, ", ")
		}
		return nil, fmt.Errorf("there is no field %q %s%s", key, where, question)
	})
}

func checkMap(file string, n *yaml.Node, path string, of func(key string) (reflect.Type, error)) error {
	if n.Kind != yaml.MappingNode {
		return at(file, n.Line, path, "it must hold fields, and is %s", shape(n))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			continue
		}
		if seen[key.Value] {
			return at(file, key.Line, path, "the field %q is given twice", key.Value)
		}
		seen[key.Value] = true
		t, err := of(key.Value)
		if err != nil {
			return at(file, key.Line, "", "%s", err)
		}
		if err := check(file, value, t, strings.TrimPrefix(path+"."+key.Value, ".")); err != nil {
			return err
		}
	}
	return nil
}

func checkList(file string, n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind != yaml.SequenceNode {
		if t.Elem().Kind() == reflect.Uint8 {
			return nil // bytes are written as text
		}
		return at(file, n.Line, path, "it must be a list, and is %s", shape(n))
	}
	for i, item := range n.Content {
		if err := check(file, item, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return nil
}

func checkScalar(file string, n *yaml.Node, t reflect.Type, path string) error {
	want, fits := "a text", true // numbers and booleans are accepted as text
	switch t.Kind() {
	case reflect.Bool:
		want, fits = "true or false", n.Tag == "!!bool" || yesNo.MatchString(n.Value)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		want, fits = "a whole number", n.Tag == "!!int" || n.Tag == "!!float"
	case reflect.Float32, reflect.Float64:
		want, fits = "a number", n.Tag == "!!int" || n.Tag == "!!float"
	}
	if n.Kind == yaml.ScalarNode && fits {
		return nil
	}
	return at(file, n.Line, path, "it must be %s, and is %s", want, shape(n))
}

var yesNo = regexp.MustCompile(`^(?i:y|yes|n|no|on|off|true|false)$`)

// shape describes the kind of a value, without the value.
func shape(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Tag == "!!bool" || n.Style == 0 && yesNo.MatchString(n.Value):
		return "true or false"
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "a number"
	}
	return "a text"
}

// fieldsOf returns the types of a struct's fields by their names in JSON.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
			continue
		case f.Anonymous && name == "":
			inner := f.Type
			for inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			for k, v := range fieldsOf(inner) {
				out[k] = v
			}
			continue
		case name == "":
			name = f.Name
		}
		out[name] = f.Type
	}
	return out
}
