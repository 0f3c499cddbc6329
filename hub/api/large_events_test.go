package api_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/api"
)

// unsized sends a request without its length.
func unsized(r *http.Request) { r.ContentLength = -1 }

// stalled begins to send an event of a size and sends no more of it.
func stalled(t *testing.T, url string, size int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /api/webhook HTTP/1.1\r\nHost: capstan.test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", size); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestEventsOfAnySize(t *testing.T) {
	t.Parallel()
	right := header("X-Hub-Signature-256", "right")
	t.Run("HOOKW-07 SEC-I1 events are read up to the size that the operator sets", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(c *api.Config) { c.EventBytes = 2 << 20 })
		for _, path := range []string{"/api/webhook", "/api/v1/webhook"} {
			w.call("", "POST", path, strings.Repeat(" ", 2<<20), right).ok(202)
			w.call("", "POST", path, strings.Repeat(" ", 2<<20+1), right).fails(413)
			w.call("", "POST", path, strings.Repeat(" ", 2<<20+1), right, unsized).fails(413)
		}
		usual := newWorld(t)
		usual.call("", "POST", "/api/webhook", strings.Repeat(" ", 25<<20), right).ok(202)
		usual.call("", "POST", "/api/webhook", strings.Repeat(" ", 25<<20+1), right).fails(413)
	})
	t.Run("HOOKW-07 FT-W1 SEC-I1 large events that stop coming neither fill the memory nor keep small ones out", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		const size = 20 << 20
		large := func() answer { return w.call("", "POST", "/api/webhook", strings.Repeat(" ", size), right) }
		becomes := func(status int) answer {
			t.Helper()
			for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if a := large(); a.status == status || time.Now().After(deadline) {
					return a.ok(status)
				}
			}
		}
		var open []net.Conn
		for range 3 {
			open = append(open, stalled(t, w.URL, size))
		}
		if p := becomes(503).fails(503); !p.Retryable || !strings.Contains(p.Fix, "polling") {
			t.Errorf("the refusal is %+v", p)
		}
		w.call("", "POST", "/api/webhook", "{}", right).ok(202)
		for _, c := range open {
			c.Close()
		}
		becomes(202)
	})
	t.Run("HOOKW-02 HOOKW-08 the media types of all senders are accepted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, kind := range []string{
			"application/json", "application/x-www-form-urlencoded", "application/cloudevents+json",
			"application/vnd.docker.distribution.events.v1+json", "application/vnd.docker.distribution.events.v2+json",
		} {
			w.call("", "POST", "/api/webhook", "{}", right, header("Content-Type", kind)).ok(202)
		}
	})
}
