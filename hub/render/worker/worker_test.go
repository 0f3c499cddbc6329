package worker

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/plugin"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/hub/render/scheduler"
)

// TestMain makes the test binary a worker when the pool starts it as one. Its
// renderer also knows the probes, which try what a renderer must not do.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == render.WorkerCommand {
		os.Exit(run(os.Args[2:], func(ctx context.Context, job render.Job) (string, render.Output, error) {
			if name, ok := strings.CutPrefix(job.Application, "probe-"); ok {
				return probe(ctx, name, job)
			}
			return renderSource(ctx, job)
		}))
	}
	if len(os.Args) > 1 && os.Args[1] == plugin.ProgramCommand {
		os.Exit(plugin.Main())
	}
	if len(os.Args) > 2 && os.Args[1] == "rogue-worker" {
		os.Exit(rogue(os.Args[2]))
	}
	os.Exit(m.Run())
}

// newPool makes a pool for one test. Under the race detector nothing can be
// caged: it maps and opens what a renderer must not.
func newPool(t testing.TB, change func(*render.Config)) *scheduler.Pool {
	t.Helper()
	cfg := render.Config{Log: slog.New(slog.DiscardHandler)}
	if raceDetector {
		cfg.Sandbox = render.SandboxNone
		cfg.Limits.Memory = 1 << 30
	}
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&cfg)
	}
	p, err := scheduler.NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func request(source hub.Source, files map[string]string) render.Request {
	if source.RepoURL == "" {
		source.RepoURL = "https://git.example/app.git"
	}
	return render.Request{
		Tenant: "t1", Application: "web", Namespace: "shop", Project: "default", Revision: "c1",
		Sources: []hub.Source{source}, Trees: []hub.Tree{rendertest.NewTree(files)},
	}
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"
