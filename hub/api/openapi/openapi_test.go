package openapi

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// What is taken and what is not is the same as by the document's own version.
func TestSchemasAsReadDecideAsTheDocument(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	operations, err := Read(document)
	if err != nil {
		t.Fatal(err)
	}
	exact, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatal(err)
	}
	values := []string{
		`null`, `true`, `""`, `"x"`, `"A b"`, `0`, `-1`, `1`, `1.5`, `1.0`, `9007199254740993`, `9223372036854775808`, `[]`, `[null]`, `["x"]`, `["x", "x"]`, `[1]`, `{}`, `{"x": null}`,
		`{"name": "x"}`, `{"name": null}`, `{"name": 1}`, `"2026-01-02T03:04:05Z"`, `"2026-01-02"`, `"` + strings.Repeat("x", 5000) + `"`,
	}
	checked := 0
	try := func(key string, o *Operation, method, path, body string) {
		t.Helper()
		item := exact.Paths.Find(o.Route.Path)
		result := func(r *routers.Route) bool {
			req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			return openapi3filter.ValidateRequest(t.Context(), &openapi3filter.RequestValidationInput{
				Request: req, Route: r, PathParams: params(o.Route.Path),
				Options: &openapi3filter.Options{MultiError: true, ExcludeRequestBody: o.Raw, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
			}) == nil
		}
		want := result(&routers.Route{Spec: exact, Path: o.Route.Path, PathItem: item, Method: method, Operation: item.GetOperation(method)})
		if got := result(o.Route); got != want {
			t.Errorf("%s with %s %.80s: taken %v, by the document %v", key, path, body, got, want)
		}
		checked++
	}
	for key, o := range operations {
		method := o.Route.Method
		for _, ref := range slices.Concat(o.Route.PathItem.Parameters, o.Route.Operation.Parameters) {
			if ref.Value.In == openapi3.ParameterInQuery {
				for _, v := range []string{"", "x", "A%20b", "-1", "0", "1", "1.5", "101", "100000000000000000000", "true", "null", "Synced", "x,y"} {
					try(key, o, method, o.Route.Path+"?"+ref.Value.Name+"="+v, "{}")
				}
			}
		}
		if o.Route.Operation.RequestBody == nil || o.Raw || method == http.MethodGet {
			continue
		}
		content := o.Route.Operation.RequestBody.Value.Content.Get("application/json")
		if content == nil {
			continue
		}
		for _, v := range values {
			try(key, o, method, o.Route.Path, v)
		}
		good := fill(content.Schema.Value, 0)
		try(key, o, method, o.Route.Path, good)
		for name := range content.Schema.Value.Properties {
			for _, v := range values {
				try(key, o, method, o.Route.Path, with(good, name, v))
			}
		}
	}
	t.Logf("%d requests", checked)
	if checked < 2000 {
		t.Errorf("only %d requests were made: the search for schemas is broken", checked)
	}
}

func params(path string) map[string]string {
	out := map[string]string{}
	for _, part := range strings.Split(path, "/") {
		if strings.HasPrefix(part, "{") {
			out[strings.Trim(part, "{}")] = "x"
		}
	}
	return out
}

// fill writes a value that has all that is required.
func fill(s *openapi3.Schema, depth int) string {
	switch {
	case len(s.Enum) > 0:
		text, _ := s.Enum[0].(string)
		return `"` + text + `"`
	case depth > 4 || s.Type == nil:
		return "{}"
	case s.Type.Includes("object"):
		var fields []string
		for _, name := range s.Required {
			if p := s.Properties[name]; p != nil {
				fields = append(fields, `"`+name+`":`+fill(p.Value, depth+1))
			}
		}
		return "{" + strings.Join(fields, ",") + "}"
	case s.Type.Includes("array"):
		return "[]"
	case s.Type.Includes("string"):
		return `"` + strings.Repeat("x", int(max(1, s.MinLength))) + `"`
	case s.Type.Includes("boolean"):
		return "true"
	}
	return "1"
}

// with sets a field once more: the last one counts.
func with(object, name, value string) string {
	inside := strings.TrimSuffix(object, "}")
	if inside != "{" {
		inside += ","
	}
	return inside + `"` + name + `":` + value + "}"
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

func TestBodiesOfUploadsAreNotRead(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	operations, err := Read(document)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for key, o := range operations {
		if !o.Upload {
			continue
		}
		found++
		t.Run("REPO-12 "+key, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), o.Route.Method, o.Route.Path, unread{t})
			r.Header.Set("Content-Type", "application/gzip")
			if err := o.Validate(r, params(o.Route.Path)); err != nil {
				t.Error(err)
			}
		})
	}
	if found != 2 {
		t.Errorf("%d operations take an upload", found)
	}
}
