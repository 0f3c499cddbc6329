package cli_test

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/cli"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/hub/api/apitest"
	"github.com/capstan-cd/capstan/integration/rigs/oidc"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// output is what a command has printed so far.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func TestSingleSignOn(t *testing.T) {
	h := apitest.New(t)
	admin := h.Admin("acme")
	provider := oidc.New(t, oidc.Options{
		Clients:  []oidc.Client{{ID: "capstan", Secret: "a secret", Callbacks: []string{h.URL + "/auth/callback"}}},
		Accounts: map[string]oidc.Claims{"alice": {"email": "alice@example.com", "email_verified": true}},
	})
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("HOME", dir)
	run := func(args ...string) (int, string, string) {
		var out, errs output
		code := cli.Main(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return code, out.String(), errs.String()
	}
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-cm}\ndata:\n  url: " + h.URL + "\n  oidc.config: |\n    issuer: " + provider.Issuer + "\n    clientID: capstan\n    clientSecret: a secret\n"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/api/v1/apply", strings.NewReader(manifest))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/yaml")
	r.Header.Set("Authorization", "Bearer "+admin)
	resp, err := h.Client.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	address := regexp.MustCompile(`http://\S+/auth/login\?\S+`)
	signIn := func(t *testing.T, visit func(b *oidc.Browser, address string), args ...string) (int, string) {
		t.Helper()
		var out, errs output
		var code int
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var done sync.WaitGroup
		done.Go(func() {
			code = cli.Main(ctx, append([]string{"login", h.URL, "--tenant", "acme", "--sso", "--sso-port", "0", "--sso-launch-browser=false"}, args...), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		})
		if err := poll.Until(ctx, func(context.Context) error {
			if !address.MatchString(errs.String()) {
				return context.DeadlineExceeded
			}
			return nil
		}); err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		visit(oidc.NewBrowser(t), address.FindString(errs.String()))
		done.Wait()
		return code, errs.String()
	}
	t.Run("CLI-01 a browser signs the command line in", func(t *testing.T) {
		code, errs := signIn(t, func(b *oidc.Browser, address string) {
			if _, resp := b.SignIn(address, "alice", true); resp.StatusCode != http.StatusOK {
				t.Errorf("the browser gets %s", resp.Status)
			}
		})
		if code != 0 || !strings.Contains(errs, "as oidc:alice@example.com (organisation acme)") {
			t.Fatalf("it ended with %d: %s", code, errs)
		}
		if code, out, errs := run("whoami"); code != 0 || !strings.Contains(out, "oidc:alice@example.com") {
			t.Errorf("%d: %s%s", code, out, errs)
		}
	})
	t.Run("SEC-E4 what comes to the port without the state is not taken", func(t *testing.T) {
		code, errs := signIn(t, func(b *oidc.Browser, address string) {
			port := regexp.MustCompile(`127\.0\.0\.1%3A(\d+)%2Fauth`).FindStringSubmatch(address)[1]
			for _, path := range []string{"/auth/callback?code=x", "/auth/callback?code=x&state=y", "/?code=x", "/auth/callback?error=%3Cscript%3E"} {
				resp, err := b.Client.Get("http://127.0.0.1:" + port + path)
				if err != nil {
					t.Fatal(err)
				}
				body := new(bytes.Buffer)
				_, _ = body.ReadFrom(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusNotFound || strings.Contains(body.String(), "script") {
					t.Errorf("%s: %s %s", path, resp.Status, body)
				}
			}
			b.SignIn(address, "alice", true)
		})
		if code != 0 {
			t.Errorf("it ended with %d: %s", code, errs)
		}
	})
	t.Run("CLI-01 who declines in the browser reads so on the command line", func(t *testing.T) {
		code, errs := signIn(t, func(b *oidc.Browser, address string) { b.SignIn(address, "alice", false) })
		if code == 0 || !strings.Contains(errs, "it was declined at the identity provider") {
			t.Errorf("it ended with %d: %s", code, errs)
		}
	})
	t.Run("CLI-01 a callback on another machine is refused", func(t *testing.T) {
		for _, callback := range []string{"http://evil.example.com:8085", "https://localhost:1", "localhost", "http://localhost:1/x"} {
			if code, _, errs := run("login", h.URL, "--sso", "--sso-port", "0", "--sso-launch-browser=false", "--callback", callback); code == 0 || !strings.Contains(errs, "--callback") {
				t.Errorf("%s: %d %s", callback, code, errs)
			}
		}
	})
}

func TestDeviceLogin(t *testing.T) {
	h := apitest.New(t)
	alice := h.User("acme", "alice")
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config"))
	t.Setenv("HOME", dir)
	code := regexp.MustCompile(`(?m)^    ([B-Z]{4}-[B-Z]{4})$`)
	decide := func(t *testing.T, shown string, approve bool) {
		t.Helper()
		body := `{"userCode":"` + shown + `","approve":` + map[bool]string{true: "true", false: "false"}[approve] + `}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/api/v1/device/decision", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+alice)
		resp, err := h.Client.Do(r)
		if err != nil || resp.StatusCode != http.StatusNoContent {
			t.Fatal(resp, err)
		}
		_ = resp.Body.Close()
	}
	signIn := func(t *testing.T, approve bool, args ...string) (int, string) {
		t.Helper()
		var out, errs output
		var exited int
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var done sync.WaitGroup
		done.Go(func() { exited = cli.Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}) })
		if err := poll.Until(ctx, func(context.Context) error {
			if !code.MatchString(errs.String()) {
				return context.DeadlineExceeded
			}
			return nil
		}); err != nil {
			t.Fatalf("no code was shown: %s", errs.String())
		}
		decide(t, code.FindStringSubmatch(errs.String())[1], approve)
		done.Wait()
		return exited, errs.String()
	}
	t.Run("UX-CLI-6 CLI-01 --device shows an address and a code, and stores the session when that is approved", func(t *testing.T) {
		exited, text := signIn(t, true, "login", h.URL, "--tenant", "acme", "--device")
		if exited != 0 || !strings.Contains(text, "http://capstan.test/device ") || !strings.Contains(text, "user_code=") || !strings.Contains(text, "as alice (organisation acme)") {
			t.Errorf("%d %s", exited, text)
		}
		var out, errs output
		if code := cli.Main(t.Context(), []string{"whoami"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 || !strings.Contains(out.String(), "alice") || !strings.Contains(out.String(), "session") {
			t.Errorf("%d %s %s", code, out.String(), errs.String())
		}
	})
	t.Run("UX-CLI-6 what was denied in the browser ends the command, and the sign-in before stays", func(t *testing.T) {
		exited, text := signIn(t, false, "relogin", "--device")
		if exited != exit.SignIn || !strings.Contains(text, "denied") {
			t.Errorf("%d %s", exited, text)
		}
		var out, errs output
		if code := cli.Main(t.Context(), []string{"whoami"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 {
			t.Errorf("%d %s", code, errs.String())
		}
	})
	t.Run("UX-CLI-6 an organisation that is not there gives no code", func(t *testing.T) {
		var out, errs output
		code := cli.Main(t.Context(), []string{"login", h.URL, "--tenant", "nobody", "--device"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		if code != exit.SignIn || !strings.Contains(errs.String(), "--tenant") {
			t.Errorf("%d %s", code, errs.String())
		}
	})
	t.Run("UX-CLI-6 a machine without a browser or a terminal names --device", func(t *testing.T) {
		t.Setenv("PATH", dir) // without xdg-open
		ctx, cancel := context.WithCancel(t.Context())
		var out, errs output
		var done sync.WaitGroup
		done.Go(func() {
			cli.Main(ctx, []string{"login", h.URL, "--sso", "--sso-port", "0"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		})
		err := poll.Until(ctx, func(context.Context) error {
			if !strings.Contains(errs.String(), "--device") {
				return context.DeadlineExceeded
			}
			return nil
		})
		cancel()
		done.Wait()
		if err != nil || !strings.Contains(errs.String(), "no browser could be started") {
			t.Errorf("it says %s", errs.String())
		}
		var errors output
		if code := cli.Main(t.Context(), []string{"login", h.URL}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errors}); code != exit.Usage || !strings.Contains(errors.String(), "--device") {
			t.Errorf("%d %s", code, errors.String())
		}
	})
}
