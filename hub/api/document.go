package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Names of the extensions in the document.
const (
	extResource = "x-capstan-resource"
	extAction   = "x-capstan-action"
	extSecret   = "x-capstan-secret"
)

// Resources that are no right: public needs no sign-in, self concerns the
// caller alone.
const (
	resourcePublic = "public"
	resourceSelf   = "self"
)

// An operation is one of the document, as the layers need it.
type operation struct {
	id       string
	resource string
	action   string
	secret   bool // its response contains a secret that is shown once
	raw      bool // its body is no JSON; the handler reads it
	route    *routers.Route
}

func (o *operation) public() bool { return o.resource == resourcePublic }

// readDocument reads the operations of an OpenAPI document, by method and
// echo path. Every operation must say which right it needs.
func readDocument(text []byte) (map[string]*operation, error) {
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
	out := map[string]*operation{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			o := &operation{id: op.OperationID, route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: method, Operation: op}}
			o.resource, _ = op.Extensions[extResource].(string)
			o.action, _ = op.Extensions[extAction].(string)
			o.secret, _ = op.Extensions[extSecret].(bool)
			if o.resource == "" || o.action == "" || o.id == "" {
				return nil, fmt.Errorf("openapi.yaml: %s %s lacks operationId, %s or %s", method, path, extResource, extAction)
			}
			o.raw = o.resource == "apply" || o.action == "webhook"
			out[method+" "+echoPath(path)] = o
		}
	}
	return out, nil
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

// findOperation finds the operation of a request and stores it for the layers
// below.
func (s *Server) findOperation(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		o := s.operations[c.Request().Method+" "+c.Path()]
		if o == nil {
			return s.noOperation(c)
		}
		c.Set(keyOperation, o)
		return next(c)
	}
}

// noOperation distinguishes a wrong method from a wrong address.
func (s *Server) noOperation(c echo.Context) error {
	asked := strings.Split(c.Request().URL.Path, "/")
	var methods []string
	for _, o := range s.operations {
		if matchesTemplate(strings.Split(o.route.Path, "/"), asked) {
			methods = append(methods, o.route.Method)
		}
	}
	if len(methods) == 0 {
		return errNoOperation()
	}
	slices.Sort(methods)
	c.Response().Header().Set("Allow", strings.Join(methods, ", "))
	return coded(fault.New(fault.Invalid, "this address does not take the method %s", cut(c.Request().Method)), codeMethod)
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

// valid checks a request against the document.
func (s *Server) valid(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		o := operationOf(c)
		params := map[string]string{}
		for _, name := range c.ParamNames() {
			params[name] = c.Param(name)
		}
		err := openapi3filter.ValidateRequest(c.Request().Context(), &openapi3filter.RequestValidationInput{
			Request: c.Request(), PathParams: params, Route: o.route,
			Options: &openapi3filter.Options{
				ExcludeRequestBody: o.raw, MultiError: true,
				AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, // the layer above has done it
			},
		})
		if err != nil {
			return badRequest(err)
		}
		return next(c)
	}
}

// unsafeMethod reports whether a method may change something.
func unsafeMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}
