package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// inside is a server of the hub's own machine, which nobody may reach through
// the hub. It counts who connects.
func inside(t *testing.T) (address string, connections func() int64) {
	t.Helper()
	var n atomic.Int64
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside")
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	return listener.Addr().String(), n.Load
}

// raw sends a request as it is written, and returns status and body.
func raw(t *testing.T, hub, request string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", hub)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		return 0, "" // the connection was closed: that is an answer, too
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, string(text)
}

func TestNoProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := w.Admin("acme")
	address, connections := inside(t)
	u, err := url.Parse(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	quoted := url.QueryEscape("http://" + address + "/")
	requests := map[string]string{
		"CONNECT": "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n",
	}
	for name, target := range map[string]string{
		"an absolute URL": "http://" + address + "/", "an absolute URL of the API": "http://" + address + "/api/v1/me",
		"the path of Rancher's proxy": "/meta/proxy/http:/" + address + "/", "the path of Argo CD's extensions": "/extensions/x/", "a path of Kubernetes": "/api/v1/namespaces/default/services/http:" + address + ":/proxy/",
		"a path of Grafana": "/api/datasources/proxy/1/", "a path with a URL": "/proxy/http://" + address + "/", "a path that is a URL": "/http://" + address + "/", "two slashes": "//" + address + "/",
		"a parameter": "/api/v1/applications?url=" + quoted + "&proxy=" + quoted + "&server=" + quoted + "&target=" + quoted + "&host=" + url.QueryEscape(address),
		"the console": "/?url=" + quoted,
	} {
		requests[name] = "GET " + target + " HTTP/1.1\r\nHost: " + u.Host + "\r\n"
	}
	for _, header := range []string{"Host", "X-Forwarded-Host", "X-Forwarded-Server", "Forwarded", "X-Original-URL", "X-Rewrite-URL", "X-Proxy-URL", "Destination", "Argocd-Project-Name", "X-Api-Host-Header"} {
		value := address
		if header == "Forwarded" {
			value = "host=" + address
		}
		host := "Host: " + u.Host + "\r\n"
		if header == "Host" {
			host = ""
		}
		requests["the header "+header] = "GET /api/v1/me HTTP/1.1\r\n" + host + header + ": " + value + "\r\n"
	}
	for name, request := range requests {
		t.Run("SEC-J5 the hub forwards nothing: "+name, func(t *testing.T) {
			for _, signedIn := range []string{"", "Authorization: Bearer " + secret + "\r\n"} {
				before := connections()
				status, body := raw(t, u.Host, request+signedIn+"Connection: close\r\n\r\n")
				if connections() != before || strings.Contains(body, "inside") {
					t.Errorf("it reaches %s (status %d): %.200s", address, status, body)
				}
				if strings.HasPrefix(request, "CONNECT") && status/100 == 2 {
					t.Errorf("CONNECT is answered with %d", status)
				}
			}
		})
	}
	t.Run("SEC-J5 what may not be reached can be reached", func(t *testing.T) {
		if status, body := raw(t, address, fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\n\r\n", address)); status != http.StatusOK || body != "inside" || connections() == 0 {
			t.Errorf("status %d, %q: so the other tests show nothing", status, body)
		}
	})
}
