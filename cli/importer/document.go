// Package importer brings what another installation exported, or Argo CD, into
// a hub: it decides for each document what is taken, what is left out and why,
// and applies the rest through the hub's API. Nothing changes in a cluster:
// applications that are new are only observed until they are confirmed. The
// import and admin commands call it. It never prints a secret value.
package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	sigs "sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A document is one object of the input.
type document struct {
	place  string // of its text, for people
	object map[string]any
}

// read splits a text into objects. The items of a list count each.
func read(name string, text []byte) ([]document, error) {
	var out []document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var node yaml.Node
		if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fault.New(fault.Invalid, "%s, document %d: it is not YAML", name, n)
		}
		object, err := objectOf(&node)
		if err != nil {
			return nil, fault.New(fault.Invalid, "%s, document %d: %s", name, n, err)
		}
		place := fmt.Sprintf("%s, line %d", name, max(1, node.Line))
		if object != nil {
			out = append(out, flat(document{place, object})...)
		}
	}
}

// objectOf decodes a document as Kubernetes does; nil: it is empty.
func objectOf(node *yaml.Node) (map[string]any, error) {
	text, err := yaml.Marshal(node)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	var object map[string]any
	if sigs.Unmarshal(text, &object) != nil { // the library's error may show values
		return nil, errors.New("it is no object")
	}
	return object, nil
}

// flat returns the items of a list, or the document itself.
func flat(d document) []document {
	items, ok := d.object["items"].([]any)
	if !ok || !strings.HasSuffix(d.kind(), "List") {
		return []document{d}
	}
	var out []document
	for _, item := range items {
		if object, ok := item.(map[string]any); ok {
			out = append(out, flat(document{d.place, object})...)
		}
	}
	return out
}

func (d document) kind() string       { return textOf(d.object, "kind") }
func (d document) apiVersion() string { return textOf(d.object, "apiVersion") }
func (d document) name() string       { return textOf(d.meta(), "name") }
func (d document) namespace() string  { return textOf(d.meta(), "namespace") }
func (d document) labels() map[string]string {
	return textsOf(d.meta(), "labels")
}

func (d document) annotations() map[string]string { return textsOf(d.meta(), "annotations") }

func (d document) meta() map[string]any {
	m, _ := d.object["metadata"].(map[string]any)
	return m
}

// json is the document as it is sent.
func (d document) json() ([]byte, error) { return json.Marshal(d.object) }

func textOf(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func textsOf(m map[string]any, key string) map[string]string {
	out := map[string]string{}
	given, _ := m[key].(map[string]any)
	for k, v := range given {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}
