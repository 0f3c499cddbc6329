package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/relay/podlogs"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// streamLogs streams the logs of containers of an application.
func (s *Server) streamLogs(c echo.Context) error {
	who := callerOf(c.Request().Context())
	if !s.streams.enter(who.Credential) {
		return errManyStreams()
	}
	defer s.streams.leave(who.Credential)
	r, err := logRequest(c.Request().URL.Query(), c.Param("podName"), time.Now())
	if err != nil {
		return err
	}
	namespace, name := c.Param("namespace"), c.Param("name")
	v, maxPods, err := s.Catalog.BeginLogs(c.Request().Context(), who, namespace, name, r.Of, r.Container)
	if err != nil {
		return err
	}
	r.Cluster, r.Application, r.MaxPods = *v.On, v.ID, maxPods
	open, end := s.streams.until(c.Request().Context())
	defer end()
	w := &logWriter{s: s, c: c, control: http.NewResponseController(c.Response()), form: logForm(c)}
	ctx, done := s.whileAllowed(open, who, strings.Join([]string{access.Logs, namespace, name}, "\x00"), w.abort, func(ctx context.Context, who hub.Caller) error {
		return s.Catalog.MayStream(ctx, who, namespace, name, access.Logs, access.Get)
	})
	err = s.Logs.Stream(ctx, r, w.write)
	lost := done()
	switch {
	case lost != nil:
		err = lost
	case open.Err() != nil: // the client has gone, or shall come again
		s.logsEnded(ctx, who, v, nil)
		return nil
	}
	s.logsEnded(ctx, who, v, err)
	return w.finish(err)
}

// logsEnded records the end of a stream, also when its client has gone.
func (s *Server) logsEnded(ctx context.Context, who hub.Caller, v catalogView, why error) {
	reason := ""
	if why != nil {
		reason = fault.Sentence(why)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := s.Catalog.EndLogs(ctx, who, v, reason); err != nil {
		s.Log.ErrorContext(ctx, "the end of a stream is not in the audit log", logkey.Error, err)
	}
}

// logRequest reads the parameters, which the document has checked.
func logRequest(q url.Values, pod string, now time.Time) (podlogs.Request, error) {
	r := podlogs.Request{
		Container: q.Get("container"), Follow: q.Get("follow") == "true", Previous: q.Get("previous") == "true",
		Filter: podlogs.ParseFilter(q.Get("filter"), q.Get("matchCase") == "true"),
		Of:     hub.ObjectRef{Group: q.Get("group"), Kind: q.Get("kind"), Namespace: q.Get("resourceNamespace"), Name: q.Get("resourceName")},
	}
	if pod == "" {
		pod = q.Get("podName")
	}
	switch {
	case pod != "" && (r.Of.Kind != "" || r.Of.Name != ""):
		return r, fault.New(fault.Invalid, "podName stands beside kind or resourceName; keep one of them")
	case pod != "":
		r.Of.Kind, r.Of.Name = "Pod", pod
	case (r.Of.Kind == "") != (r.Of.Name == ""):
		return r, fault.New(fault.Invalid, "kind and resourceName belong together")
	}
	if v := q.Get("tailLines"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			return r, fault.New(fault.Invalid, "tailLines is no number")
		}
		r.Tail = &n
	}
	for name, to := range map[string]*time.Time{"sinceTime": &r.Since, "untilTime": &r.Until} {
		if v := q.Get(name); v != "" {
			at, err := time.Parse(time.RFC3339, v)
			if err != nil {
				return r, fault.With(fault.New(fault.Invalid, "%s is no time", name), "", "write it like 2026-01-31T12:00:00Z")
			}
			*to = at
		}
	}
	if v := q.Get("sinceSeconds"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || !r.Since.IsZero() {
			return r, fault.New(fault.Invalid, "sinceSeconds is no number, or stands beside sinceTime")
		}
		r.Since = now.Add(-time.Duration(n) * time.Second)
	}
	return r, nil
}

// Forms of a stream of logs.
const (
	formLines  = "application/x-ndjson"
	formEvents = "text/event-stream"
	formText   = "text/plain"
)

