// Package releases_test upgrades an installation of three hubs and two agents
// from an older release to this one and back, one process after the other,
// while clients read, write, push and sync.
package releases_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/machine"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// within bounds a step.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// older returns the commit of the older release: the last tag, or without tags
// the commit before the newest migration, so that the upgrade migrates.
func older(ctx context.Context) (string, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	if tag, err := git("describe", "--tags", "--abbrev=0", "HEAD^"); err == nil {
		return tag, nil
	}
	added, err := git("log", "-1", "--format=%H", "--diff-filter=A", "--", ":/hub/store/migrations/*.sql")
	if err != nil || added == "" {
		return "", fmt.Errorf("find the newest migration: %w", err)
	}
	return git("rev-parse", "--verify", added+"^^{commit}")
}

// buildCommit builds the programs of a commit into dir, and returns their folder.
func buildCommit(ctx context.Context, commit, dir string) (bin string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	archive := exec.CommandContext(ctx, "git", "-C", strings.TrimSpace(string(root)), "archive", "--format=tar", commit)
	extract := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	var complaints bytes.Buffer
	archive.Stderr, extract.Stderr = &complaints, &complaints
	if extract.Stdin, err = archive.StdoutPipe(); err != nil {
		return "", err
	}
	if err := archive.Start(); err != nil {
		return "", fmt.Errorf("read commit %s: %w", commit, err)
	}
	err = extract.Run()
	if wait := archive.Wait(); err == nil {
		err = wait
	}
	if err != nil {
		return "", fmt.Errorf("read commit %s: %w: %s", commit, err, complaints.String())
	}
	bin = filepath.Join(dir, "bin")
	compile := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", bin+string(filepath.Separator), "./hub/cmd/capstan-hub", "./agent/cmd/capstan-agent", "./cli/cmd/capstan")
	compile.Dir, compile.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build commit %s: %w: %s", commit, err, out)
	}
	return bin, nil
}

// installed builds both releases, and starts an installation of the older one.
func installed(t *testing.T) (s *stack.Stack, before, after string) {
	t.Helper()
	commit, err := older(t.Context())
	if err != nil {
		machine.Lacks(t, "the history of the repository has no older release: %v", err)
	}
	dir := t.TempDir()
	ctx := within(t, 10*time.Minute)
	if before, err = buildCommit(ctx, commit, filepath.Join(dir, "older")); err != nil {
		t.Fatal(err)
	}
	if after, err = suite.Build(ctx, dir); err != nil {
		t.Fatal(err)
	}
	s, err = stack.Start(ctx, stack.Options{
		Bin: before, Dir: filepath.Join(dir, "run"), Clusters: []string{"east", "west"}, Nodes: true, Replicas: 3,
		Settings: map[string]any{"lease": "3s", "heartbeat": "2s", "drain": "2s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, h := range s.Hubs {
				t.Logf("%s ends with\n%s", h.LogFile(), tail(h.LogFile()))
			}
		}
	})
	t.Logf("the older release is commit %s", commit)
	return s, before, after
}

// tail returns the last lines of a log that report a problem.
func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"ERROR"`) || strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic") {
			out = append(out, line)
		}
	}
	return strings.Join(out[max(0, len(out)-20):], "")
}
