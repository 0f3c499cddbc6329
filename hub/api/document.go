package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

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
	if !s.allow(c) {
		return errNoOperation()
	}
	return errMethod(c.Request().Method)
}

// valid checks a request against the document.
func (s *Server) valid(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		o := operationOf(c)
		if o.Action != "webhook" { // a Git host may add some of its own
			if err := o.UnknownQuery(c.QueryParams()); err != nil {
				return err
			}
		}
		params := map[string]string{}
		for _, name := range c.ParamNames() {
			params[name] = c.Param(name)
		}
		if err := o.Validate(c.Request(), params); err != nil {
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
