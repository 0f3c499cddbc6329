package daemon_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/daemon"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		"ScopeOfAll":      {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, Namespaces: []string{"a"}}, "takes no namespaces"},
		"NamespaceGlob":   {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, Mode: "namespaced", Namespaces: []string{"*"}}, "no name of a namespace"},
		"FieldManager":    {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, FieldManager: "Me You"}, "Me You"},
		"NoGuard":         {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, REST: away, GuardFile: file + "-none"}, file + "-none"},
		"GuardTypo":       {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, REST: away, GuardFile: guard("allowDeletes: false")}, "allowDeletes"},
		"GuardGlob":       {daemon.Config{StateDir: "/x", Namespace: "n", Log: quiet, REST: away, GuardFile: guard("namespaces: ['[a']")}, "no glob"},
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
