package daemon

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
)

// trickle sends the head of a request with a body, then nothing more.
func trickle(t *testing.T, addr, path string, sent string) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: capstan\r\nContent-Length: 100\r\n\r\n%s", path, sent); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(c)
}

func TestSlowBodies(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err != nil {
			http.Error(w, fault.Sentence(err), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("/ignore", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not found", http.StatusNotFound) })
	released := make(chan struct{})
	mux.HandleFunc("/long", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-released
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	const grace = 50 * time.Millisecond
	srv := httptest.NewServer(pace{grace: grace, rate: 1 << 10}.hold(mux))
	t.Cleanup(srv.Close)
	addr := strings.TrimPrefix(srv.URL, "http://")
	t.Run("SEC-I5 FT-W1 a body that stops coming ends its request, with a sentence", func(t *testing.T) {
		t.Parallel()
		answer := trickle(t, addr, "/read", "ab")
		res, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "too slowly") {
			t.Errorf("answer %d %q, %v", res.StatusCode, body, err)
		}
		if _, err := answer.ReadByte(); err != io.EOF {
			t.Errorf("the connection stays: %v", err)
		}
	})
	t.Run("SEC-I5 FT-W1 a body that no handler reads ends its connection as well", func(t *testing.T) {
		t.Parallel()
		if _, err := io.ReadAll(trickle(t, addr, "/ignore", "ab")); err != nil { // returns only once the other side closes
			t.Logf("closed with %v", err)
		}
	})
	t.Run("a handler that has read its body has no limit, and the connection is reused", func(t *testing.T) {
		t.Parallel()
		c := srv.Client()
		done := make(chan error, 1)
		go func() {
			for range 2 {
				res, err := c.Post(srv.URL+"/long", "text/plain", strings.NewReader("body"))
				if err == nil {
					_ = res.Body.Close()
					if res.StatusCode != http.StatusOK {
						err = fmt.Errorf("status %d", res.StatusCode)
					}
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		late := trickle(t, addr, "/read", "") // is ended after the grace, which is over then for the other one too
		_, _ = io.ReadAll(late)
		close(released)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("a body at the required rate is accepted, however long it is", func(t *testing.T) {
		t.Parallel()
		res, err := srv.Client().Post(srv.URL+"/read", "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}

func TestConnectionsPerAddress(t *testing.T) {
	t.Parallel()
	proxies, err := clientip.ParseProxies([]string{"127.0.0.9"})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	c := newConnections(4, proxies, slog.New(slog.DiscardHandler))
	srv.Config.ConnState = c.state
	srv.Start()
	t.Cleanup(srv.Close)
	addr := strings.TrimPrefix(srv.URL, "http://")
	dial := func(t *testing.T, address string) (net.Conn, error) {
		t.Helper()
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: capstan\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			_ = res.Body.Close()
		}
		return conn, err
	}
	var held []net.Conn
	for range 4 {
		conn, err := dial(t, "127.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	t.Run("FT-W1 SEC-I5 one address has a limited number of connections", func(t *testing.T) {
		if _, err := dial(t, "127.0.0.2"); err == nil {
			t.Error("one more was served")
		}
	})
	t.Run("INV-7 another address is served", func(t *testing.T) {
		if _, err := dial(t, "127.0.0.3"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a trusted proxy has no limit", func(t *testing.T) {
		for range 8 {
			if _, err := dial(t, "127.0.0.9"); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("a connection that ends admits another one", func(t *testing.T) {
		_ = held[0].Close()
		for {
			if _, err := dial(t, "127.0.0.2"); err == nil {
				return
			}
			if t.Context().Err() != nil {
				t.Fatal("there is no room")
			}
		}
	})
}
