// Package journeys_test walks through journeys of people in a real browser: at
// the installation that make demo starts, with a second cluster that is there
// and has no agent yet.
package journeys_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// An installation is what make demo has printed, and a second cluster.
type installation struct {
	bin, dir   string
	begun      time.Time // when the demo was started
	url        string    // of the console
	password   string    // of the user admin
	repository string    // URL of the samples
	admin      *stack.API
	second     *kube.Cluster
}

var in installation

// Limits for what hangs. The demo may have to wait for a build of Kubernetes.
const (
	waitLimit  = 3 * time.Minute
	startLimit = 15 * time.Minute
)

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "journeys", 30*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	// The hub has the console inside; the rule of the Makefile builds it where its sources are newer.
	build := exec.CommandContext(ctx, "make", "web/dist/index.html")
	build.Dir = root()
	build.Env = append(os.Environ(), "MAKEFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the console: %w\n%s", err, out)
	}
	in.dir = dir
	if in.bin, err = suite.Build(ctx, dir); err != nil {
		return nil, err
	}
	demo := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", in.bin, "./integration/tools/demo/capstan-demo")
	demo.Dir = root()
	demo.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := demo.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the demo: %w\n%s", err, out)
	}
	return start(ctx)
}

// start starts the demo and beside it the second cluster.
func start(ctx context.Context) (stop func() error, err error) {
	in.begun = time.Now()
	demo, err := process.Start(process.Command{
		Name: "capstan-demo", Path: filepath.Join(in.bin, "capstan-demo"), Args: []string{"-bin", in.bin},
		Log: filepath.Join(in.dir, "demo.log"), Orphan: syscall.SIGTERM, Env: []string{"DEMO_ONCE=", "DEMO_CLUSTERS=", "DEMO_KUBECONFIG="},
	})
	if err != nil {
		return nil, err
	}
	var side sync.WaitGroup
	var failed error
	side.Go(func() { in.second, failed = kube.Start(ctx, "second", kube.Options{Controllers: true}) })
	err = in.read(ctx, demo)
	side.Wait()
	stop = func() error {
		errs := []error{demo.Stop(syscall.SIGINT, time.Minute)}
		if in.second != nil {
			errs = append(errs, in.second.Stop())
		}
		return errors.Join(errs...)
	}
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// What the demo prints for people.
var (
	console    = regexp.MustCompile(`(?m)^  console +(\S+)$`)
	password   = regexp.MustCompile(`sign in as admin with the password (\S+)`)
	repository = regexp.MustCompile(`(?m)^  repository +(\S+)$`)
)

// read waits until the demo has printed everything, and signs in with it.
func (in *installation) read(ctx context.Context, demo *process.Process) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := demo.Ready(ctx, func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(in.dir, "demo.log"))
		if err != nil {
			return err
		}
		for to, what := range map[*string]*regexp.Regexp{&in.url: console, &in.password: password, &in.repository: repository} {
			found := what.FindSubmatch(text)
			if found == nil {
				return fmt.Errorf("it has not printed %s", what)
			}
			*to = string(found[1])
		}
		return nil
	})
	if err != nil {
		return err
	}
	in.admin, err = stack.SignIn(ctx, in.bin, filepath.Join(in.dir, "admin"), in.url, "admin", in.password)
	return err
}

// root is the folder of the sources.
func root() string { return filepath.Join("..", "..", "..") }
