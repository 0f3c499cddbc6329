package crossreads_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// left out are operations that end the calls of a side, those that sign in,
// which are slow on purpose, and streams, which are followed all the time.
var leftOut = []string{"logout", "changePassword", "login", "setup", "checkSetup", "streamChanges", "deleteAccountSession", "deleteAccountSessions"}

// An operation is one of the document.
type operation struct {
	id, method, path string
	of               *openapi3.Operation
}

func operations(t *testing.T) []operation {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../../hub/api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []operation
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			op.Parameters = append(slices.Clone(item.Parameters), op.Parameters...)
			ok := op.Responses.Status(http.StatusOK)
			stream := ok != nil && ok.Value.Content.Get("text/event-stream") != nil
			if !stream && !slices.Contains(leftOut, op.OperationID) {
				out = append(out, operation{op.OperationID, method, path, op})
			}
		}
	}
	slices.SortFunc(out, func(a, b operation) int { return strings.Compare(a.id, b.id) })
	return out
}

// A generator makes the requests of one worker of a side.
type generator struct {
	*rand.Rand
	own *side
}

// text is a name, an id or a word: of the own side, of the other one, or of
// nobody.
func (g *generator) text() string {
	n := g.IntN(1 << 20)
	switch {
	case g.IntN(100) < 40:
		return g.own.pick(&g.own.names, n)
	case g.IntN(100) < 60:
		return g.own.other.pick(&g.own.other.names, n)
	case g.IntN(100) < 30:
		return g.own.canary + fmt.Sprint("-", n%20)
	}
	return fmt.Sprint("word-", n%40)
}

func (g *generator) uuid() string {
	n := g.IntN(1 << 20)
	switch {
	case g.IntN(100) < 45:
		return g.own.pick(&g.own.ids, n)
	case g.IntN(100) < 80:
		return g.own.other.pick(&g.own.other.ids, n)
	}
	return fmt.Sprintf("0190b2c4-0000-7000-8000-%012x", n%100)
}

