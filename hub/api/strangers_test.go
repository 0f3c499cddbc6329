package api_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// withoutSignIn is the fixed list of what answers a stranger with something that
// does not depend on who asks. An operation that needs no sign-in has a line in
// rights; one that GET serves stands here too.
var withoutSignIn = map[string]string{
	"healthz": `{"status":"ok"}`, "livez": `{"status":"ok"}`, "readyz": `{"status":"ok"}`,
	"getOpenAPI": "openapi: 3.1.0", "getOpenAPIJSON": `"openapi"`, "getReference": "<!doctype html>", "getReferenceStyle": ":root",
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Admin("acme")
	t.Run("SEC-G3 what a stranger may read is the same for every hub, whatever tenants there are", func(t *testing.T) {
		empty := newWorld(t)
		for _, op := range methods(t) {
			golden, listed := withoutSignIn[op.id]
			if op.resource != "public" || op.verb != http.MethodGet || !listed {
				continue
			}
			a, b := w.call("", "GET", op.path, nil).ok(200), empty.call("", "GET", op.path, nil).ok(200)
			if !bytes.Equal(a.body, b.body) || !strings.Contains(string(a.body), golden) {
				t.Errorf("%s answers %.200s and %.200s", op.id, a.body, b.body)
			}
		}
	})
	t.Run("SEC-G3 all other operations ask for a sign-in, before they look at anything", func(t *testing.T) {
		n := 0
		for _, op := range methods(t) {
			if op.resource == "public" {
				continue
			}
			n++
			one, two := w.call("", op.verb, concrete(op.path, nil), nil), w.call("", op.verb, strings.NewReplacer("{namespace}", "none", "{name}", "none", "{id}", "none", "{username}", "none").Replace(op.path), nil)
			if one.status != 401 || neutral(one) != neutral(two) || one.header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s answers %d %s and %d %s", op.id, one.status, one.body, two.status, two.body)
			}
		}
		if n < 60 {
			t.Errorf("only %d operations", n)
		}
	})
}

// raw sends bytes as they are and returns all that comes back until the hub
// closes the connection, which it must. A client that has ended its side would
// get no answer to a second request.
func (w *world) raw(t *testing.T, request string, ended bool) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(w.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		return ""
	}
	if ended {
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return ""
		}
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	text, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the hub keeps the connection open after %.300q", text)
	}
	return string(text)
}

func TestOddPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/applications", application("web")).ok(201)
	get := func(path, secret string) (status int, body string) {
		head := "GET " + path + " HTTP/1.1\r\nHost: capstan.test\r\nConnection: close\r\n"
		if secret != "" {
			head += "Authorization: Bearer " + secret + "\r\n"
		}
		resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(w.raw(t, head+"\r\n", true))), nil)
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	var odd []string
	for _, path := range []string{"/api/v1/applications", "/api/v1/users", "/api/v1/applications/argocd/web", "/api/v1/audit", "/api/v1/settings"} {
		odd = append(odd, "/"+path, path+"/", strings.ToUpper(path), strings.ReplaceAll(path, "/v1/", "//v1/"), strings.ReplaceAll(path, "/v1/", "/v1/./"), strings.ReplaceAll(path, "/v1/", "/v2/../v1/"),
			strings.ReplaceAll(path, "/v1/", "/%761/"), strings.ReplaceAll(path, "/v1/", "/v1%2f"), strings.ReplaceAll(path, "/v1/", "/v1;x/"), strings.ReplaceAll(path, "/v1/", `/v1\`), path+"%00", path+"%2e", path+";.css", path+".json",
			"/assets/../.."+path, "/assets/..%2f..%2f"+path[1:], "/livez/.."+path, "/openapi.yaml/../"+path[1:], "http://capstan.test"+path, "http://evil.example.com"+path, path+"?x=1#/livez")
	}
	t.Run("SEC-D1 SEC-H6 a path that is written oddly reaches nothing without a sign-in", func(t *testing.T) {
		for _, path := range odd {
			if status, body := get(path, ""); status == 200 && (strings.Contains(body, `"items"`) || strings.Contains(body, `"metadata"`) || strings.Contains(body, `"version"`)) {
				t.Errorf("%s answers %d %.200s", path, status, body)
			}
		}
	})
	t.Run("SEC-D1 a path that is written oddly leads to no other right than its own", func(t *testing.T) {
		nobody := w.User("acme", "nobody")
		for _, path := range odd {
			if status, body := get(path, nobody); status == 200 && strings.Contains(body, `"items"`) {
				t.Errorf("%s answers somebody without roles %d %.200s", path, status, body)
			}
		}
	})
	t.Run("SEC-H6 no address redirects anywhere", func(t *testing.T) {
		for _, path := range slices.Concat(odd, []string{"//evil.example.com", "//evil.example.com/%2e%2e", `/\evil.example.com`, "/%2f%2fevil.example.com", "/docs", "/docs/", "/docs/api/", "/docs/../docs", "/assets", "/login?next=//evil.example.com"}) {
			if status, _ := get(path, admin); status >= 300 && status < 400 && status != 304 {
				t.Errorf("%s answers %d", path, status)
			}
		}
	})
}

func TestSmuggledRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	// The second request would be answered with the list of users if the first
	// one's end were read differently.
	inner := "GET /api/v1/users HTTP/1.1\r\nHost: capstan.test\r\nAuthorization: Bearer " + admin + "\r\n\r\n"
	login := `{"username":"x","password":"y"}`
	const last = "GET /livez HTTP/1.1\r\nHost: capstan.test\r\nConnection: close\r\n\r\n"
	for name, head := range map[string]string{
		"two lengths that differ":              fmt.Sprintf("Content-Length: %d\r\nContent-Length: %d\r\n\r\n%s", len(login), len(login)+len(inner), login+inner),
		"a length and chunks":                  fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", 4, inner),
		"chunks under another name":            "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"chunks twice":                         "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner,
		"a header with a space before the dot": fmt.Sprintf("Content-Length : %d\r\n\r\n%s", len(login), login+inner),
		"a folded header":                      "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + inner,
		"a length with a sign":                 fmt.Sprintf("Content-Length: +%d\r\n\r\n%s", len(login), login+inner),
		"a negative length":                    "Content-Length: -1\r\n\r\n" + login + inner,
		"a chunk with a bad size":              "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + login + "\r\n0\r\n\r\n" + inner,
		"a chunk that is larger than it is":    "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + login + inner,
		"a bare line feed in a header":         fmt.Sprintf("X-A: b\nContent-Length: %d\r\n\r\n%s", len(login)+len(inner), login+inner),
		"a null in a header":                   fmt.Sprintf("X-A: b\x00c\r\nContent-Length: %d\r\n\r\n%s", len(login), login+inner),
	} {
		t.Run("SEC-H no second request is read out of "+name, func(t *testing.T) {
			waits := strings.Contains(head, "ffffffff") // for the rest of the chunk
			answer := w.raw(t, "POST /api/v1/login HTTP/1.1\r\nHost: capstan.test\r\nContent-Type: application/json\r\n"+head+last, waits)
			if strings.Contains(answer, `"roles"`) {
				t.Errorf("a second request was answered: %s", answer)
			}
		})
	}
}

func TestBombs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	deep := strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000)
	wide := `{"name":"x","labels":{` + strings.TrimSuffix(strings.Repeat(`"k":"v",`, 50_000), ",") + `}}`
	number := `{"name":` + strings.Repeat("9", 500_000) + `}`
	aliases := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'k'; c++ {
		aliases += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	t.Run("SEC-H SEC-I1 bodies that are deep, wide or grow are refused, and the hub goes on", func(t *testing.T) {
		for _, op := range methods(t) {
			if op.op.RequestBody == nil || op.op.RequestBody.Value.Content.Get("application/json") == nil || op.resource == "public" {
				continue
			}
			for name, text := range map[string]string{"deep": deep, "wide": wide, "number": number} {
				r, err := http.NewRequest(op.verb, w.URL+concrete(op.path, nil), strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+admin)
				r.Header.Set("Content-Type", "application/json")
				resp, err := w.Client.Do(r)
				if err != nil {
					t.Fatalf("%s, %s: %v", op.id, name, err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode >= 500 && resp.StatusCode != 503 {
					t.Errorf("%s, %s: %d", op.id, name, resp.StatusCode)
				}
			}
		}
		a := w.call(admin, "POST", "/api/v1/apply", "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: bomb}\nspec:\n"+strings.ReplaceAll("  "+aliases, "\n", "\n  ")+"\n")
		if a.status >= 500 || len(a.body) > 1<<20 {
			t.Errorf("aliases that grow: %d and %d bytes", a.status, len(a.body))
		}
		w.call(admin, "GET", "/api/v1/applications", nil).ok(200)
	})
}

// The hub itself reads no body that is packed: a small one that unpacks to much
// is read as it is.
func TestPackedBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("SEC-H SEC-B14 a body with a content encoding is not unpacked", func(t *testing.T) {
		for _, coding := range []string{"gzip", "deflate", "br", "zstd"} {
			if a := w.call(w.Admin("acme"), "POST", "/api/v1/users", map[string]any{"name": string(text[:10])}, header("Content-Encoding", coding)); a.status != 400 && a.status != 415 {
				t.Errorf("%s answers %d %s", coding, a.status, a.body)
			}
		}
	})
	t.Run("SEC-B14 a token of any size is refused, and is in no log and no audit record", func(t *testing.T) {
		for _, token := range []string{strings.Repeat("x", 48<<10), "eyJ" + strings.Repeat("a.", 24<<10), strings.Repeat("\u00e9", 1000)} {
			w.call(token, "GET", "/api/v1/applications", nil).fails(401)
			w.call("", "GET", "/api/v1/applications", nil, header("Cookie", "capstan_session="+token)).fails(401)
		}
	})
}
