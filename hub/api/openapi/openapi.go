// Package openapi reads the document of the API and checks requests against it. It
// says in one sentence what the document does not allow, and repeats no value: that
// may be a secret. The layers of the API use it; it knows no noun.
package openapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Names of the extensions in the document.
const (
	extResource = "x-capstan-resource"
	extAction   = "x-capstan-action"
	extSecret   = "x-capstan-secret"
	extIfMatch  = "x-capstan-if-match"
)

// Resources that are no right: public needs no sign-in, self concerns the
// caller alone.
const (
	resourcePublic = "public"
	resourceSelf   = "self"
)

// An Operation is one of the document, as the layers need it.
type Operation struct {
	id       string
	Resource string
	Action   string
	Secret   bool // its response contains a secret that is shown once
	Raw      bool // its body is no JSON; the handler reads it
	Upload   bool // its body is an archive, which may be large
	IfMatch  bool // it may be sent with If-Match, without a parameter of that name
	Stream   bool // its answer does not end by itself
	Route    *routers.Route
}

// Public reports whether the operation needs no sign-in.
func (o *Operation) Public() bool { return o.Resource == resourcePublic }

// Callback reports whether browsers come to the operation from an identity
// provider, with what that has added.
func (o *Operation) Callback() bool { return o.Action == "callback" }

// Read reads the operations of an OpenAPI document, by method and
// echo path. Every operation must say which right it needs.
func Read(text []byte) (map[string]*Operation, error) {
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("read openapi.yaml: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("check openapi.yaml: %w", err)
	}
	if err := interpret(doc); err != nil {
		return nil, fmt.Errorf("read the schemas of openapi.yaml: %w", err)
	}
	out := map[string]*Operation{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			o := &Operation{id: op.OperationID, Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: op}}
			o.Resource, _ = op.Extensions[extResource].(string)
			o.Action, _ = op.Extensions[extAction].(string)
			o.Secret, _ = op.Extensions[extSecret].(bool)
			o.IfMatch, _ = op.Extensions[extIfMatch].(bool)
			o.Stream = streams(op)
			if o.Resource == "" || o.Action == "" || o.id == "" {
				return nil, fmt.Errorf("openapi.yaml: %s %s lacks operationId, %s or %s", method, path, extResource, extAction)
			}
			o.Upload = op.RequestBody != nil && op.RequestBody.Value.Content["application/gzip"] != nil
			o.Raw = o.Upload || o.Resource == "apply" || o.Action == "webhook" || o.Callback()
			out[method+" "+echoPath(path)] = o
		}
	}
	return out, nil
}

// streams reports whether an answer is a stream of events, or a WebSocket.
func streams(op *openapi3.Operation) bool {
	if op.Responses.Status(http.StatusSwitchingProtocols) != nil {
		return true
	}
	ok := op.Responses.Status(http.StatusOK)
	return ok != nil && ok.Value != nil && ok.Value.Content.Get("text/event-stream") != nil
}

// Declares reports whether the operation has a parameter of a name in a place:
// query, header or path.
func (o *Operation) Declares(in, name string) bool {
	return o.Route.Operation.Parameters.GetByInAndName(in, name) != nil || o.Route.PathItem.Parameters.GetByInAndName(in, name) != nil
}

// queryNames are the query parameters of the operation, in order.
func (o *Operation) queryNames() []string {
	var names []string
	for _, p := range slices.Concat(o.Route.PathItem.Parameters, o.Route.Operation.Parameters) {
		if p.Value.In == openapi3.ParameterInQuery {
			names = append(names, p.Value.Name)
		}
	}
	slices.Sort(names)
	return names
}

// UnknownQuery refuses parameters that the operation does not have: a filter
// with a misspelt name would be no filter. The error names the first one.
func (o *Operation) UnknownQuery(query url.Values) error {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if o.Declares(openapi3.ParameterInQuery, name) {
			continue
		}
		fix := "leave it out; this operation takes no query parameters"
		if known := o.queryNames(); len(known) > 0 {
			fix = "this operation takes " + strings.Join(known, ", ")
		}
		if len(name) > 60 {
			name = name[:60] + "…"
		}
		return fault.With(fault.New(fault.Invalid, "there is no query parameter %q", name), "", fix)
	}
	return nil
}

