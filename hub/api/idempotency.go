package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// maxKept is the longest response that is stored for a repetition.
const maxKept = 1 << 20

// idempotent makes a POST with a key take effect once: a repetition returns the
// response of the first. Responses of 5xx and 429 are not stored, so that the
// request may be retried.
func (s *Server) idempotent(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		key := r.Header.Get("Idempotency-Key")
		o := operationOf(c)
		if key == "" || r.Method != http.MethodPost || o.public() {
			return next(c)
		}
		hash, err := requestHash(r)
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
		if !o.raw {
			// A stream of documents is many writes, each of which may be repeated.
			by.Idempotency = once
			c.SetRequest(r.WithContext(context.WithValue(r.Context(), callerKey{}, by)))
		}
		kept := &recorder{ResponseWriter: c.Response().Writer}
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
func replay(c echo.Context, o *operation, status int, body []byte) error {
	switch {
	case status == 0:
		return fault.With(fault.New(fault.Offline, "a request with this idempotency key is under way"), "", "wait for it, or try again in a moment")
	case o.secret && status < http.StatusBadRequest:
		return fault.With(fault.New(fault.Conflict, "it was done already, and its secret is shown only once"), "", "make another one under a new idempotency key")
	}
	c.Response().Header().Set("Idempotent-Replay", "true")
	if len(body) == 0 {
		return c.NoContent(status)
	}
	return c.Blob(status, echo.MIMEApplicationJSON, body)
}

// storeAnswer stores the response, even if the client has disconnected.
func (s *Server) storeAnswer(ctx context.Context, c echo.Context, o *operation, once hub.IdempotencyKey, kept *recorder) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	status, body := c.Response().Status, kept.body.Bytes()
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || kept.over {
		status, body = 0, nil
	}
	if o.secret {
		body = nil
	}
	if err := s.Catalog.Finish(ctx, callerOf(ctx), once, status, body); err != nil {
		s.Log.ErrorContext(ctx, "response to an idempotent request is not stored", logkey.Error, err)
	}
}

// requestHash distinguishes requests with the same key, and leaves the body
// readable.
func requestHash(r *http.Request) ([32]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return [32]byte{}, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	h := sha256.New()
	for _, part := range [][]byte{[]byte(r.Method), []byte(r.URL.Path), []byte(r.URL.RawQuery), body} {
		h.Write(part)
		h.Write([]byte{0})
	}
	return [32]byte(h.Sum(nil)), nil
}

// recorder copies the response.
type recorder struct {
	http.ResponseWriter
	body bytes.Buffer
	over bool
}

// Write passes on and copies.
func (w *recorder) Write(b []byte) (int, error) {
	if w.body.Len()+len(b) > maxKept {
		w.over = true
	} else if !w.over {
		w.body.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
