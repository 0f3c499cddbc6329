package daemon_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/daemon"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/logkey"
)

func TestMain(m *testing.M) { runtest.Main(m) }

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	quiet := slog.New(slog.DiscardHandler)
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	guard := func(text string) string {
		f := filepath.Join(t.TempDir(), "guard.yaml")
		if err := os.WriteFile(f, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return f
	}
	away := &rest.Config{Host: "http://127.0.0.1:1"}
	cases := map[string]struct {
		config daemon.Config
		has    string
	}{
		"Nothing":         {daemon.Config{}, "a state directory"},
		"RelativeDir":     {daemon.Config{StateDir: "state", Namespace: "n", Log: quiet}, "not an absolute path"},
		"NoNamespace":     {daemon.Config{StateDir: "/x", Log: quiet}, "a namespace"},
		"NoCluster":       {daemon.Config{StateDir: t.TempDir(), Namespace: "n", Log: quiet}, "no kubeconfig"},
		"BadKubeconfig":   {daemon.Config{StateDir: t.TempDir(), Namespace: "n", Log: quiet, Kubeconfig: broken}, broken},
		"DirIsAFile":      {daemon.Config{StateDir: file, Namespace: "n", Log: quiet, REST: &rest.Config{Host: "http://127.0.0.1:1"}}, file},
		"UnknownMode":     {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, Mode: "all"}, `mode "all"`},
		"NoNamespaces":    {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, Mode: "namespaced"}, "needs the namespaces"},
		"ScopeOfAll":      {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, Namespaces: []string{"a"}}, "has no namespaces"},
		"NamespaceGlob":   {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, Mode: "namespaced", Namespaces: []string{"*"}}, "not a valid name of a namespace"},
		"FieldManager":    {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, FieldManager: "Me You"}, "Me You"},
		"NoGuard":         {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, REST: away, GuardFile: file + "-none"}, file + "-none"},
		"GuardTypo":       {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, REST: away, GuardFile: guard("allowDeletes: false")}, "allowDeletes"},
		"GuardGlob":       {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, REST: away, GuardFile: guard("namespaces: ['[a']")}, "a [ is not closed"},
		"MissingKubeconf": {daemon.Config{StateDir: t.TempDir(), Namespace: "n", Log: quiet, Kubeconfig: file + "-none"}, file + "-none"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := daemon.Run(t.Context(), c.config)
			if err == nil || !strings.Contains(err.Error(), c.has) {
				t.Errorf("error %v, want one that says %q", err, c.has)
			}
			if kind := fault.KindOf(err); kind != fault.Invalid {
				t.Errorf("kind %q", kind)
			}
		})
	}
}

func TestRunWaitsForTheCluster(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := daemon.Run(ctx, daemon.Config{
		StateDir: t.TempDir(), Namespace: "n", Log: slog.New(slog.DiscardHandler), REST: &rest.Config{Host: "http://127.0.0.1:1"},
	})
	if err != nil {
		t.Errorf("an agent that is asked to stop while its API server is away ends with %v", err)
	}
}

// listening is a log that gives the address that the agent listens on.
type listening struct {
	slog.Handler
	address chan string
}

func (l listening) Enabled(context.Context, slog.Level) bool { return true }

func (l listening) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == logkey.Address {
			l.address <- a.Value.String()
		}
		return true
	})
	return nil
}

func TestHealthIsServedFromTheStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	log := listening{slog.DiscardHandler, make(chan string, 1)}
	defer cancel()
	dir, done := t.TempDir(), make(chan error, 1)
	go func() {
		done <- daemon.Run(ctx, daemon.Config{
			StateDir: dir, Namespace: "n", Log: slog.New(log), Listen: "127.0.0.1:0", REST: &rest.Config{Host: "http://127.0.0.1:1"},
		})
	}()
	var address string
	select {
	case address = <-log.address:
	case err := <-done:
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusOK} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _ = answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("while the API server is away %s answers %d, want %d", path, answer.StatusCode, want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNoSecondPort(t *testing.T) {
	t.Parallel()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = daemon.Run(t.Context(), daemon.Config{
		StateDir: t.TempDir(), Namespace: "n", Log: slog.New(slog.DiscardHandler), Listen: ln.Addr().String(), REST: &rest.Config{Host: "http://127.0.0.1:1"},
	})
	if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("a port that is taken gives %v", err)
	}
}