// logForm is the form that the caller asks for.
func logForm(c echo.Context) string {
	accept := c.Request().Header.Get("Accept")
	switch {
	case c.QueryParam("download") == "true":
		return formText
	case strings.HasPrefix(accept, formEvents):
		return formEvents
	case strings.HasPrefix(accept, formText):
		return formText
	}
	return formLines
}

// A logWriter writes entries to a client.
type logWriter struct {
	s       *Server
	c       echo.Context
	control *http.ResponseController
	form    string
	begun   bool
}

// abort ends a write that waits for the client.
func (w *logWriter) abort() { _ = w.control.SetWriteDeadline(time.Now()) }

func (w *logWriter) begin() {
	w.begun = true
	h := w.c.Response().Header()
	h.Set("Content-Type", w.form)
	if w.form == formText {
		h.Set("Content-Type", formText+"; charset=utf-8")
		if w.c.QueryParam("download") == "true" {
			h.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", w.c.Param("name")+".log"))
		}
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.c.Response().WriteHeader(http.StatusOK)
}

// write sends entries; none are a sign of life.
func (w *logWriter) write(entries []podlogs.Entry) error {
	if !w.begun {
		w.begin()
	}
	var b strings.Builder
	for _, e := range entries {
		if err := w.append(&b, e); err != nil {
			return err
		}
	}
	if len(entries) == 0 {
		switch w.form {
		case formLines:
			b.WriteString("\n")
		case formEvents:
			b.WriteString(": alive\n\n")
		case formText:
		}
	}
	return w.send(b.String())
}

func (w *logWriter) send(text string) error {
	if err := w.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := w.c.Response().Write([]byte(text)); err != nil {
		return err
	}
	return w.control.Flush()
}

// append writes one entry in the form of the stream.
func (w *logWriter) append(b *strings.Builder, e podlogs.Entry) error {
	if w.form == formText {
		w.text(b, e)
		return nil
	}
	return w.record(b, apimodel.LogEntry{
		Content: e.Text, TimeStamp: e.Time.UTC(), Namespace: e.Namespace, PodName: e.Pod, Container: e.Container,
		Partial: e.Partial, Skipped: int64(min(e.Skipped, 1<<53)), Notice: e.Notice,
	})
}

// text writes an entry as a line.
func (w *logWriter) text(b *strings.Builder, e podlogs.Entry) {
	if e.Skipped > 0 {
		fmt.Fprintf(b, "[%d lines are missing: the reader was too slow]\n", e.Skipped)
	}
	if e.Notice != "" {
		fmt.Fprintf(b, "[%s/%s: %s]\n", e.Pod, e.Container, e.Notice)
		return
	}
	if w.c.QueryParam("timestamps") == "true" && !e.Time.IsZero() {
		b.WriteString(e.Time.UTC().Format(time.RFC3339Nano) + " ")
	}
	b.WriteString(e.Text)
	if !e.Partial {
		b.WriteString("\n")
	}
}

func (w *logWriter) record(b *strings.Builder, e apimodel.LogEntry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write a line of a log: %w", err)
	}
	if w.form == formEvents {
		fmt.Fprintf(b, "data: %s\n\n", data)
		return nil
	}
	b.Write(data)
	b.WriteString("\n")
	return nil
}

// finish says that nothing more comes, and why if the logs did not end by
// themselves. An error before the first line is an answer of its own.
func (w *logWriter) finish(err error) error {
	if err != nil && !w.begun {
		return err
	}
	if !w.begun {
		w.begin()
	}
	last := apimodel.LogEntry{Last: true}
	if err != nil {
		_, shown := w.s.present(w.c, err)
		w.s.noteInternal(w.c, err)
		last.Notice = shown.Message
	}
	var b strings.Builder
	switch {
	case w.form != formText:
		if err := w.record(&b, last); err != nil {
			return err
		}
	case last.Notice != "":
		fmt.Fprintf(&b, "[%s]\n", last.Notice)
	}
	_ = w.send(b.String()) // the client has gone otherwise
	return nil
}
