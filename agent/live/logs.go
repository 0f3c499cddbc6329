package live

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/transport"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logtail"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	lineSize  = 16 << 10 // bytes of one part of a line; longer ones are split
	batchSize = 32 << 10 // bytes of lines that are passed on at once
	maxStatus = 64 << 10 // bytes of an error of the API server
)

// logOf reads the log of a container from the API server.
type logOf struct {
	s        *Server
	c        container
	previous bool
}

func (l logOf) object() string {
	return manifest.Key{Kind: "Pod", Namespace: l.c.namespace, Name: l.c.pod}.Describe() + ", container " + l.c.name
}

// Read emits the lines of the log. The error names pod and container.
func (l logOf) Read(ctx context.Context, follow bool, o logtail.Options, emit func([]logtail.Line) error) error {
	body, err := l.open(ctx, follow, o)
	if err != nil {
		return fault.With(err, l.object(), "")
	}
	defer func() { _ = body.Close() }()
	if err := scan(body, o.Since, emit); err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) {
		return err
	}
	return ctx.Err()
}

// open sends the request.
func (l logOf) open(ctx context.Context, follow bool, o logtail.Options) (io.ReadCloser, error) {
	q := url.Values{"container": {l.c.name}, "timestamps": {"true"}}
	if follow {
		q.Set("follow", "true")
	}
	if l.previous {
		q.Set("previous", "true")
	}
	if o.Tail != nil {
		q.Set("tailLines", strconv.Itoa(*o.Tail))
	}
	if o.Since > 0 { // of whole seconds
		q.Set("sinceTime", time.Unix(0, o.Since).UTC().Truncate(time.Second).Format(time.RFC3339))
	}
	u := l.s.cfg.Base.JoinPath("api/v1/namespaces", l.c.namespace, "pods", l.c.pod, "log")
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for a log: %w", err)
	}
	if l.c.user != "" {
		r.Header.Set(transport.ImpersonateUserHeader, l.c.user)
	}
	resp, err := l.s.cfg.Client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fault.Wrap(fault.Offline, err, "the API server did not answer when asked for its log")
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, refused(resp)
}

// refused is why the API server refuses a request.
func refused(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return fault.Wrap(fault.Offline, err, "the API server did not answer when asked for it")
	}
	var status metav1.Status
	cause := string(bytes.TrimSpace(text))
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		cause = status.Message
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return fault.New(fault.Missing, "%s", cause)
	case http.StatusForbidden:
		return fault.With(fault.New(fault.Denied, "%s", cause), "", "give the agent, or the service account of the application, the right to read it")
	case http.StatusBadRequest: // it has not started, there was no instance before, or there is no such container
		return fault.New(fault.Conflict, "%s", cause)
	}
	return fault.New(fault.Offline, "the API server answered %d when asked for it: %s", resp.StatusCode, cause)
}

// scan splits a log into lines and emits those that are there at once. It ends
// with the log.
func scan(from io.Reader, since int64, emit func([]logtail.Line) error) error {
	in := bufio.NewReaderSize(from, lineSize)
	var batch []logtail.Line
	var nano int64 // of the line that is continued
	size, partial, hidden := 0, false, false
	flush := func() error {
		lines := batch
		batch, size = nil, 0
		if len(lines) == 0 {
			return nil
		}
		return emit(lines)
	}
	for {
		text, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && len(text) == 0 {
			return errors.Join(flush(), ignoreEnd(err))
		}
		complete := bytes.HasSuffix(text, []byte("\n"))
		text = bytes.TrimSuffix(text, []byte("\n"))
		if !partial {
			nano, text = stamp(text)
			hidden = nano > 0 && nano < since
		}
		partial = errors.Is(err, bufio.ErrBufferFull)
		if !hidden {
			if complete {
				text = bytes.TrimSuffix(text, []byte("\r"))
			}
			l := logtail.Line{Nano: nano, Text: bytes.Clone(text), Partial: partial}
			batch, size = append(batch, l), size+l.Size()
		}
		if size >= batchSize || in.Buffered() == 0 || !bytes.Contains(peek(in), []byte("\n")) {
			if err := flush(); err != nil {
				return err
			}
		}
		if err != nil && !partial {
			return errors.Join(flush(), ignoreEnd(err))
		}
	}
}

// peek is what was received and not read yet.
func peek(in *bufio.Reader) []byte {
	b, _ := in.Peek(in.Buffered()) // never waits
	return b
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fault.Wrap(fault.Offline, err, "the log ended in the middle")
}

// stamp splits the time from a line.
func stamp(text []byte) (nano int64, rest []byte) {
	at, rest, found := bytes.Cut(text, []byte(" "))
	if !found {
		at = text
	}
	t, err := time.Parse(time.RFC3339Nano, string(at))
	if err != nil { // an error of the kubelet
		return 0, text
	}
	return t.UnixNano(), rest
}