// interpret makes the library check values by the parsed schemas. For documents
// of version 3.1 it would convert each schema to JSON Schema and compile it,
// for every parameter and body of every request. The document uses nothing of
// 3.1 that the parsed schemas do not support, except null: a schema without a
// type accepts it.
func interpret(doc *openapi3.T) error {
	doc.OpenAPI = "3.0.3"
	return doc.WalkSchemas(func(_ string, ref *openapi3.SchemaRef) error {
		s := ref.Value
		if s == nil {
			return nil
		}
		if s.Const != nil || s.If != nil || len(s.PrefixItems)+len(s.PatternProperties)+len(s.DependentSchemas)+len(s.DependentRequired) > 0 ||
			s.Contains != nil || s.PropertyNames != nil || s.UnevaluatedItems.Schema != nil || s.UnevaluatedProperties.Schema != nil {
			return fmt.Errorf("a schema uses a keyword that is not checked: write it with those of OpenAPI 3.0")
		}
		if s.Type == nil && len(s.Enum)+len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) == 0 && s.Not == nil {
			s.Nullable = true
		}
		return nil
	})
}

// echoPath writes a path of the document as echo does.
func echoPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// MethodsAt returns the methods of the operations at an address.
func MethodsAt(operations map[string]*Operation, path string) []string {
	asked := strings.Split(path, "/")
	var methods []string
	for _, o := range operations {
		if matchesTemplate(strings.Split(o.Route.Path, "/"), asked) {
			methods = append(methods, o.Route.Method)
		}
	}
	slices.Sort(methods)
	return methods
}

// At reports whether a path is one of the operation.
func (o *Operation) At(path string) bool {
	return matchesTemplate(strings.Split(o.Route.Path, "/"), strings.Split(path, "/"))
}

// matchesTemplate reports whether a path is one of a template.
func matchesTemplate(template, path []string) bool {
	if len(template) != len(path) {
		return false
	}
	for i, part := range template {
		if part != path[i] && !strings.HasPrefix(part, "{") {
			return false
		}
	}
	return true
}

// Validate checks a request against the document, but for its authentication. The
// values of the parameters in the path are given.
func (o *Operation) Validate(r *http.Request, params map[string]string) error {
	if o.Raw { // the library reads bodies completely, also those that it does not check
		bare := *r
		bare.Body, bare.ContentLength = http.NoBody, 0
		r = &bare
	}
	return openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: o.Route,
		Options: &openapi3filter.Options{
			ExcludeRequestBody: o.Raw, MultiError: true,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		},
	})
}

// ErrMediaType is the error for a body that is not JSON.
func ErrMediaType() error {
	return fault.With(fault.New(fault.Invalid, "the content type of the request is not supported here"), "", "send application/json")
}

// Explain says in one sentence what the document does not allow.
func Explain(err error) error {
	var request *openapi3filter.RequestError
	if !errors.As(err, &request) {
		return fault.Wrap(fault.Invalid, err, "the request is not valid")
	}
	where := "the request"
	if request.Parameter != nil {
		where = "parameter " + request.Parameter.Name
	}
	var schema *openapi3.SchemaError
	if errors.As(request.Err, &schema) {
		if at := strings.Join(schema.JSONPointer(), "."); at != "" && request.Parameter == nil {
			where = at
		}
		return fault.With(fault.Wrap(fault.Invalid, err, "%s: %s", where, reason(schema)), "", "/openapi.yaml documents what is accepted")
	}
	switch {
	case errors.Is(request.Err, openapi3filter.ErrInvalidRequired):
		return fault.New(fault.Invalid, "%s is missing", where)
	case strings.HasPrefix(request.Reason, "header Content-Type"):
		return ErrMediaType()
	}
	return fault.Wrap(fault.Invalid, err, "%s cannot be read", where)
}

// reason is what is wrong with a value, without the value.
func reason(e *openapi3.SchemaError) string {
	if e.Schema == nil {
		// The library leaves the schema out of some errors of bodies.
		return "its " + e.SchemaField + " is out of bounds"
	}
	switch e.SchemaField {
	case "type":
		if e.Schema.Type == nil {
			return "it is of the wrong type"
		}
		return "it must be of type " + strings.Join(e.Schema.Type.Slice(), " or ")
	case "pattern":
		return "it must match " + e.Schema.Pattern
	case "minLength":
		return fmt.Sprintf("it must have at least %d characters", e.Schema.MinLength)
	case "maxLength":
		if e.Schema.MaxLength == nil {
			return "it is too long"
		}
		return fmt.Sprintf("it must have at most %d characters", *e.Schema.MaxLength)
	case "enum":
		return fmt.Sprintf("it must be one of %v", e.Schema.Enum)
	case "required":
		return e.Reason // names the property
	case "properties", "additionalProperties":
		return "it has a field that there is none of: " + e.Reason
	}
	return "its " + e.SchemaField + " is out of bounds"
}