// request is a random request of an operation.
func (g *generator) request(op operation) *http.Request {
	path, query := op.path, url.Values{}
	header := http.Header{}
	for _, p := range op.of.Parameters {
		v := p.Value
		switch {
		case v.In == "path":
			path = strings.ReplaceAll(path, "{"+v.Name+"}", url.PathEscape(g.parameter(v)))
		case !v.Required && g.IntN(100) < 70:
		case v.In == "query":
			query.Set(v.Name, g.parameter(v))
		case v.In == "header":
			header.Set(v.Name, g.parameter(v))
		}
	}
	var body io.Reader
	if op.of.RequestBody != nil {
		body, header = g.body(op, header)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	r, err := http.NewRequest(op.method, g.own.admin.URL+path, body)
	if err != nil {
		r, _ = http.NewRequest(op.method, g.own.admin.URL+"/api/v1/me", nil)
	}
	r.Header = header
	if token := g.token(); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// token is mostly that of the admin.
func (g *generator) token() string {
	switch n := g.IntN(20); {
	case n == 0:
		return ""
	case n < 4:
		return g.own.tokens[1+n%2]
	}
	return g.own.tokens[0]
}

func (g *generator) parameter(p *openapi3.Parameter) string {
	n := g.IntN(1 << 20)
	switch p.Name {
	case "Idempotency-Key":
		return fmt.Sprint("key-", n%30) // which both sides use
	case "If-Match", "If-None-Match":
		if n%2 == 0 {
			return g.own.pick(&g.own.etags, n)
		}
		return g.own.other.pick(&g.own.other.etags, n)
	case "cursor":
		if n%2 == 0 {
			return g.own.pick(&g.own.cursors, n)
		}
		return g.own.other.pick(&g.own.other.cursors, n)
	case "namespace":
		if p.In == "path" && n%10 > 0 {
			return "argocd"
		}
	case "id":
		return g.uuid()
	}
	v := g.value(p.Schema.Value, 0)
	if all, is := v.([]any); is {
		if len(all) == 0 {
			return g.text()
		}
		v = all[0]
	}
	return fmt.Sprint(v)
}

func (g *generator) body(op operation, header http.Header) (io.Reader, http.Header) {
	content := op.of.RequestBody.Value.Content
	if content.Get("application/yaml") != nil {
		header.Set("Content-Type", "application/yaml")
		return strings.NewReader(g.manifest()), header
	}
	header.Set("Content-Type", "application/json")
	media := content.Get("application/json")
	if media == nil {
		return strings.NewReader("{}"), header
	}
	text, err := json.Marshal(g.value(media.Schema.Value, 0))
	if err != nil {
		text = []byte("{}")
	}
	return bytes.NewReader(text), header
}

// manifest is an object of Argo CD with names of both sides.
func (g *generator) manifest() string {
	kind := []string{"Application", "AppProject"}[g.IntN(2)]
	text, err := json.Marshal(g.object(kind))
	if err != nil {
		return "{}"
	}
	return string(text)
}

func (g *generator) object(kind string) map[string]any {
	spec := any(map[string]any{"description": g.text(), "sourceRepos": []string{"*", g.text()}, "destinations": []any{map[string]any{"name": g.text(), "namespace": "*"}}})
	if kind == "Application" {
		spec = g.spec()
	}
	return map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": kind, "spec": spec,
		"metadata": map[string]any{"name": g.text(), "labels": map[string]string{"of": g.own.canary}},
	}
}

func (g *generator) spec() map[string]any {
	return map[string]any{
		"project":     []string{"default", g.text()}[g.IntN(2)],
		"source":      map[string]any{"repoURL": []string{g.own.repo.URL(), g.own.other.repo.URL(), g.text()}[g.IntN(3)], "path": "app", "targetRevision": "main"},
		"destination": map[string]any{"name": g.text(), "namespace": "default"},
		"info":        []any{map[string]any{"name": "of", "value": g.own.canary}},
	}
}

// value is a random value of a schema.
func (g *generator) value(s *openapi3.Schema, depth int) any {
	switch {
	case s == nil || depth > 6:
		return nil
	case len(s.Enum) > 0:
		return s.Enum[g.IntN(len(s.Enum))]
	case len(s.OneOf)+len(s.AnyOf)+len(s.AllOf) > 0:
		all := slices.Concat(s.OneOf, s.AnyOf, s.AllOf)
		return g.value(all[g.IntN(len(all))].Value, depth+1)
	case s.Properties["destination"] != nil && s.Properties["syncPolicy"] != nil:
		return g.spec()
	case s.Properties["apiVersion"] != nil && s.Properties["spec"] != nil:
		if s.Properties["operation"] != nil {
			return g.object("Application")
		}
		return g.object("AppProject")
	case s.Type.Includes("object"):
		return g.fields(s, depth)
	case s.Type.Includes("array"):
		out := []any{}
		for range 1 + g.IntN(2) {
			out = append(out, g.value(s.Items.Value, depth+1))
		}
		return out
	case s.Type.Includes("string"):
		return g.stringOf(s)
	case s.Type.Includes("integer"), s.Type.Includes("number"):
		return 1 + g.IntN(5)
	case s.Type.Includes("boolean"):
		return g.IntN(2) == 0
	}
	return map[string]any{}
}

func (g *generator) fields(s *openapi3.Schema, depth int) map[string]any {
	out := map[string]any{}
	for name, p := range s.Properties {
		if slices.Contains(s.Required, name) || g.IntN(100) < 30 {
			out[name] = g.value(p.Value, depth+1)
		}
	}
	if of := s.AdditionalProperties.Schema; of != nil {
		out[g.text()] = g.value(of.Value, depth+1)
	}
	return out
}

func (g *generator) stringOf(s *openapi3.Schema) string {
	text := g.text()
	switch {
	case s.Format == "date-time":
		return "2026-01-02T03:04:05Z"
	case s.MinLength >= 12:
		text += " correct horse battery"
	}
	if s.MaxLength != nil && uint64(len(text)) > *s.MaxLength {
		text = text[:*s.MaxLength]
	}
	return text
}
