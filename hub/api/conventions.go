package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub/api/openapi"
	"github.com/capstan-cd/capstan/shared/fault"
)

const ifMatch = "If-Match"

// endless reports whether an address is that of a stream, whose answer does not
// end by itself.
func (s *Server) endless(path string) bool {
	return slices.ContainsFunc(s.streamed, func(o *openapi.Operation) bool { return o.At(path) })
}

// allow says in the header Allow what an address takes; false if there is
// nothing at the address.
func (s *Server) allow(c echo.Context) bool {
	path := c.Request().URL.Path
	methods := openapi.MethodsAt(s.operations, path)
	if len(methods) == 0 {
		return false
	}
	if slices.Contains(methods, http.MethodGet) && !s.endless(path) {
		methods = append(methods, http.MethodHead)
	}
	methods = append(methods, http.MethodOptions)
	slices.Sort(methods)
	c.Response().Header().Set("Allow", strings.Join(methods, ", "))
	return true
}

// options answers OPTIONS with the methods of an address. It permits no other
// site anything: the answer has none of the headers that a browser would need
// to let a page of another site send requests.
func (s *Server) options(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Request().Method != http.MethodOptions {
			return next(c)
		}
		if !s.allow(c) {
			return errNoOperation()
		}
		return c.NoContent(http.StatusNoContent)
	}
}

// expecting reads If-Match for the operations that have no parameter of that
// name. One that would ignore it refuses it: the caller relies on it.
func (s *Server) expecting(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r, o := c.Request(), operationOf(c)
		header := r.Header.Get(ifMatch)
		if header == "" || !unsafeMethod(r.Method) || o.Action == "webhook" || o.Declares("header", ifMatch) {
			return next(c)
		}
		if !o.IfMatch {
			return fault.With(fault.New(fault.Invalid, "this operation does not take the header If-Match"), "", "leave it out; what it changes has no version")
		}
		version, err := expected(header)
		if err != nil {
			return err
		}
		by := callerOf(r.Context())
		by.Expect = version
		c.SetRequest(r.WithContext(context.WithValue(r.Context(), callerKey{}, by)))
		return next(c)
	}
}
