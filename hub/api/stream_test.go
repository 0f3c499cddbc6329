package api_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// An event as it arrives.
type event struct {
	ID, Name string
	Data     struct {
		Kind, ID, Namespace, Name string
		Gone                      bool
		Application               listed
		Row                       struct {
			Name   string
			Labels map[string]string
		}
		Cluster        struct{ Name string }
		ApplicationSet storedSet
	}
}

// listen opens a stream. The channel closes when the hub ends the stream; one
// that it never ends fails the test.
func (w *world) listen(t *testing.T, secret, query string) <-chan event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", w.URL+"/api/v1/stream"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+secret)
	resp, err := w.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("the stream answers %d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	out := make(chan event, 100) // more than any test sends
	go func() {
		defer close(out)
		defer resp.Body.Close()
		var e event
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			key, value, _ := strings.Cut(lines.Text(), ": ")
			switch key {
			case "id":
				e.ID = value
			case "event":
				e.Name = value
			case "data":
				_ = json.Unmarshal([]byte(value), &e.Data)
			case "":
				if e.Name != "" {
					out <- e
				}
				e = event{}
			}
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Error("the stream went on for five minutes")
		}
	}()
	return out
}

// until waits for the first event that fits.
func until(t *testing.T, events <-chan event, what string, fits func(event) bool) event {
	t.Helper()
	for e := range events {
		if fits(e) {
			return e
		}
	}
	t.Fatalf("the stream ended before %s", what)
	return event{}
}

func TestStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/applications", application("first")).ok(201)
	var list struct{ Cursor string }
	w.call(admin, "GET", "/api/v1/applications", nil).ok(200).into(&list)
	var resume string
	t.Run("UX-API-4 API-07 what happens after a list arrives with the object", func(t *testing.T) {
		events := w.listen(t, admin, "?cursor="+list.Cursor)
		w.call(admin, "POST", "/api/v1/applications", application("second")).ok(201)
		e := until(t, events, "application second", func(e event) bool { return e.Name == "application" && e.Data.Name == "second" })
		if e.Data.Application.Metadata.Name != "second" || e.ID == "" {
			t.Errorf("the event is %+v", e)
		}
		resume = e.ID
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
		until(t, events, "cluster prod", func(e event) bool { return e.Name == "cluster" && e.Data.Cluster.Name == "prod" })
		w.call(admin, "DELETE", "/api/v1/applications/argocd/second", nil).ok(204)
		until(t, events, "the deletion", func(e event) bool { return e.Name == "application" && e.Data.Gone })
	})
	t.Run("UX-A11-6 a stream without events sends keep-alives", func(t *testing.T) {
		events := w.listen(t, admin, "")
		if e := until(t, events, "a sign of life", func(e event) bool { return e.Name == "alive" }); e.ID == "" || e.Data.Kind != "alive" {
			t.Errorf("the event is %+v", e)
		}
	})
	t.Run("UX-API-4 a stream continues where it was interrupted", func(t *testing.T) {
		events := w.listen(t, admin, "?cursor="+resume)
		until(t, events, "cluster prod again", func(e event) bool { return e.Data.Cluster.Name == "prod" })
	})
	t.Run("a cursor of an earlier release begins with a reset", func(t *testing.T) {
		if body := string(w.call(admin, "GET", "/api/v1/stream?cursor=4711", nil).ok(200).body); !strings.Contains(body, "event: reset") {
			t.Errorf("the stream begins with %s", body)
		}
	})
	t.Run("an invalid cursor is refused", func(t *testing.T) {
		w.call(admin, "GET", "/api/v1/stream?cursor=nonsense", nil).fails(400)
		w.call("", "GET", "/api/v1/stream", nil).fails(401)
	})
	t.Run("ISO-5 another tenant's changes do not arrive", func(t *testing.T) {
		events := w.listen(t, w.Admin("bolt"), "")
		w.call(admin, "POST", "/api/v1/applications", application("hidden")).ok(201)
		w.call(w.Admin("bolt"), "POST", "/api/v1/applications", application("own")).ok(201)
		until(t, events, "the own application", func(e event) bool {
			if e.Data.Name == "hidden" {
				t.Error("the stream shows another tenant's application")
			}
			return e.Data.Name == "own"
		})
	})
	t.Run("a stream is compressed for who accepts that, and each event can be read at once", func(t *testing.T) {
		for accepts, packed := range map[string]bool{"gzip": true, "br, gzip;q=0": false, "identity": false} {
			for _, path := range []string{"/api/v1/stream", "/api/v1/applications/argocd/first/tree/stream"} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				r, err := http.NewRequestWithContext(ctx, "GET", w.URL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+admin)
				r.Header.Set("Accept-Encoding", accepts)
				resp, err := w.Client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if got := resp.Header.Get("Content-Encoding") == "gzip"; got != packed || resp.Header.Get("Vary") != "Accept-Encoding" {
					t.Errorf("%s for %q has the headers %v", path, accepts, resp.Header)
				}
				body := io.Reader(resp.Body)
				if packed {
					if body, err = gzip.NewReader(resp.Body); err != nil {
						t.Fatal(err)
					}
				}
				if line, err := bufio.NewReader(body).ReadString('\n'); err != nil || !strings.Contains(line, ": ") {
					t.Errorf("%s for %q begins with %q, %v", path, accepts, line, err)
				}
				cancel()
				_ = resp.Body.Close()
			}
		}
	})
	t.Run("a compressed stream that the hub ends is complete", func(t *testing.T) {
		if body := string(w.call(admin, "GET", "/api/v1/stream?cursor=4711", nil, header("Accept-Encoding", "gzip")).ok(200).body); !strings.HasPrefix(body, "\x1f\x8b") {
			t.Errorf("the stream begins with %q", body)
		} else if r, err := gzip.NewReader(strings.NewReader(body)); err != nil {
			t.Error(err)
		} else if text, err := io.ReadAll(r); err != nil || !strings.Contains(string(text), "event: reset") {
			t.Errorf("the stream is %q, %v", text, err)
		}
	})
	t.Run("a stream of one application has only its events", func(t *testing.T) {
		events := w.listen(t, admin, "?application=argocd/first")
		w.call(admin, "POST", "/api/v1/applications", application("noise")).ok(201)
		w.call(admin, "PUT", "/api/v1/applications/argocd/first", application("first", func(s map[string]any) { s["revisionHistoryLimit"] = 3 })).ok(200)
		e := until(t, events, "application first", func(e event) bool { return e.Name == "application" })
		if e.Data.Name != "first" {
			t.Errorf("the event is %+v", e)
		}
		w.call(admin, "GET", "/api/v1/stream?application=argocd/none", nil).fails(404)
		w.call(admin, "GET", "/api/v1/stream?application=none", nil).fails(400)
	})
	t.Run("SEC-F2 SEC-D8 a stream ends with the session, and rights are asked again", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "rob", "password": password, "roles": []string{"readonly"}}).ok(201)
		var in struct{ Token string }
		w.call("", "POST", "/api/v1/login", map[string]any{"tenant": "acme", "username": "rob", "password": password, "mode": "token"}).ok(200).into(&in)
		events := w.listen(t, in.Token, "")
		w.call(admin, "POST", "/api/v1/applications", application("shown")).ok(201)
		until(t, events, "application shown", func(e event) bool { return e.Data.Name == "shown" })
		w.call(admin, "PUT", "/api/v1/users/rob", map[string]any{"roles": []string{}}).ok(200)
		w.call(admin, "POST", "/api/v1/applications", application("unseen")).ok(201)
		w.call(admin, "PUT", "/api/v1/users/rob", map[string]any{"disabled": true}).ok(200)
		for e := range events { // ends only because the stream does
			if e.Data.Name == "unseen" {
				t.Error("the stream shows what the account may no longer see")
			}
		}
	})
	t.Run("a role without rights gets no events of applications", func(t *testing.T) {
		events := w.listen(t, w.User("acme", "blind"), "")
		w.call(admin, "POST", "/api/v1/applications", application("dark")).ok(201)
		w.User("acme", "late", hub.RoleReadOnly)
		select {
		case e := <-events:
			if e.Data.Name != "" {
				t.Errorf("the stream shows %+v", e)
			}
		default:
		}
	})
}
