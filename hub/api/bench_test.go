package api_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/api/apitest"
)

// benchWorld returns what sends one request and wants an answer of that status.
func benchWorld(b *testing.B) func(method, path, kind, body string, status int) {
	h := apitest.New(b)
	secret := h.Admin("acme")
	return func(method, path, kind, body string, status int) {
		b.Helper()
		r, err := http.NewRequestWithContext(b.Context(), method, h.URL+path, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", kind)
		resp, err := h.Client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != status {
			b.Fatalf("%s %s: status %d, error %v: %s", method, path, resp.StatusCode, err, text)
		}
	}
}

// BenchmarkApply accepts 200 applications with one request.
func BenchmarkApply(b *testing.B) {
	send := benchWorld(b)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		var all strings.Builder
		for range 200 {
			n++
			fmt.Fprintf(&all, costApplication, n, "HEAD")
		}
		send(http.MethodPost, "/api/v1/apply", "application/yaml", all.String(), http.StatusOK)
	}
}

// BenchmarkCreate accepts one application.
func BenchmarkCreate(b *testing.B) {
	send := benchWorld(b)
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		send(http.MethodPost, "/api/v1/applications", "application/json", fmt.Sprintf(`{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "app-%d"}, "spec": {"project": "default",
			"source": {"repoURL": "https://git.example.com/a.git", "path": "x"}, "destination": {"name": "prod", "namespace": "shop"}}}`, n), http.StatusCreated)
	}
}

// BenchmarkList reads a page with parameters.
func BenchmarkList(b *testing.B) {
	send := benchWorld(b)
	b.ReportAllocs()
	for b.Loop() {
		send(http.MethodGet, "/api/v1/applications?q=app-&limit=1&sync=OutOfSync&sync=Unknown", "", "", http.StatusOK)
	}
}
