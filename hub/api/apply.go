package api

import (
	"bytes"
	"io"
	"mime"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// apply accepts a stream of documents, as application/yaml or JSON.
func (s *Server) apply(c echo.Context) error {
	r := c.Request()
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	var isJSON bool
	switch kind {
	case "application/yaml", "application/x-yaml", "text/yaml":
	case "application/json":
		isJSON = true
	default:
		return fault.With(fault.New(fault.Invalid, "the content type of the request is not supported here"), "", "send application/yaml or application/json")
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return badRequest(err)
	}
	dryRun := r.URL.Query().Get("dryRun") == "true"
	applied, err := s.Catalog.Apply(r.Context(), callerOf(r.Context()), text, isJSON, dryRun)
	if err != nil {
		return err
	}
	var out apimodel.ApplyResult
	for _, a := range applied {
		item := apimodel.ApplyResultItem{
			Index: a.Index, ApiVersion: a.APIVersion, Kind: a.Kind, Namespace: a.Namespace, Name: a.Name,
			Result: apimodel.ApplyResultItemResult(a.Outcome), Warnings: a.Warnings,
		}
		if a.Err != nil {
			item.Result = apimodel.ApplyResultItemResultFailed
			_, item.Error = s.present(c, a.Err)
			s.noteInternal(c, a.Err)
			out.Failed++
		}
		out.Results = append(out.Results, item)
	}
	return c.JSON(http.StatusOK, out)
}

// largeEvents is how many bytes of large events are in memory at one time. They
// come from anyone who can reach the hub.
const largeEvents = 64 << 20

// smallEvent is the size up to which an event counts as small. These are always
// read.
const smallEvent = 1 << 20

// webhook accepts a push event of a Git host.
func (s *Server) webhook(c echo.Context) error {
	r := c.Request()
	size := r.ContentLength
	if size < 0 {
		size = s.cfg.EventBytes
	}
	if size > smallEvent {
		if !s.events.TryAcquire(size) {
			return fault.With(fault.New(fault.Offline, "the hub reads other large events"), "", "send it again later, or wait until the change is found by polling")
		}
		defer s.events.Release(size)
	}
	body := bytes.NewBuffer(make([]byte, 0, min(size, smallEvent)+bytes.MinRead))
	if _, err := body.ReadFrom(r.Body); err != nil {
		return badRequest(err)
	}
	if err := s.Webhook.Receive(r.Context(), r.Header, body.Bytes()); err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, apimodel.WebhookAnswer{})
}
