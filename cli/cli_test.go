package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

// A fakeHub answers with the API's shapes and remembers what it was asked.
type fakeHub struct {
	*httptest.Server
	answers map[string]answer // by "METHOD path"
	tokens  []string          // of every request
	bodies  map[string]string
}

type answer struct {
	status int
	body   string
}

func hub(t *testing.T, answers map[string]answer) *fakeHub {
	t.Helper()
	h := &fakeHub{answers: answers, bodies: map[string]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Method + " " + r.URL.Path
		h.tokens = append(h.tokens, r.Header.Get("Authorization"))
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		h.bodies[key] = b.String()
		a, ok := h.answers[key]
		if !ok {
			a = answer{404, refusal("missing", "there is no such thing")}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body))
	}))
	t.Cleanup(h.Close)
	return h
}

func refusal(code, message string) string {
	return fmt.Sprintf(`{"code":%q,"message":%q,"fix":"do this","retryable":false,"request_id":"req-1"}`, code, message)
}

// home gives a run a configuration folder of its own.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("CAPSTAN_SERVER", "")
	t.Setenv("CAPSTAN_TOKEN", "")
	return filepath.Join(dir, "capstan", "config.json")
}

func capstan(t *testing.T, stdin string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	code = Main(ctx, args, Streams{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

const shop = `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"shop","namespace":"argocd"},
 "spec":{"project":"web","source":{"repoURL":"https://git.example.com/shop.git","path":"deploy"},"destination":{"name":"prod","namespace":"shop"}},
 "status":{"sync":{"status":"Synced","revision":"0123456789012345678901234567890123456789"},"health":{"status":"Healthy"}}}`

func TestExitCodes(t *testing.T) {
	me := "GET /api/v1/me"
	cases := map[string]struct {
		why     string
		answers map[string]answer
		stdin   string
		args    []string
		want    int
		says    string
	}{
		"done":              {"the answer came", map[string]answer{"GET /api/v1/projects": {200, `{"items":[]}`}}, "", []string{"project", "list"}, exitOK, ""},
		"failed":            {"the hub is broken", map[string]answer{"GET /api/v1/projects": {500, refusal("internal", "broken")}}, "", []string{"project", "list"}, exitFailed, "req-1"},
		"conflict":          {"nobody used it wrongly", map[string]answer{"DELETE /api/v1/projects/web": {409, refusal("conflict", "in use")}}, "", []string{"project", "delete", "web", "--yes"}, exitFailed, "in use; do this"},
		"wrong values":      {"the hub refused them", map[string]answer{"DELETE /api/v1/projects/web": {400, refusal("invalid", "bad")}}, "", []string{"project", "delete", "web", "--yes"}, exitUsage, "bad"},
		"sign in":           {"401", map[string]answer{me: {401, refusal("unknown", "sign in")}}, "", []string{"whoami"}, exitSignIn, "sign in"},
		"forbidden":         {"403", map[string]answer{me: {403, refusal("denied", "you may not")}}, "", []string{"whoami"}, exitForbidden, "you may not"},
		"missing":           {"404", nil, "", []string{"project", "get", "web"}, exitMissing, "no such thing"},
		"unknown command":   {"a typo", nil, "", []string{"aplication"}, exitUsage, `unknown command "aplication" for "capstan"; did you mean "application"?`},
		"unknown verb":      {"a typo", nil, "", []string{"app", "lst"}, exitUsage, `unknown command "lst" for "capstan app"; did you mean "list"?`},
		"no such verb":      {"nothing is like it", nil, "", []string{"app", "zzzzzz"}, exitUsage, "capstan app --help` lists"},
		"unknown flag":      {"a typo", nil, "", []string{"project", "list", "--wat"}, exitUsage, "wat"},
		"misspelt flag":     {"a typo", nil, "", []string{"app", "list", "--projct", "x"}, exitUsage, "did you mean --project?"},
		"misspelt value":    {"a typo", nil, "", []string{"app", "list", "--sync", "OutOfSink"}, exitUsage, `--sync is one of Synced, OutOfSync, Unknown, not "OutOfSink"; did you mean "OutOfSync"?`},
		"misspelt output":   {"a typo", nil, "", []string{"app", "list", "-o", "jsn"}, exitUsage, `did you mean "json"?`},
		"not of delete":     {"it waits until they are gone, not for a state", nil, "", []string{"app", "delete", "shop", "--yes", "--health"}, exitUsage, "--health"},
		"cancelled":         {"a program did not say --yes", nil, "", []string{"app", "delete", "shop"}, exitUsage, "Delete application shop? There is no terminal to ask; add --yes"},
		"diff failed":       {"1 would mean that there is a difference", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {500, refusal("internal", "broken")}}, "", []string{"app", "diff", "shop"}, exitUsage, "broken"},
		"diff conflict":     {"1 would mean that there is a difference", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {409, refusal("conflict", "no cluster")}}, "", []string{"app", "diff", "shop"}, exitUsage, "no cluster"},
		"diff, agent away":  {"it may come back", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {503, unconfirmed}}, "", []string{"app", "diff", "shop"}, exitAway, "its agent is not connected"},
		"diff, no such app": {"nothing was compared", nil, "", []string{"app", "diff", "shop"}, exitMissing, ""},
		"apply, one denied": {"all that failed, failed alike", map[string]answer{"POST /api/v1/apply": {200, `{"failed":1,"results":[{"index":1,"kind":"Application","name":"web","result":"unchanged"},{"index":2,"kind":"Application","name":"shop","result":"failed","error":` + refusal("CAP-1403", "no right") + `}]}`}}, "kind: Application", []string{"apply", "-f", "-"}, exitForbidden, "1 of 2 documents were refused"},
		"no name":           {"an argument is missing", nil, "", []string{"app", "get"}, exitUsage, "the name of an application"},
		"too many":          {"an argument too many", nil, "", []string{"project", "list", "x"}, exitUsage, "no argument"},
		"required flag":     {"nothing to apply", nil, "", []string{"apply"}, exitUsage, "filename"},
		"no confirmation":   {"a program did not say --yes", nil, "", []string{"project", "delete", "web"}, exitUsage, "--yes"},
		"unknown output":    {"there is no such form", map[string]answer{"GET /api/v1/projects": {200, `{"items":[]}`}}, "", []string{"project", "list", "-o", "xml"}, exitUsage, "xml"},
		"unknown selector":  {"no such form", nil, "", []string{"app", "sync", "shop", "--resource", "Deployment"}, exitUsage, "group:kind"},
		"bad history id":    {"not a number", nil, "", []string{"app", "rollback", "shop", "one"}, exitUsage, "one"},
		"bad cascade":       {"neither true nor false", nil, "", []string{"app", "delete", "shop", "--cascade", "maybe", "--yes"}, exitUsage, "maybe"},
		"no hub's answer":   {"a proxy's page", map[string]answer{me: {502, "<html>"}}, "", []string{"whoami"}, exitFailed, "no answer of a Capstan hub"},
		"not JSON":          {"another server", map[string]answer{me: {200, "<html>"}}, "", []string{"whoami"}, exitFailed, "cannot be read"},
		"differs":           {"diff found something", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {200, `{"items":[{"kind":"ConfigMap","name":"a","version":"v1","live":{"a":1},"desired":{"a":2}}]}`}}, "", []string{"app", "diff", "shop"}, exitDiffers, ""},
		"does not differ":   {"diff found nothing", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {200, `{"items":[]}`}}, "", []string{"app", "diff", "shop"}, exitOK, ""},
		"no file":           {"a path that is not there", nil, "", []string{"apply", "-f", "/nonexistent.yaml"}, exitUsage, "/nonexistent.yaml"},
		"apply, one failed": {"the others were taken, the run failed", map[string]answer{"POST /api/v1/apply": {200, `{"failed":1,"results":[{"index":1,"kind":"Application","name":"shop","result":"refused","error":` + refusal("invalid", "no project") + `}]}`}}, "kind: Application", []string{"apply", "-f", "-"}, exitFailed, "1 of 1"},
	}
	for name, c := range cases {
		t.Run("UX-CLI-5 "+name, func(t *testing.T) {
			home(t)
			h := hub(t, c.answers)
			code, out, errs := capstan(t, c.stdin, append(c.args, "--server", h.URL, "--token", "t0ken")...)
			if code != c.want || !strings.Contains(errs, c.says) {
				t.Errorf("%s: exit %d, want %d; output %q, errors %q", c.why, code, c.want, out, errs)
			}
			if strings.Contains(out+errs, "t0ken") {
				t.Error("SEC-A1: the token was printed")
			}
			if strings.Count(errs, "\n") > 1 {
				t.Errorf("more than one line: %q", errs)
			}
		})
	}
	t.Run("UX-CLI-5 nobody answers", func(t *testing.T) {
		home(t)
		if code, _, errs := capstan(t, "", "whoami", "--server", "http://"+runtest.Refusing(t)); code != exitFailed || !strings.Contains(errs, "; check --server") {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
	t.Run("UX-CLI-5 nobody signed in", func(t *testing.T) {
		home(t)
		if code, _, errs := capstan(t, "", "whoami"); code != exitSignIn || !strings.Contains(errs, "capstan login URL") {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
	t.Run("UX-CLI-5 no URL of a hub", func(t *testing.T) {
		home(t)
		if code, _, errs := capstan(t, "", "whoami", "--server", "capstan.example.com"); code != exitUsage || !strings.Contains(errs, "https://") {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
	t.Run("UX-CLI-5 kinds", func(t *testing.T) {
		for err, want := range map[error]int{
			context.Canceled: exitUsage, errTimeout: exitTimeout, errDiffers: exitDiffers, errors.New("x"): exitFailed,
			comparisonFailed(errors.New("x")): exitUsage, comparisonFailed(errTimeout): exitTimeout, comparisonFailed(errDiffers): exitDiffers,
			differs(7): 7, asUsage(fault.New(fault.Missing, "x")): exitUsage, fault.New(fault.Invalid, "x"): exitUsage,
			fault.New(fault.Denied, "x"): exitForbidden, fmt.Errorf("app: %w", fault.New(fault.Missing, "x")): exitMissing,
		} {
			if got := exitCode(err); got != want {
				t.Errorf("%v: exit %d, want %d", err, got, want)
			}
		}
	})
}

func TestOutputForms(t *testing.T) {
	home(t)
	h := hub(t, map[string]answer{"GET /api/v1/applications": {200, `{"items":[` + shop + `],"metadata":{}}`}})
	list := func(form string) string {
		code, out, errs := capstan(t, "", "app", "list", "-o", form, "--server", h.URL)
		if code != 0 {
			t.Fatalf("%s: exit %d, %s", form, code, errs)
		}
		return out
	}
	t.Run("UX-CLI-2 table", func(t *testing.T) {
		if got := list("table"); !strings.Contains(got, "shop") || !strings.Contains(got, "01234567") || strings.Contains(got, "git.example.com") {
			t.Error(got)
		}
	})
	t.Run("UX-CLI-2 wide has more columns", func(t *testing.T) {
		if got := list("wide"); !strings.Contains(got, "https://git.example.com/shop.git") || !strings.Contains(got, "HEAD") {
			t.Error(got)
		}
	})
	t.Run("UX-CLI-2 name is for pipes", func(t *testing.T) {
		if diff := cmp.Diff("application/shop\n", list("name")); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("UX-CLI-2 json can be read", func(t *testing.T) {
		var l struct {
			Kind  string
			Items []struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(list("json")), &l); err != nil || l.Kind != "List" || len(l.Items) != 1 || l.Items[0].Metadata.Name != "shop" {
			t.Errorf("%+v, %v", l, err)
		}
	})
	t.Run("UX-CLI-2 yaml", func(t *testing.T) {
		if got := list("yaml"); !strings.Contains(got, "kind: List\n") || !strings.Contains(got, "name: shop\n") {
			t.Error(got)
		}
	})
	t.Run("UX-CLI-2 nothing is an empty list, not null", func(t *testing.T) {
		h.answers["GET /api/v1/applications"] = answer{200, `{"items":[],"metadata":{}}`}
		if got := list("json"); !strings.Contains(got, `"items": []`) {
			t.Error(got)
		}
	})
}

func TestSignIn(t *testing.T) {
	me := answer{200, `{"username":"jane","tenant":"acme","roles":["tenant-admin"],"via":"token"}`}
	t.Run("CLI-01 a login is kept for its owner alone, without the password", func(t *testing.T) {
		file := home(t)
		h := hub(t, map[string]answer{"GET /api/v1/me": me, "POST /api/v1/login": {200, `{"token":"issued","me":{}}`}, "POST /api/v1/session": {200, `{"token":"issued"}`}})
		code, _, errs := capstan(t, "correct horse\n", "login", h.URL+"/", "--username", "jane", "--password-stdin")
		if code != 0 {
			t.Fatalf("exit %d, %s, asked %v", code, errs, h.bodies)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		b, _ := os.ReadFile(file)
		var got configFile
		want := configFile{Current: contextOf(h.URL), Contexts: []config{{Name: contextOf(h.URL), Server: h.URL, Tenant: "acme", User: "jane", Token: "issued"}}}
		if err := json.Unmarshal(b, &got); err != nil || !cmp.Equal(got, want) || strings.Contains(string(b)+errs, "horse") {
			t.Errorf("%s, %s", b, errs)
		}
		if h.tokens[len(h.tokens)-1] != "Bearer issued" {
			t.Errorf("the sign-in was not proved: %v", h.tokens)
		}
	})
	t.Run("CLI-01 a token that does not work is not kept", func(t *testing.T) {
		file := home(t)
		h := hub(t, map[string]answer{"GET /api/v1/me": {401, refusal("unknown", "no")}})
		if code, _, _ := capstan(t, "bad\n", "login", h.URL, "--token-stdin"); code != exitSignIn {
			t.Errorf("exit %d", code)
		}
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("file: %v", err)
		}
	})
	t.Run("CLI-01 an empty secret is refused", func(t *testing.T) {
		home(t)
		h := hub(t, map[string]answer{"GET /api/v1/me": me})
		if code, _, errs := capstan(t, "\n", "login", h.URL, "--token-stdin"); code == 0 || len(h.tokens) != 0 {
			t.Errorf("exit %d, %s, %v", code, errs, h.tokens)
		}
	})
	t.Run("SEC-A1 a stored token goes to its own server alone", func(t *testing.T) {
		home(t)
		mine, other := hub(t, map[string]answer{"GET /api/v1/me": me}), hub(t, map[string]answer{"GET /api/v1/me": me})
		if err := writeConfig(configFile{Server: mine.URL, Token: "stored"}); err != nil {
			t.Fatal(err)
		}
		capstan(t, "", "whoami", "--server", other.URL)
		t.Setenv("CAPSTAN_SERVER", other.URL)
		capstan(t, "", "whoami")
		if diff := cmp.Diff([]string{"", ""}, other.tokens); diff != "" {
			t.Error(diff)
		}
		t.Setenv("CAPSTAN_SERVER", "")
		capstan(t, "", "whoami")
		capstan(t, "", "whoami", "--server", mine.URL+"/")
		if diff := cmp.Diff([]string{"Bearer stored", "Bearer stored"}, mine.tokens); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("SEC-A1 a token does not follow a redirect to another server", func(t *testing.T) {
		home(t)
		other := hub(t, map[string]answer{"GET /api/v1/me": me})
		away := httptest.NewServer(http.RedirectHandler(strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+"/api/v1/me", http.StatusFound))
		t.Cleanup(away.Close)
		capstan(t, "", "whoami", "--server", away.URL, "--token", "secret")
		for _, got := range other.tokens {
			if got != "" {
				t.Errorf("sent %q", got)
			}
		}
	})
	t.Run("CLI-01 the environment's token wins over the file's, the flag's over both", func(t *testing.T) {
		home(t)
		h := hub(t, map[string]answer{"GET /api/v1/me": me})
		if err := writeConfig(configFile{Server: h.URL, Token: "file"}); err != nil {
			t.Fatal(err)
		}
		t.Setenv("CAPSTAN_TOKEN", "env")
		capstan(t, "", "whoami")
		capstan(t, "", "whoami", "--token", "flag")
		if diff := cmp.Diff([]string{"Bearer env", "Bearer flag"}, h.tokens); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("CLI-01 a damaged file says what to do, one that others can read is warned of", func(t *testing.T) {
		file := home(t)
		if err := writeConfig(configFile{Server: "https://capstan.example.com", Token: "x"}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		h := hub(t, map[string]answer{"GET /api/v1/me": me})
		if _, _, errs := capstan(t, "", "whoami", "--server", h.URL); !strings.Contains(errs, "chmod 600") {
			t.Error(errs)
		}
		if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, _, errs := capstan(t, "", "whoami"); code == 0 || !strings.Contains(errs, "capstan login") {
			t.Errorf("exit %d, %s", code, errs)
		}
	})
	t.Run("CLI-01 logout forgets the token, also when the hub is away", func(t *testing.T) {
		file := home(t)
		if err := writeConfig(configFile{Server: "http://" + runtest.Refusing(t), Token: "stored"}); err != nil {
			t.Fatal(err)
		}
		code, _, errs := capstan(t, "", "logout")
		if b, _ := os.ReadFile(file); code != 0 || strings.Contains(string(b), "stored") || !strings.Contains(errs, "warning") {
			t.Errorf("exit %d, %s, file %s", code, errs, b)
		}
	})
}

func TestSay(t *testing.T) {
	t.Parallel()
	fix := "do this"
	for _, c := range []struct {
		why  string
		err  error
		want string
	}{
		{"an answer says its reference", &answerError{404, apimodel.Error{Code: "missing", Message: "no app", Fix: fix, RequestId: "r1"}}, "no app; do this [missing, request r1]"},
		{"no fix, no semicolon", &answerError{404, apimodel.Error{Code: "missing", Message: "no app", RequestId: "r1"}}, "no app [missing, request r1]"},
		{"a fault says its fix", fault.With(fault.New(fault.Invalid, "bad"), "", "mend it"), "bad; mend it"},
		{"anything else is as it is", errors.New("x"), "x"},
	} {
		if got := say(c.err); got != c.want {
			t.Errorf("%s: %q", c.why, got)
		}
	}
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	cases := map[string]*apimodel.ResourceSelector{
		"apps:Deployment:shop/web": {Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"},
		":ConfigMap:web":           {Kind: "ConfigMap", Name: "web"},
		"apps:Deployment:a:b":      {Group: "apps", Kind: "Deployment", Name: "a:b"},
		"apps:Deployment":          nil,
		"apps::web":                nil,
		"apps:Deployment:":         nil,
		"apps:Deployment:shop/":    nil,
		"apps:Deployment:/web":     nil,
		"":                         nil,
	}
	for text, want := range cases {
		t.Run("CLI-06 "+text, func(t *testing.T) {
			t.Parallel()
			got, err := selectors([]string{text})
			if want == nil {
				if exitCode(err) != exitUsage {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if diff := cmp.Diff(*want, got[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"b.yaml": "b: 1", "a.yml": "a: 1", "notes.txt": "no", "sub/c.json": "{}"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readFiles([]string{dir, "-"}, strings.NewReader("stdin: 1"))
	if diff := cmp.Diff("a: 1\n---\nb: 1\n---\n{}\n---\nstdin: 1", string(got.text())); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := readFiles([]string{t.TempDir()}, nil); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a folder without manifests: %v", err)
	}
}

func TestActions(t *testing.T) {
	const tree = `{"cursor":"1","nodes":[{"group":"apps","version":"v1","kind":"Deployment","namespace":"n","name":"web","managed":true},
		{"group":"apps","version":"v1","kind":"Deployment","namespace":"n","name":"api","managed":true},{"group":"","version":"v1","kind":"Service","namespace":"n","name":"web","managed":true}]}`
	const actions = "/api/v1/applications/argocd/shop/resource/actions"
	answers := map[string]answer{
		"GET /api/v1/applications/argocd/shop/tree": {200, tree},
		"GET " + actions:  {200, `{"items":[{"name":"restart","disabled":false,"permitted":true},{"name":"scale","disabled":true,"permitted":false,"params":[{"name":"replicas"}]}]}`},
		"POST " + actions: {200, `{"changes":[{"created":true,"group":"batch","version":"v1","kind":"Job","namespace":"n","name":"j"}]}`},
	}
	one := []string{"app", "actions", "run", "shop", "scale", "--kind", "Deployment", "--resource-name", "web"}
	for name, c := range map[string]struct {
		args []string
		want int
		says string // in output or errors
		body string // of the request
	}{
		"ACT-01 list":                       {[]string{"app", "actions", "list", "shop", "--kind", "deployment", "--resource-name", "api"}, exitOK, "scale    yes       no         replicas", ""},
		"ACT-01 list as JSON":               {[]string{"app", "actions", "list", "shop", "--kind", "Service", "-o", "json"}, exitOK, `"name": "restart"`, ""},
		"ACT-07 run with a parameter":       {append(one, "--param", "replicas=3"), exitOK, "created Job n/j", `"resourceActionParameters":[{"name":"replicas","value":"3"}]`},
		"ACT-07 run on all of a kind":       {[]string{"app", "actions", "run", "shop", "restart", "--kind", "Deployment", "--all"}, exitOK, "Deployment n/api", ""},
		"run on several without --all":      {[]string{"app", "actions", "run", "shop", "restart", "--kind", "Deployment"}, exitUsage, "several objects fit", ""},
		"run on nothing":                    {[]string{"app", "actions", "run", "shop", "restart", "--kind", "Pod"}, exitMissing, "no such object", ""},
		"a parameter that is none":          {append(one, "--param", "replicas"), exitUsage, "NAME=VALUE", ""},
		"a parameter with an equals inside": {append(one, "--param", "a=b=c"), exitOK, "created", `"value":"b=c"`},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			h := hub(t, answers)
			code, out, errs := capstan(t, "", append(c.args, "--server", h.URL, "--token", "t0ken")...)
			if code != c.want || !strings.Contains(out+errs, c.says) || !strings.Contains(h.bodies["POST "+actions], c.body) {
				t.Errorf("exit %d, want %d; output %q, errors %q, request %q", code, c.want, out, errs, h.bodies["POST "+actions])
			}
		})
	}
}

func TestOverridesAreTriedOut(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rollout := file("rollout.yaml", "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: web, namespace: n}\nstatus: {pauseConditions: [{reason: x}]}\n")
	deployment := file("deployment.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1, template: {}}\n")
	cm := file("cm.yaml", `data:
  resource.customizations.actions.argoproj.io_Rollout: |
    discovery.lua: |
      actions = {}
      actions["resume"] = {["disabled"] = false}
      return actions
    definitions:
      - name: resume
        action.lua: |
          obj.status.pauseConditions = nil
          return obj
`)
	old := file("old.yaml", `data:
  resource.customizations: |
    apps/Deployment:
      actions: |
        mergeBuiltinActions: true
        discovery.lua: |
          return {twice = {}}
        definitions:
          - name: twice
            action.lua: |
              obj.spec.replicas = obj.spec.replicas * 2
              return obj
`)
	loop := file("loop.yaml", "data:\n  resource.customizations.actions.apps_Deployment: |\n    discovery.lua: while true do end\n")
	bad := file("bad.yaml", "data:\n  resource.customizations.actions.apps_Deployment: |\n    discovry.lua: x\n")
	for name, c := range map[string]struct {
		args []string
		want int
		says string
	}{
		"ACT-12 CLI-12(part) built-in actions are listed": {[]string{"list-actions", deployment}, exitOK, "restart"},
		"ACT-12 users' actions replace them":              {[]string{"list-actions", rollout, "--argocd-cm-path", cm, "-o", "name"}, exitOK, "resume\n"},
		"ACT-12 the older map is read":                    {[]string{"run-action", deployment, "twice", "--argocd-cm-path", old}, exitOK, "replicas: 2"},
		"ACT-12 an action shows its patch":                {[]string{"run-action", rollout, "resume", "--argocd-cm-path", cm}, exitOK, "pauseConditions: null"},
		"ACT-12 parameters are given":                     {[]string{"run-action", deployment, "scale", "--param", "replicas=4", "-o", "json"}, exitOK, `"replicas": 4`},
		"ACT-12 a wrong parameter is told":                {[]string{"run-action", deployment, "scale", "--param", "replicas=many"}, exitUsage, "invalid number: many"},
		"ACT-12 an unknown action is told":                {[]string{"run-action", deployment, "fly"}, exitMissing, `no action "fly"`},
		"SEC-B9 a script that loops is stopped":           {[]string{"list-actions", deployment, "--argocd-cm-path", loop}, exitFailed, "stopped after"},
		"ACT-02 a misspelt key is told":                   {[]string{"list-actions", deployment, "--argocd-cm-path", bad}, exitUsage, "discovry.lua"},
		"ACT-12 a file that is not there":                 {[]string{"list-actions", filepath.Join(dir, "none")}, exitUsage, "cannot be read"},
		"ACT-12 a file without an object":                 {[]string{"list-actions", cm}, exitUsage, "no object with a kind"},
		"ACT-12 a ConfigMap that is not YAML":             {[]string{"list-actions", deployment, "--argocd-cm-path", file("no.yaml", "a: [")}, exitUsage, "not YAML"},
		"ACT-12 nothing to run":                           {[]string{"run-action", deployment}, exitUsage, "name of an action"},
		"ACT-12 a built-in action makes objects":          {[]string{"run-action", file("cron.yaml", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c, namespace: n}\nspec: {jobTemplate: {spec: {a: 1}}}\n"), "create-job"}, exitOK, "kind: Job"},
	} {
		t.Run(name, func(t *testing.T) {
			home(t)
			code, out, errs := capstan(t, "", append([]string{"admin", "settings", "resource-overrides"}, c.args...)...)
			if code != c.want || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit %d, want %d; output %q, errors %q", code, c.want, out, errs)
			}
		})
	}
}
