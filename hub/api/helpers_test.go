package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/apitest"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const password = apitest.Password

// A world is one hub's HTTP face on a real store, with words for requests.
type world struct {
	*apitest.Hub
	t *testing.T
}

func newWorld(t *testing.T, change ...func(*api.Config)) *world {
	t.Helper()
	return &world{apitest.New(t, change...), t}
}

// An answer is what the face said.
type answer struct {
	w      *world
	what   string
	status int
	header http.Header
	body   []byte
}

type option func(*http.Request)

func header(key, value string) option { return func(r *http.Request) { r.Header.Set(key, value) } }

// call sends a request as whoever the secret belongs to. A body that is a
// string goes as it is, as YAML; others as JSON.
func (w *world) call(secret, method, path string, body any, options ...option) answer {
	w.t.Helper()
	var reader io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case string:
		reader, kind = strings.NewReader(b), "application/yaml"
	default:
		text, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		reader, kind = bytes.NewReader(text), "application/json"
	}
	r, err := http.NewRequest(method, w.URL+path, reader)
	if err != nil {
		w.t.Fatal(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	for _, o := range options {
		o(r)
	}
	resp, err := w.Client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{w, method + " " + path, resp.StatusCode, resp.Header, text}
}

// ok ends the test unless the status is the one that is wanted.
func (a answer) ok(status int) answer {
	a.w.t.Helper()
	if a.status != status {
		a.w.t.Fatalf("%s: status %d, want %d: %s\n%s", a.what, a.status, status, a.body, tail(a.w.Log.String()))
	}
	return a
}

func tail(s string) string { return s[max(0, len(s)-1500):] }

func (a answer) into(v any) answer {
	a.w.t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.w.t.Fatalf("%s: %v in %s", a.what, err, a.body)
	}
	return a
}

// problem is the one shape of errors.
type problem struct {
	Code, Message, Object, Cause, Fix string
	DocURL                            string `json:"doc_url"`
	Retryable                         bool
	RequestID                         string `json:"request_id"`
}

// fails checks that the answer is an error in the one shape, and gives it.
func (a answer) fails(status int) problem {
	a.w.t.Helper()
	a.ok(status)
	var p problem
	a.into(&p)
	if !strings.HasPrefix(p.Code, "CAP-") || p.Message == "" || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		a.w.t.Errorf("%s: the error lacks something: %s", a.what, a.body)
	}
	return p
}

// application is the body of a small application.
func application(name string, change ...func(spec map[string]any)) map[string]any {
	spec := map[string]any{
		"project":     "default",
		"source":      map[string]any{"repoURL": "https://git.example.com/team/repo.git", "path": "apps/" + name, "targetRevision": "main"},
		"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": name},
	}
	for _, c := range change {
		c(spec)
	}
	return map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": name, "namespace": "argocd"}, "spec": spec}
}

func jar(t *testing.T) http.CookieJar {
	t.Helper()
	j, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return j
}
