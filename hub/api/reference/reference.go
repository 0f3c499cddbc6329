// Package reference shows the document of the API as a page for people, without
// scripts and without anything from another host. The API serves it; it is made
// once, when the hub starts, and never changes.
package reference

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

//go:embed page.html.tmpl
var pageText string

//go:embed style.css
var style []byte

// A Reference is what is served.
type Reference struct {
	Page  []byte // HTML
	Style []byte // CSS
	JSON  []byte // the document
}

// New makes the reference of an OpenAPI document in YAML. An error means a
// defect of the document.
func New(document []byte) (Reference, error) {
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return Reference{}, fmt.Errorf("read openapi.yaml: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return Reference{}, fmt.Errorf("check openapi.yaml: %w", err)
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return Reference{}, fmt.Errorf("write openapi.yaml as JSON: %w", err)
	}
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return Reference{}, fmt.Errorf("read the page: %w", err)
	}
	var page bytes.Buffer
	if err := t.Execute(&page, read(doc)); err != nil {
		return Reference{}, fmt.Errorf("write the page: %w", err)
	}
	return Reference{Page: page.Bytes(), Style: style, JSON: text}, nil
}

// A page is what the template shows.
type page struct {
	Title, Version, About string
	Groups                []group
	Schemas               []schema
}

type group struct {
	Name       string
	Operations []operation
}

type operation struct {
	ID, Method, Path, Summary, About string
	Right                            string // "public", "signed in", or resource and action
	Parameters                       []field
	Body                             kind
	Answers                          []answer
}

type field struct {
	Name, In, About string
	Required        bool
	Kind            kind
}

type answer struct {
	Status, About string
	Kind          kind
}

// A kind is how a value is written: words, and the schema that they lead to.
type kind struct{ Text, Schema string }

type schema struct {
	Name, About string
	Kind        kind
	Fields      []field
}

func read(doc *openapi3.T) page {
	out := page{Title: doc.Info.Title, Version: doc.Info.Version, About: doc.Info.Description}
	groups := map[string][]operation{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			name := "other"
			if len(op.Tags) > 0 {
				name = op.Tags[0]
			}
			groups[name] = append(groups[name], readOperation(path, method, item, op))
		}
	}
	for name, operations := range groups {
		slices.SortFunc(operations, func(a, b operation) int {
			return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
		})
		out.Groups = append(out.Groups, group{name, operations})
	}
	slices.SortFunc(out.Groups, func(a, b group) int { return cmp.Compare(a.Name, b.Name) })
	for name, ref := range doc.Components.Schemas {
		out.Schemas = append(out.Schemas, schema{name, ref.Value.Description, kindOf(&openapi3.SchemaRef{Value: ref.Value}), fieldsOf(ref.Value)})
	}
	slices.SortFunc(out.Schemas, func(a, b schema) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func readOperation(path, method string, item *openapi3.PathItem, op *openapi3.Operation) operation {
	out := operation{ID: op.OperationID, Method: method, Path: path, Summary: op.Summary, About: op.Description, Right: right(op)}
	for _, p := range slices.Concat(item.Parameters, op.Parameters) {
		out.Parameters = append(out.Parameters, field{p.Value.Name, p.Value.In, p.Value.Description, p.Value.Required, kindOf(p.Value.Schema)})
	}
	if op.RequestBody != nil {
		out.Body = content(op.RequestBody.Value.Content)
	}
	for status, r := range op.Responses.Map() {
		about := ""
		if r.Value.Description != nil {
			about = *r.Value.Description
		}
		out.Answers = append(out.Answers, answer{status, about, content(r.Value.Content)})
	}
	slices.SortFunc(out.Answers, func(a, b answer) int { return cmp.Compare(a.Status, b.Status) })
	return out
}

// right is what an operation needs, in words.
func right(op *openapi3.Operation) string {
	resource, _ := op.Extensions["x-capstan-resource"].(string)
	action, _ := op.Extensions["x-capstan-action"].(string)
	switch resource {
	case "public":
		return "no sign-in"
	case "self":
		return "a sign-in"
	case "apply", "stream":
		return "a sign-in, and the right on each object"
	}
	return "the right " + resource + ", " + action
}

// content is the kind of a body; one that is not JSON is named by its type.
func content(c openapi3.Content) kind {
	if media := c.Get("application/json"); media != nil {
		return kindOf(media.Schema)
	}
	return kind{Text: strings.Join(slices.Sorted(maps.Keys(c)), ", ")}
}

func kindOf(ref *openapi3.SchemaRef) kind {
	switch {
	case ref == nil || ref.Value == nil:
		return kind{Text: "any value"}
	case ref.Ref != "":
		name := ref.Ref[strings.LastIndex(ref.Ref, "/")+1:]
		return kind{name, name}
	case len(ref.Value.Enum) > 0:
		words := make([]string, len(ref.Value.Enum))
		for i, v := range ref.Value.Enum {
			words[i] = fmt.Sprint(v)
		}
		return kind{Text: strings.Join(words, " | ")}
	case ref.Value.Type == nil:
		return kind{Text: "any value"}
	case ref.Value.Type.Includes(openapi3.TypeArray):
		of := kindOf(ref.Value.Items)
		return kind{"list of " + of.Text, of.Schema}
	}
	text := strings.Join(ref.Value.Type.Slice(), " or ")
	if ref.Value.Format != "" {
		text += " (" + ref.Value.Format + ")"
	}
	if text == openapi3.TypeObject && len(ref.Value.Properties) > 0 {
		names := make([]string, 0, len(ref.Value.Properties))
		for name := range ref.Value.Properties {
			names = append(names, name)
		}
		slices.Sort(names)
		text = "object of " + strings.Join(names, ", ")
	}
	return kind{Text: text}
}

func fieldsOf(s *openapi3.Schema) []field {
	var out []field
	for name, p := range s.Properties {
		about := ""
		if p.Value != nil {
			about = p.Value.Description
		}
		out = append(out, field{name, "", about, slices.Contains(s.Required, name), kindOf(p)})
	}
	slices.SortFunc(out, func(a, b field) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
