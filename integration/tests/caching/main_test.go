// Package caching_test shows when the hub fetches and renders, and when it does
// not: real binaries, real Git over HTTP, Postgres. No cluster is needed for
// that, so there is none.
package caching_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// s is the installation of all tests. It polls often, so that tests need not
// wait for it.
var s *stack.Stack

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "caching", 20*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	s, err = suite.Installed(ctx, dir, stack.Options{
		Settings: map[string]any{"sources": map[string]any{"allowPrivate": []string{"127.0.0.0/8"}, "pollInterval": "1s"}, "render": map[string]any{"workers": 2}},
	})
	if err != nil {
		return nil, err
	}
	if _, err := s.API.CLI(ctx, "", "cluster", "enroll", "in-cluster", "--token-only"); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s.Stop, nil
}

const waitLimit = 2 * time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {v: %q}\n", name, value)
}

// A counts is what the hub has counted: its metrics without labels.
type counts map[string]float64

func read(t *testing.T) counts {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), http.MethodGet, s.Hub.Metrics(), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	out := counts{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && !strings.HasPrefix(name, "#") {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				out[name] = v
			}
		}
	}
	if _, ok := out["capstan_renders_total"]; !ok {
		t.Fatal("the hub does not count renders")
	}
	return out
}

// since are the renders since then that ended well.
func (c counts) since(t *testing.T) int {
	t.Helper()
	return int(read(t)["capstan_renders_total"] - c["capstan_renders_total"])
}

// shows waits until applications show a commit.
func shows(t *testing.T, commit string, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := s.API.Wait(within(t), name, func(x stack.App) error {
			if x.Status.Sync.Revision != commit {
				return fmt.Errorf("%s shows %.8q and not %.8s; conditions %v", name, x.Status.Sync.Revision, commit, x.Status.Conditions)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func push(t *testing.T, repo *gitserver.Repository, path, text string) string {
	t.Helper()
	commit, err := repo.Commit(within(t), path+" "+text, map[string]string{path: text})
	if err != nil {
		t.Fatal(err)
	}
	return commit
}
