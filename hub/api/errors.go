package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/openapi"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Codes that say more than the kind of an error.
const (
	codeTooLarge = "CAP-1413" // a body or manifest is too large
	codeMethod   = "CAP-1405"
)

// failed answers an error. It is the one place that turns kinds into status
// codes.
func (s *Server) failed(err error, c echo.Context) {
	ctx := c.Request().Context()
	var routing *echo.HTTPError
	if errors.As(err, &routing) {
		err = fromEcho(routing)
	}
	status, body := s.present(c, err)
	s.noteInternal(c, err)
	if c.Response().Committed {
		return // an interrupted stream; there is no client left
	}
	switch status {
	case http.StatusTooManyRequests:
		c.Response().Header().Set("Retry-After", "5")
	case http.StatusServiceUnavailable:
		c.Response().Header().Set("Retry-After", "2")
	}
	if status == http.StatusMethodNotAllowed {
		s.allow(c)
	}
	if status == http.StatusUnauthorized {
		c.Response().Header().Set("WWW-Authenticate", `Bearer realm="capstan"`)
	}
	if err := c.JSON(status, body); err != nil && ctx.Err() == nil {
		s.Log.Log(ctx, slog.LevelDebug, "answer not written", logkey.Error, err)
	}
}

// noteInternal logs what is our defect; everything else is the caller's to
// read.
func (s *Server) noteInternal(c echo.Context, err error) {
	r := c.Request()
	if fault.KindOf(err) == fault.Internal && r.Context().Err() == nil {
		s.Log.ErrorContext(r.Context(), "request failed", logkey.Request, requestID(c), logkey.Method, r.Method, logkey.Path, c.Path(), logkey.Error, err)
	}
}

// present returns status and body of an error.
func (s *Server) present(c echo.Context, err error) (int, apimodel.Error) {
	e, ok := fault.As(err)
	if !ok {
		e = &fault.Error{Kind: fault.Internal}
		if errors.Is(err, http.ErrBodyReadAfterClose) || c.Request().Context().Err() != nil {
			e = &fault.Error{Kind: fault.Offline, Cause: "the request was broken off"}
		}
	}
	status, code := statusOf(e)
	body := s.errorBody(e, code)
	body.RequestId = requestID(c)
	if status == http.StatusConflict && e.Code == transact.CodeStale && c.Request().Header.Get("If-Match") != "" {
		status = http.StatusPreconditionFailed
	}
	return status, body
}

// errorBody is the one shape of errors, without the request's id.
func (s *Server) errorBody(e *fault.Error, code string) apimodel.Error {
	if e.Kind == fault.Internal {
		return apimodel.Error{
			Code: code, Message: "something went wrong on our side", Fix: "try again; if it stays, give the request id to the operator of the hub",
			Retryable: true, DocUrl: s.docURL(code),
		}
	}
	message := e.Cause
	if e.Object != "" {
		message = e.Object + ": " + message
	}
	return apimodel.Error{
		Code: code, Message: message, Object: e.Object, Cause: e.Cause, Fix: e.Fix, Line: e.Line,
		Retryable: retryable(e.Kind, code), DocUrl: s.docURL(code),
	}
}

func (s *Server) docURL(code string) string {
	if s.cfg.DocsURL == "" {
		return ""
	}
	return strings.TrimRight(s.cfg.DocsURL, "/") + "/errors#" + strings.ToLower(code)
}

func retryable(kind fault.Kind, code string) bool {
	switch kind {
	case fault.Offline:
		return true
	case fault.Exceeded:
		return code != codeTooLarge && code != hub.CodeQuota
	}
	return false
}

// statusOf maps a kind to a status and, where the error has none, a code.
func statusOf(e *fault.Error) (int, string) {
	status := http.StatusInternalServerError
	switch e.Kind {
	case fault.Invalid:
		status = http.StatusBadRequest
	case fault.Unknown:
		status = http.StatusUnauthorized
	case fault.Denied:
		status = http.StatusForbidden
	case fault.Missing:
		status = http.StatusNotFound
	case fault.Conflict:
		status = http.StatusConflict
	case fault.Exceeded:
		status = http.StatusTooManyRequests
	case fault.Offline:
		status = http.StatusServiceUnavailable
	}
	switch e.Code {
	case codeTooLarge:
		return http.StatusRequestEntityTooLarge, e.Code
	case codeMethod:
		return http.StatusMethodNotAllowed, e.Code
	case hub.CodeQuota:
		return http.StatusForbidden, e.Code
	case "":
		return status, fmt.Sprintf("CAP-1%d", status)
	}
	return status, e.Code
}

func coded(err error, code string) error {
	e, ok := fault.As(err)
	if !ok {
		return err
	}
	c := *e
	c.Code = code
	return &c
}

func errNoOperation() error {
	return fault.New(fault.Missing, "there is nothing at this address")
}

func errMethod(method string) error {
	return coded(fault.New(fault.Invalid, "this address does not take the method %s", cut(method)), codeMethod)
}

func errTooLarge(limit int64) error {
	return coded(fault.With(fault.New(fault.Exceeded, "the request is larger than %d bytes", limit), "", "send less at once"), codeTooLarge)
}

// fromEcho turns what the router and the binding say into the one shape.
func fromEcho(e *echo.HTTPError) error {
	switch e.Code {
	case http.StatusNotFound:
		return errNoOperation()
	case http.StatusMethodNotAllowed:
		return coded(fault.New(fault.Invalid, "this address does not take that method"), codeMethod)
	case http.StatusRequestEntityTooLarge:
		return errTooLarge(maxBody)
	case http.StatusUnsupportedMediaType:
		return openapi.ErrMediaType()
	case http.StatusBadRequest:
		return fault.Wrap(fault.Invalid, e, "the request cannot be read")
	}
	return fmt.Errorf("answer %d: %w", e.Code, e)
}

// badRequest says in one sentence what the document does not allow. Values
// are not repeated: they may be secrets.
func badRequest(err error) error {
	var body *http.MaxBytesError
	if errors.As(err, &body) {
		return errTooLarge(body.Limit)
	}
	return openapi.Explain(err)
}
