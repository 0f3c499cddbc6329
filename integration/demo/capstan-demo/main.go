// Command demo starts an installation from nothing, deploys a sample
// repository with a plain, a Kustomize and a Helm application, and goes on
// running with live output. With DEMO_ONCE=1 it waits until everything is
// Synced and Healthy, pushes one change, says how long it took to reach the
// cluster, and ends.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/harness"
	"github.com/capstan-cd/capstan/integration/stack"
)

func main() {
	bin := flag.String("bin", "bin", "folder with the built binaries")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx, *bin, os.Getenv("DEMO_ONCE") == "1"); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func demo(ctx context.Context, bin string, once bool) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "capstan-demo-")
	if err != nil {
		return err
	}
	begin := time.Now()
	s, err := stack.Start(ctx, stack.Options{Bin: bin, Dir: dir, Clusters: []string{"in-cluster"}, Nodes: true, Durable: true, Say: say})
	if err != nil {
		return err
	}
	defer func() {
		stopped := s.Stop()
		if err == nil {
			err = stopped
		}
		if err == nil {
			_ = os.RemoveAll(dir)
		}
	}()
	repo, err := s.Repository(ctx, "sample", harness.RepositoryOptions{})
	if err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "Add the sample applications", sample); err != nil {
		return err
	}
	if _, err := s.API.Apply(ctx, applications(repo.URL())); err != nil {
		return err
	}
	if err := settle(ctx, s); err != nil {
		return err
	}
	say("%-18s synced and healthy after %.1f s in all", "3 applications", time.Since(begin).Seconds())
	took, err := push(ctx, s, repo)
	if err != nil {
		return err
	}
	if once {
		say("demo: 3 applications Synced and Healthy; push to applied in %d ms", took.Milliseconds())
		return nil
	}
	return live(ctx, s, repo, took, dir)
}

// settle waits until all samples are Synced and Healthy; a failure names the
// application and the cause.
func settle(ctx context.Context, s *stack.Stack) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, name := range []string{"guestbook", "podinfo", "shop"} {
		if _, err := s.API.Wait(ctx, name, stack.Settled); err != nil {
			return err
		}
	}
	return nil
}

// push changes one file and measures from the end of git push to the moment
// when a watch on the cluster sees the new value.
func push(ctx context.Context, s *stack.Stack, repo *harness.Repository) (time.Duration, error) {
	cluster := s.Clusters["in-cluster"]
	configmaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	greeting := fmt.Sprintf("hello at %s", time.Now().Format(time.RFC3339Nano))
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	seen := make(chan error, 1)
	var at time.Time
	go func() {
		_, err := cluster.WaitFor(ctx, configmaps, "guestbook", "greeting", func(o *unstructured.Unstructured) error {
			if got, _, _ := unstructured.NestedString(o.Object, "data", "text"); got != greeting {
				return fmt.Errorf("the text is %q", got)
			}
			return nil
		})
		at = time.Now()
		seen <- err
	}()
	if _, err := repo.Commit(ctx, "Change the greeting", map[string]string{"guestbook/greeting.yaml": configMap("greeting", greeting)}); err != nil {
		return 0, err
	}
	pushed := time.Now()
	if err := <-seen; err != nil {
		return 0, fmt.Errorf("the push did not reach the cluster: %w", err)
	}
	return max(0, at.Sub(pushed)), nil
}

// live prints where everything is and then each change until Ctrl-C.
func live(ctx context.Context, s *stack.Stack, repo *harness.Repository, took time.Duration, dir string) error {
	link, err := s.SetupLink(ctx)
	if err != nil {
		return err
	}
	say("\nA push reached the cluster in %d ms. Try it yourself:\n", took.Milliseconds())
	say("  console     %s", link)
	say("              (one-time link: it makes an account of your own; or sign in as admin with %s)", s.Password())
	say("  repository  git clone %s", repo.URL())
	say("  cluster     KUBECONFIG=%s", s.Clusters["in-cluster"].Kubeconfig())
	say("  files       %s", dir)
	say("\nCtrl-C ends everything. What happens:\n")
	for ctx.Err() == nil {
		if err := follow(ctx, s); err != nil && ctx.Err() == nil {
			say("the stream broke (%v); following again", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func follow(ctx context.Context, s *stack.Stack) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.API.URL+"/api/v1/stream", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.API.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	last := map[string]string{}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "data:") {
			continue
		}
		for _, name := range []string{"guestbook", "podinfo", "shop"} {
			x, err := s.API.Get(ctx, name)
			if err != nil {
				continue
			}
			revision := x.Status.Sync.Revision
			now := fmt.Sprintf("%-10s %-9s %-11s %.8s", name, x.Status.Sync.Status, x.Status.Health.Status, revision)
			if last[name] != now {
				last[name] = now
				say("%s  %s", time.Now().Format("15:04:05.000"), now)
			}
		}
	}
	return lines.Err()
}
