package api

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/openapi"
	"github.com/capstan-cd/capstan/hub/api/recording"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// idempotent makes a POST with a key take effect once: a repetition returns the
// response of the first. Responses of 5xx and 429 are not stored, so that the
// request may be retried.
func (s *Server) idempotent(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		key := r.Header.Get("Idempotency-Key")
		o := operationOf(c)
		if key == "" || r.Method != http.MethodPost || o.Public() || o.Upload { // an upload changes nothing
			return next(c)
		}
		hash, err := recording.Hash(r)
		if err != nil {
			return badRequest(err)
		}
		by := callerOf(r.Context())
		status, body, found, err := s.Catalog.Begin(r.Context(), by, key, hash)
		if err != nil {
			return err
		}
		if found {
			return replay(c, o, status, body)
		}
		failpoint.Here(failpoint.HubIdempotencyBegun)
		once := hub.IdempotencyKey{Key: key, Attempt: rand.Text()}
		if !o.Raw {
			// A stream of documents is many writes, each of which may be repeated.
			by.Idempotency = once
			c.SetRequest(r.WithContext(context.WithValue(r.Context(), callerKey{}, by)))
		}
		kept := &recording.Recorder{ResponseWriter: c.Response().Writer}
		c.Response().Writer = kept
		err = next(c)
		if err != nil {
			s.failed(err, c)
		}
		failpoint.Here(failpoint.HubIdempotencyAnswered)
		s.storeAnswer(r.Context(), c, o, once, kept)
		return nil
	}
}

// replay answers what was answered before.
func replay(c echo.Context, o *openapi.Operation, status int, body []byte) error {
	switch {
	case status == 0:
		return fault.With(fault.New(fault.Offline, "a request with this idempotency key is under way"), "", "wait for it, or try again in a moment")
	case o.Secret && status < http.StatusBadRequest:
		return fault.With(fault.New(fault.Conflict, "it was done already, and its secret is shown only once"), "", "make another one under a new idempotency key")
	}
	c.Response().Header().Set("Idempotent-Replay", "true")
	if len(body) == 0 {
		return c.NoContent(status)
	}
	return c.Blob(status, echo.MIMEApplicationJSON, body)
}

// storeAnswer stores the response, even if the client has disconnected.
func (s *Server) storeAnswer(ctx context.Context, c echo.Context, o *openapi.Operation, once hub.IdempotencyKey, kept *recording.Recorder) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	status, body := c.Response().Status, kept.Body.Bytes()
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || kept.Over {
		status, body = 0, nil
	}
	if o.Secret && status < http.StatusBadRequest {
		body = nil
	}
	if err := s.Catalog.Finish(ctx, callerOf(ctx), once, status, body); err != nil {
		s.Log.ErrorContext(ctx, "response to an idempotent request is not stored", logkey.Error, err)
	}
}
