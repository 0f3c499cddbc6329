package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/eventpack"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/feed"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	heartbeat          = 2 * time.Second // of silence, after which a stream shows that it is alive
	writeTimeout       = 30 * time.Second
	maxStreams         = 32 // of one session or token
	retryMillis        = 1000
	kindOperation      = "operation"
	kindResources      = "resources"
	kindApplicationSet = "applicationset"
)

// streams counts those that are open, by credential.
type streams struct {
	mu   sync.Mutex
	held map[string]int
	once sync.Once
	over chan struct{} // closed when all shall end
}

// EndStreams ends all streams, those too that open later. Their clients come
// again, to a replica that stays, and miss nothing.
func (s *Server) EndStreams() { s.streams.once.Do(func() { close(s.streams.over) }) }

// until returns a context that ends with ctx or with all streams.
func (s *streams) until(ctx context.Context) (context.Context, context.CancelFunc) {
	own, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		select {
		case <-s.over:
		case <-own.Done():
		}
	}()
	return own, cancel
}

func (s *streams) enter(who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[who] >= maxStreams {
		return false
	}
	s.held[who]++
	return true
}

func (s *streams) leave(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[who]--; s.held[who] <= 0 {
		delete(s.held, who)
	}
}

// stream follows the changes of the caller's tenant until the client goes or
// may no longer listen.
func (s *Server) stream(c echo.Context) error {
	r := c.Request()
	who := callerOf(r.Context())
	if !s.streams.enter(who.Credential) {
		return errManyStreams()
	}
	defer s.streams.leave(who.Credential)
	only, err := s.onlyApplication(r.Context(), who, r.URL.Query().Get("application"))
	if err != nil {
		return err
	}
	cursor := r.Header.Get("Last-Event-ID")
	if cursor == "" {
		cursor = r.URL.Query().Get("cursor")
	}
	query, err := parseQuery(r.URL.Query().Get("query"))
	if err != nil {
		return err
	}
	l := s.newListener(c, who)
	l.only, l.view, l.query = only, r.URL.Query().Get("view"), query
	if l.detail, err = parseDetail(r.URL.Query()); err != nil {
		return err
	}
	defer l.close()
	ctx, end := s.streams.until(r.Context())
	defer end()
	place, seen := catalog.SplitCursor(cursor)
	if _, _, err := l.followRights(ctx, place); err != nil {
		return err
	}
	if seen != "" && seen != l.visibility.rights.Visibility() { // rights were lost or gained since the client has listed
		l.begin()
		return l.reset(ctx)
	}
	reader, err := s.Feed.Read(ctx, who.Tenant, place)
	if fault.KindOf(err) == fault.Missing {
		l.begin()
		return l.reset(ctx)
	}
	if err != nil {
		return err
	}
	defer reader.Close()
	watched := orAll(r.URL.Query().Get("application"))
	if err := s.Catalog.StreamBegun(ctx, who, watched); err != nil {
		return err
	}
	defer s.streamEnded(ctx, who, watched)
	l.begin()
	return l.follow(ctx, reader)
}

// streamEnded records the end of a stream, also when its client has gone.
func (s *Server) streamEnded(ctx context.Context, who hub.Caller, watched string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := s.Catalog.StreamEnded(ctx, who, watched, ""); err != nil {
		s.Log.ErrorContext(ctx, "the end of a stream is not in the audit log", logkey.Error, err)
	}
}

// orAll is what a stream is about in the audit log.
func orAll(application string) string {
	if application == "" {
		return "*"
	}
	return application
}

// onlyApplication finds the application that a stream is about, if it is
// about one.
func (s *Server) onlyApplication(ctx context.Context, who hub.Caller, name string) (hub.ApplicationID, error) {
	if name == "" {
		return "", nil
	}
	namespace, bare, err := splitName("application", name)
	if err != nil {
		return "", err
	}
	v, err := s.Catalog.Application(ctx, who, namespace, bare)
	return v.ID, err
}

// splitName reads the name of an application in a parameter.
func splitName(parameter, text string) (namespace, name string, err error) {
	namespace, name, found := strings.Cut(text, "/")
	if !found {
		err = fault.With(fault.New(fault.Invalid, "parameter %s is not namespace/name", parameter), "", "write it like argocd/web")
	}
	return namespace, name, err
}

// A listener writes one stream.
type listener struct {
	s          *Server
	who        hub.Caller
	only       hub.ApplicationID
	view       string // of applications
	query      appquery.Query
	visibility visibility
	detail     *detail // nil: none
	w          *echo.Response
	packed     *eventpack.Writer // nil: the client takes no compressed stream
	control    *http.ResponseController
}

// newListener makes one that has written nothing yet. It must be closed.
func (s *Server) newListener(c echo.Context, who hub.Caller) *listener {
	l := &listener{s: s, who: who, w: c.Response(), control: http.NewResponseController(c.Response())}
	if eventpack.Accepted(c.Request().Header.Values("Accept-Encoding")) {
		l.packed = eventpack.NewWriter(c.Response())
	}
	return l
}

