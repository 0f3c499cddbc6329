package crossreads_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A side is one tenant. Its canary is in the content of all its things and in
// the names of some; the other side never sends it. The names and ids of the
// other things are known to the other side, which sends them.
type side struct {
	name   string
	canary string
	forms  [][]byte // the canary as it may be written
	admin  *stack.API
	tokens []string // of an admin, of an account that reads, of one without rights
	repo   *gitserver.Repository
	other  *side

	mu      sync.Mutex
	names   []string // of things that the other side knows of
	ids     []string
	kept    []string // ids that the other side never sends
	cursors []string // of pages and of the stream
	etags   []string
}

// anyUUID is how things are identified.
var anyUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func newSide(t *testing.T, name string) *side {
	t.Helper()
	x := &side{name: name, canary: "c4n4ry" + name}
	x.forms = forms(x.canary)
	out, err := s.API.CLI(t.Context(), "", "tenant", "create", name, "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		SetupToken string `json:"setupToken"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatal(err)
	}
	// Calls of another test without a sign-in may have used up what the address has.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := filepath.Join(t.TempDir(), name)
	if err := poll.Until(ctx, func(ctx context.Context) error {
		x.admin, err = s.SecondAdmin(ctx, dir, made.SetupToken)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if x.repo, err = s.Repository(t.Context(), name, gitserver.RepositoryOptions{Username: x.canary, Password: x.canary + "-password"}); err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %[1]s-map}\ndata: {v: %[1]s}\n", x.canary)
	if _, err := x.repo.Commit(t.Context(), "commit of "+x.canary, map[string]string{"app/a.yaml": manifest, x.canary + "/a.yaml": manifest}); err != nil {
		t.Fatal(err)
	}
	x.names = []string{name + "-shop", name + "-web", name + "-api", name + "-user", name + "-edge", name + "-token", name + ".example.com", x.repo.URL(), name}
	x.patient(t, "GET", "/api/v1/me", nil)
	x.seed(t.Context())
	for _, roles := range [][]string{{"readonly"}, {}} {
		user := fmt.Sprintf("peer-%d", len(x.tokens))
		x.patient(t, "POST", "/api/v1/users", map[string]any{"name": user, "password": "correct horse battery", "roles": roles})
		answer := x.patient(t, "POST", "/api/v1/login", map[string]any{"tenant": name, "username": user, "password": "correct horse battery", "mode": "token"})
		var in struct{ Token string }
		if err := json.Unmarshal(answer, &in); err != nil || in.Token == "" {
			t.Fatalf("%s does not sign in: %s", user, answer)
		}
		x.tokens = append(x.tokens, in.Token)
	}
	x.tokens = append([]string{x.admin.Token}, x.tokens...)
	return x
}

// forms are the ways in which a text may stand in an answer: as it is, and
// inside of base64 at each of the three offsets.
func forms(text string) [][]byte {
	out := [][]byte{[]byte(text)}
	for pad := range 3 {
		coded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", pad) + text))
		from := []int{0, 2, 3}[pad]
		out = append(out, []byte(coded[from:len(coded)-len(coded)%4-1]))
	}
	return out
}

// patient repeats a request that comes too soon after those of another test.
func (x *side) patient(t *testing.T, method, path string, body any) (answer []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := poll.Until(ctx, func(ctx context.Context) error {
		if answer = x.do(ctx, method, path, body); bytes.Contains(answer, []byte("CAP-1429")) {
			return errors.New(string(answer))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return answer
}

// do sends a request as the admin and returns the answer, whatever it is.
func (x *side) do(ctx context.Context, method, path string, body any) []byte {
	var reader io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case string:
		reader, kind = strings.NewReader(b), "application/yaml"
	default:
		text, err := json.Marshal(b)
		if err != nil {
			panic(err)
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, x.admin.URL+path, reader)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", "Bearer "+x.admin.Token)
	r.Header.Set("Content-Type", kind)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return text
}

// seed makes what is missing of the side's things.
func (x *side) seed(ctx context.Context) {
	x.do(ctx, "POST", "/api/v1/apply", x.manifests())
	for _, name := range []string{x.name + "-edge", x.canary + "-edge"} {
		x.do(ctx, "POST", "/api/v1/clusters/enroll", map[string]any{"name": name, "labels": map[string]string{"of": x.canary}, "server": "https://" + name + ".example.com"})
	}
	for _, name := range []string{x.name + "-user", x.canary + "-user"} {
		x.do(ctx, "POST", "/api/v1/users", map[string]any{"name": name, "password": "correct horse battery", "roles": []string{"readonly"}})
	}
	for _, name := range []string{x.name + "-token", x.canary + "-token"} {
		x.do(ctx, "POST", "/api/v1/tokens", map[string]any{"name": name})
	}
	x.do(ctx, "POST", "/api/v1/repositories", map[string]any{"url": x.repo.URL(), "name": x.name, "username": x.canary, "password": x.canary + "-password"})
	x.do(ctx, "POST", "/api/v1/repositories", map[string]any{"url": "https://" + x.canary + ".example.com/a/b", "name": x.canary})
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
	x.do(ctx, "POST", "/api/v1/certificates", map[string]any{"knownHosts": x.canary + ".example.com " + key + "\n" + x.name + ".example.com " + key})
	x.do(ctx, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"url": "https://" + x.canary + ".example.com"}}})
	x.learn(ctx)
}

func (x *side) manifests() string {
	var out strings.Builder
	for _, project := range []string{x.name + "-shop", x.canary + "-shop"} {
		fmt.Fprintf(&out, `---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: %s, labels: {of: %[2]s}}
spec: {description: %[2]q, sourceRepos: ['*'], destinations: [{name: '*', namespace: '*'}]}
`, project, x.canary)
	}
	for _, app := range []string{x.name + "-web", x.name + "-api", x.canary + "-app"} {
		fmt.Fprintf(&out, `---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd, labels: {of: %[2]s}, annotations: {note: %[2]s}}
spec:
  project: %[3]s-shop
  source: {repoURL: %[4]q, path: app, targetRevision: main}
  destination: {name: %[3]s-edge, namespace: %[1]s}
  info: [{name: owner, value: %[2]s}]
`, app, x.canary, x.name, x.repo.URL())
	}
	fmt.Fprintf(&out, `---
apiVersion: v1
kind: Secret
metadata: {name: %[1]s-creds, namespace: argocd, labels: {argocd.argoproj.io/secret-type: repo-creds}}
stringData: {type: git, url: https://%[1]s.example.com/%[2]s, username: %[2]s, password: %[2]s-password}
`, x.name, x.canary)
	return out.String()
}

// lists are where ids of the side's things stand.
var lists = []string{"/api/v1/applications", "/api/v1/projects", "/api/v1/repositories", "/api/v1/repository-credentials", "/api/v1/clusters", "/api/v1/tokens", "/api/v1/users"}

// learn notes the ids of the side's things.
func (x *side) learn(ctx context.Context) {
	for _, path := range lists {
		var list struct{ Items []json.RawMessage }
		if json.Unmarshal(x.do(ctx, "GET", path, nil), &list) != nil {
			continue
		}
		for _, item := range list.Items {
			var named struct {
				ID       string
				Name     string
				URL      string
				Metadata struct{ Name, UID string }
			}
			if json.Unmarshal(item, &named) != nil {
				continue
			}
			secret := strings.Contains(named.Name+named.Metadata.Name+named.URL, x.canary) && named.URL != x.repo.URL()
			for _, id := range []string{named.ID, named.Metadata.UID} {
				x.note(id, secret)
			}
		}
	}
}

func (x *side) note(id string, secret bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !anyUUID.MatchString(id) || slices.Contains(x.ids, id) || slices.Contains(x.kept, id) {
		return
	}
	if secret {
		x.kept = append(x.kept, id)
	} else {
		x.ids = append(x.ids, id)
	}
}

// remember adds to one of the pools, which hold the newest.
func (x *side) remember(pool *[]string, value string) {
	if value == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(*pool) >= 50 {
		*pool = (*pool)[1:]
	}
	*pool = append(*pool, value)
}

// pick is one of a pool, or nothing.
func (x *side) pick(pool *[]string, n int) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(*pool) == 0 {
		return ""
	}
	newest := (*pool)[max(0, len(*pool)-15):]
	return newest[n%len(newest)]
}

// shows returns what of this side stands in a text that the other one got.
func (x *side) shows(text []byte) string {
	for _, form := range x.forms {
		if bytes.Contains(text, form) {
			return string(form)
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range x.kept {
		if bytes.Contains(text, []byte(id)) {
			return id
		}
	}
	return ""
}

// The search itself must find what it looks for.
func TestForms(t *testing.T) {
	x := &side{canary: "c4n4ryleft", forms: forms("c4n4ryleft"), kept: []string{"0190b2c4-0000-7000-8000-00000000ffff"}}
	for pad := range 5 {
		text := strings.Repeat("a", pad) + x.canary + "-app after"
		if x.shows([]byte(text)) == "" || x.shows([]byte(base64.StdEncoding.EncodeToString([]byte(text)))) == "" {
			t.Errorf("%q is not found", text)
		}
	}
	if x.shows([]byte(`{"id":"0190b2c4-0000-7000-8000-00000000ffff"}`)) == "" {
		t.Error("a kept id is not found")
	}
	if got := x.shows([]byte("c4n4ryright and YzRuNHJ5cmlnaHQ")); got != "" {
		t.Errorf("%q is found where it is not", got)
	}
}
