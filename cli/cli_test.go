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

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/cli/usage"
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
		"done":              {"the answer came", map[string]answer{"GET /api/v1/projects": {200, `{"items":[]}`}}, "", []string{"project", "list"}, exit.OK, ""},
		"failed":            {"the hub is broken", map[string]answer{"GET /api/v1/projects": {500, refusal("internal", "broken")}}, "", []string{"project", "list"}, exit.Failed, "req-1"},
		"conflict":          {"nobody used it wrongly", map[string]answer{"DELETE /api/v1/projects/web": {409, refusal("conflict", "in use")}}, "", []string{"project", "delete", "web", "--yes"}, exit.Failed, "in use; do this"},
		"wrong values":      {"the hub refused them", map[string]answer{"DELETE /api/v1/projects/web": {400, refusal("invalid", "bad")}}, "", []string{"project", "delete", "web", "--yes"}, exit.Usage, "bad"},
		"sign in":           {"401", map[string]answer{me: {401, refusal("unknown", "sign in")}}, "", []string{"whoami"}, exit.SignIn, "sign in"},
		"forbidden":         {"403", map[string]answer{me: {403, refusal("denied", "you may not")}}, "", []string{"whoami"}, exit.Forbidden, "you may not"},
		"missing":           {"404", nil, "", []string{"project", "get", "web"}, exit.Missing, "no such thing"},
		"unknown command":   {"a typo", nil, "", []string{"aplication"}, exit.Usage, `unknown command "aplication" for "capstan"; did you mean "application"?`},
		"unknown verb":      {"a typo", nil, "", []string{"app", "lst"}, exit.Usage, `unknown command "lst" for "capstan app"; did you mean "list"?`},
		"no such verb":      {"nothing is like it", nil, "", []string{"app", "zzzzzz"}, exit.Usage, "capstan app --help` lists"},
		"unknown flag":      {"a typo", nil, "", []string{"project", "list", "--wat"}, exit.Usage, "wat"},
		"misspelt flag":     {"a typo", nil, "", []string{"app", "list", "--projct", "x"}, exit.Usage, "did you mean --project?"},
		"misspelt value":    {"a typo", nil, "", []string{"app", "list", "--sync", "OutOfSink"}, exit.Usage, `--sync is one of Synced, OutOfSync, Unknown, not "OutOfSink"; did you mean "OutOfSync"?`},
		"misspelt output":   {"a typo", nil, "", []string{"app", "list", "-o", "jsn"}, exit.Usage, `did you mean "json"?`},
		"not of delete":     {"it waits until they are gone, not for a state", nil, "", []string{"app", "delete", "shop", "--yes", "--health"}, exit.Usage, "--health"},
		"cancelled":         {"a program did not say --yes", nil, "", []string{"app", "delete", "shop"}, exit.Usage, "Delete application shop? There is no terminal to ask; add --yes"},
		"diff failed":       {"1 would mean that there is a difference", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {500, refusal("internal", "broken")}}, "", []string{"app", "diff", "shop"}, exit.Usage, "broken"},
		"diff conflict":     {"1 would mean that there is a difference", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {409, refusal("conflict", "no cluster")}}, "", []string{"app", "diff", "shop"}, exit.Usage, "no cluster"},
		"diff, agent away":  {"it may come back", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {503, unconfirmed}}, "", []string{"app", "diff", "shop"}, exit.Away, "its agent is not connected"},
		"diff, no such app": {"nothing was compared", nil, "", []string{"app", "diff", "shop"}, exit.Missing, ""},
		"apply, one denied": {"all that failed, failed alike", map[string]answer{"POST /api/v1/apply": {200, `{"failed":1,"results":[{"index":1,"kind":"Application","name":"web","result":"unchanged"},{"index":2,"kind":"Application","name":"shop","result":"failed","error":` + refusal("CAP-1403", "no right") + `}]}`}}, "kind: Application", []string{"apply", "-f", "-"}, exit.Forbidden, "1 of 2 documents were refused"},
		"no name":           {"an argument is missing", nil, "", []string{"app", "get"}, exit.Usage, "the name of an application"},
		"too many":          {"an argument too many", nil, "", []string{"project", "list", "x"}, exit.Usage, "no argument"},
		"required flag":     {"nothing to apply", nil, "", []string{"apply"}, exit.Usage, "filename"},
		"no confirmation":   {"a program did not say --yes", nil, "", []string{"project", "delete", "web"}, exit.Usage, "--yes"},
		"unknown output":    {"there is no such form", map[string]answer{"GET /api/v1/projects": {200, `{"items":[]}`}}, "", []string{"project", "list", "-o", "xml"}, exit.Usage, "xml"},
		"unknown selector":  {"no such form", nil, "", []string{"app", "sync", "shop", "--resource", "Deployment"}, exit.Usage, "group:kind"},
		"bad history id":    {"not a number", nil, "", []string{"app", "rollback", "shop", "one"}, exit.Usage, "one"},
		"bad cascade":       {"neither true nor false", nil, "", []string{"app", "delete", "shop", "--cascade", "maybe", "--yes"}, exit.Usage, "maybe"},
		"no hub's answer":   {"a proxy's page", map[string]answer{me: {502, "<html>"}}, "", []string{"whoami"}, exit.Failed, "no answer of a Capstan hub"},
		"not JSON":          {"another server", map[string]answer{me: {200, "<html>"}}, "", []string{"whoami"}, exit.Failed, "cannot be read"},
		"differs":           {"diff found something", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {200, `{"items":[{"kind":"ConfigMap","name":"a","version":"v1","live":{"a":1},"desired":{"a":2}}]}`}}, "", []string{"app", "diff", "shop"}, exit.Differs, ""},
		"does not differ":   {"diff found nothing", map[string]answer{"GET /api/v1/applications/argocd/shop/diff": {200, `{"items":[]}`}}, "", []string{"app", "diff", "shop"}, exit.OK, ""},
		"no file":           {"a path that is not there", nil, "", []string{"apply", "-f", "/nonexistent.yaml"}, exit.Usage, "/nonexistent.yaml"},
		"apply, one failed": {"the others were taken, the run failed", map[string]answer{"POST /api/v1/apply": {200, `{"failed":1,"results":[{"index":1,"kind":"Application","name":"shop","result":"refused","error":` + refusal("invalid", "no project") + `}]}`}}, "kind: Application", []string{"apply", "-f", "-"}, exit.Failed, "1 of 1"},
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
		if code, _, errs := capstan(t, "", "whoami", "--server", "http://"+runtest.Refusing(t)); code != exit.Failed || !strings.Contains(errs, "; check --server") {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
	t.Run("UX-CLI-5 nobody signed in", func(t *testing.T) {
		home(t)
		if code, _, errs := capstan(t, "", "whoami"); code != exit.SignIn || !strings.Contains(errs, "capstan login URL") {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
	t.Run("UX-CLI-5 no URL of a hub", func(t *testing.T) {
		home(t)
		if code, _, errs := capstan(t, "", "whoami", "--server", "capstan.example.com"); code != exit.Usage || !strings.Contains(errs, "https://") {
			t.Errorf("exit %d, %q", code, errs)
		}
	})
	t.Run("UX-CLI-5 kinds", func(t *testing.T) {
		for err, want := range map[error]int{
			context.Canceled: exit.Usage, exit.ErrTimeout: exit.Timeout, exit.ErrDiffers: exit.Differs, errors.New("x"): exit.Failed,
			exit.Comparison(errors.New("x")): exit.Usage, exit.Comparison(exit.ErrTimeout): exit.Timeout, exit.Comparison(exit.ErrDiffers): exit.Differs,
			exit.DifferCode(7): 7, usage.Wrap(fault.New(fault.Missing, "x")): exit.Usage, fault.New(fault.Invalid, "x"): exit.Usage,
			fault.New(fault.Denied, "x"): exit.Forbidden, fmt.Errorf("app: %w", fault.New(fault.Missing, "x")): exit.Missing,
		} {
			if got := exit.Of(err); got != want {
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
		var got session.File
		want := session.File{Current: session.NameOf(h.URL), Contexts: []session.Context{{Name: session.NameOf(h.URL), Server: h.URL, Tenant: "acme", User: "jane", Token: "issued"}}}
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
		if code, _, _ := capstan(t, "bad\n", "login", h.URL, "--token-stdin"); code != exit.SignIn {
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
		if err := session.WriteFile(session.File{Server: mine.URL, Token: "stored"}); err != nil {
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
		if err := session.WriteFile(session.File{Server: h.URL, Token: "file"}); err != nil {
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
		if err := session.WriteFile(session.File{Server: "https://capstan.example.com", Token: "x"}); err != nil {
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
		if err := session.WriteFile(session.File{Server: "http://" + runtest.Refusing(t), Token: "stored"}); err != nil {
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
		{"an answer says its reference", &client.AnswerError{Status: 404, Body: apimodel.Error{Code: "missing", Message: "no app", Fix: fix, RequestId: "r1"}}, "no app; do this [missing, request r1]"},
		{"no fix, no semicolon", &client.AnswerError{Status: 404, Body: apimodel.Error{Code: "missing", Message: "no app", RequestId: "r1"}}, "no app [missing, request r1]"},
		{"a fault says its fix", fault.With(fault.New(fault.Invalid, "bad"), "", "mend it"), "bad; mend it"},
		{"anything else is as it is", errors.New("x"), "x"},
	} {
		if got := exit.Say(c.err); got != c.want {
			t.Errorf("%s: %q", c.why, got)
		}
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
		"ACT-01 list":                       {[]string{"app", "actions", "list", "shop", "--kind", "deployment", "--resource-name", "api"}, exit.OK, "scale    yes       no         replicas", ""},
		"ACT-01 list as JSON":               {[]string{"app", "actions", "list", "shop", "--kind", "Service", "-o", "json"}, exit.OK, `"name": "restart"`, ""},
		"ACT-07 run with a parameter":       {append(one, "--param", "replicas=3"), exit.OK, "created Job n/j", `"resourceActionParameters":[{"name":"replicas","value":"3"}]`},
		"ACT-07 run on all of a kind":       {[]string{"app", "actions", "run", "shop", "restart", "--kind", "Deployment", "--all"}, exit.OK, "Deployment n/api", ""},
		"run on several without --all":      {[]string{"app", "actions", "run", "shop", "restart", "--kind", "Deployment"}, exit.Usage, "several objects fit", ""},
		"run on nothing":                    {[]string{"app", "actions", "run", "shop", "restart", "--kind", "Pod"}, exit.Missing, "no such object", ""},
		"a parameter that is none":          {append(one, "--param", "replicas"), exit.Usage, "NAME=VALUE", ""},
		"a parameter with an equals inside": {append(one, "--param", "a=b=c"), exit.OK, "created", `"value":"b=c"`},
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
		"ACT-12 CLI-12(part) built-in actions are listed": {[]string{"list-actions", deployment}, exit.OK, "restart"},
		"ACT-12 users' actions replace them":              {[]string{"list-actions", rollout, "--argocd-cm-path", cm, "-o", "name"}, exit.OK, "resume\n"},
		"ACT-12 the older map is read":                    {[]string{"run-action", deployment, "twice", "--argocd-cm-path", old}, exit.OK, "replicas: 2"},
		"ACT-12 an action shows its patch":                {[]string{"run-action", rollout, "resume", "--argocd-cm-path", cm}, exit.OK, "pauseConditions: null"},
		"ACT-12 parameters are given":                     {[]string{"run-action", deployment, "scale", "--param", "replicas=4", "-o", "json"}, exit.OK, `"replicas": 4`},
		"ACT-12 a wrong parameter is told":                {[]string{"run-action", deployment, "scale", "--param", "replicas=many"}, exit.Usage, "invalid number: many"},
		"ACT-12 an unknown action is told":                {[]string{"run-action", deployment, "fly"}, exit.Missing, `no action "fly"`},
		"SEC-B9 a script that loops is stopped":           {[]string{"list-actions", deployment, "--argocd-cm-path", loop}, exit.Failed, "stopped after"},
		"ACT-02 a misspelt key is told":                   {[]string{"list-actions", deployment, "--argocd-cm-path", bad}, exit.Usage, "discovry.lua"},
		"ACT-12 a file that is not there":                 {[]string{"list-actions", filepath.Join(dir, "none")}, exit.Usage, "cannot be read"},
		"ACT-12 a file without an object":                 {[]string{"list-actions", cm}, exit.Usage, "no object with a kind"},
		"ACT-12 a ConfigMap that is not YAML":             {[]string{"list-actions", deployment, "--argocd-cm-path", file("no.yaml", "a: [")}, exit.Usage, "not YAML"},
		"ACT-12 nothing to run":                           {[]string{"run-action", deployment}, exit.Usage, "name of an action"},
		"ACT-12 a built-in action makes objects":          {[]string{"run-action", file("cron.yaml", "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c, namespace: n}\nspec: {jobTemplate: {spec: {a: 1}}}\n"), "create-job"}, exit.OK, "kind: Job"},
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