// close ends what was begun, so that the client sees a stream that is complete.
func (l *listener) close() {
	if l.packed != nil && l.w.Committed && l.deadline() == nil {
		_ = l.packed.Close() // the client has gone otherwise
	}
}

func (l *listener) begin() {
	h := l.w.Header()
	h.Set("Vary", "Accept-Encoding")
	if l.packed != nil {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	l.w.WriteHeader(http.StatusOK)
}

// errOver ends a stream whose caller may no longer listen.
var errOver = errors.New("the caller may no longer listen")

// follow writes changes as they come. In between it checks whether the caller
// may still read them (SEC-D8), and sends keep-alive events.
func (l *listener) follow(ctx context.Context, reader *feed.Reader) error {
	begun := fmt.Sprintf("retry: %d\n: from %s\n\n", retryMillis, l.at(reader.Cursor()))
	// What changes after the place of the reader is read again, so nothing is missed before this detail.
	first, err := l.detailAfter(ctx, nil)
	if over, err := l.ended(ctx, err); over {
		return err
	}
	if err := l.write(ctx, begun+first); err != nil {
		return nil
	}
	lastSent := time.Now()
	for ctx.Err() == nil {
		changes, err := l.next(ctx, reader)
		if err == nil {
			err = l.still(ctx)
		}
		if over, err := l.ended(ctx, err); over {
			return err
		}
		moved, again, err := l.followRights(ctx, reader.Cursor())
		if err != nil {
			return err
		}
		if again {
			return l.reset(ctx)
		}
		text, err := l.events(ctx, append(changes, moved...))
		if err != nil {
			return err
		}
		if text == "" {
			if time.Since(lastSent) < heartbeat {
				continue
			}
			text = alive(l.at(reader.Cursor()))
		}
		if err := l.write(ctx, text); err != nil {
			return nil
		}
		lastSent = time.Now()
	}
	return nil
}

// alive is a keep-alive event. Its id moves on over what the caller may not see.
func alive(cursor string) string {
	return fmt.Sprintf("id: %s\nevent: alive\ndata: {\"kind\":\"alive\",\"id\":\"\"}\n\n", cursor)
}

// ended reports whether the stream is over after an error, and what is left of that.
func (l *listener) ended(ctx context.Context, err error) (over bool, left error) {
	switch {
	case errors.Is(err, errOver) || ctx.Err() != nil:
		return true, nil
	case fault.KindOf(err) == fault.Missing:
		return true, l.reset(ctx)
	}
	return err != nil, err
}

// next waits for changes, no longer than the caller's rights go unasked.
func (l *listener) next(ctx context.Context, reader *feed.Reader) ([]hub.Change, error) {
	waiting, cancel := context.WithTimeout(ctx, l.s.cfg.StreamCheck)
	defer cancel()
	changes, err := reader.Next(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, nil
	}
	return changes, err
}

// still asks again who is calling; roles may have changed.
func (l *listener) still(ctx context.Context) error {
	who, err := l.s.Identity.Authenticate(ctx, secretOf(ctx))
	if fault.KindOf(err) == fault.Unknown {
		return errOver
	}
	if err != nil {
		return err
	}
	who.Address, who.Request = l.who.Address, l.who.Request
	l.who = who
	return nil
}

// reset makes the client list again.
func (l *listener) reset(ctx context.Context) error {
	_ = l.write(ctx, "event: reset\ndata: {\"kind\":\"reset\",\"id\":\"\"}\n\n") // the client has gone otherwise
	return nil
}

func (l *listener) deadline() error {
	if err := l.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (l *listener) write(ctx context.Context, text string) error {
	if err := l.deadline(); err != nil {
		return err
	}
	var to io.Writer = l.w
	if l.packed != nil {
		to = l.packed
	}
	if _, err := io.WriteString(to, text); err != nil {
		return err
	}
	if err := l.control.Flush(); err != nil {
		return err
	}
	return ctx.Err()
}

// latest returns the last change of each thing, in order: the stream sends
// current state, so earlier changes add nothing.
func latest(changes []hub.Change) []hub.Change {
	last := make(map[[2]string]int, len(changes))
	for i, c := range changes {
		last[[2]string{c.Kind, c.ID}] = i
	}
	out := make([]hub.Change, 0, len(last))
	for i, c := range changes {
		if last[[2]string{c.Kind, c.ID}] == i {
			out = append(out, c)
		}
	}
	return out
}

// events writes a batch of changes as server-sent events. What the caller may
// not see is omitted; a deletion is reported by its id alone.
func (l *listener) events(ctx context.Context, changes []hub.Change) (string, error) {
	changes = latest(changes)
	if len(changes) == 0 {
		return "", nil
	}
	known, err := l.readChanged(ctx, changes)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, c := range changes {
		e, ok := known.event(c, l.only, l.view)
		if !ok {
			continue
		}
		data, err := json.Marshal(e)
		if err != nil {
			return "", fmt.Errorf("write event: %w", err)
		}
		fmt.Fprintf(&b, "id: %s\nevent: %s\ndata: %s\n\n", l.at(c.Cursor), c.Kind, data)
	}
	detail, err := l.detailAfter(ctx, changes)
	b.WriteString(detail)
	return b.String(), err
}
