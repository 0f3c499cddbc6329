// Command capstan-demo starts an installation from nothing, deploys a sample
// repository with a plain, a Kustomize and a Helm application and a broken
// one, and goes on running with live output until Ctrl-C. "make demo" builds
// and starts it. Environment:
//
//	DEMO_ONCE=1          ends after one change was pushed and measured
//	DEMO_CLUSTERS=2      with so many clusters
//	DEMO_KUBECONFIG=file in the cluster of this file, which is left as it was
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// mostClusters is a limit for what a laptop bears: each takes half a gigabyte.
const mostClusters = 5

func main() {
	o := options{kubeconfig: os.Getenv("DEMO_KUBECONFIG"), once: os.Getenv("DEMO_ONCE") == "1"}
	flag.StringVar(&o.bin, "bin", "bin", "folder with the built binaries")
	flag.Func("begun", "when the whole demo began, in RFC 3339", func(text string) (err error) {
		o.begun, err = time.Parse(time.RFC3339Nano, text)
		return err
	})
	flag.Parse()
	if o.begun.IsZero() {
		o.begun = time.Now()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := o.clustersFrom(os.Getenv("DEMO_CLUSTERS"))
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// options say what the demo shows.
type options struct {
	bin        string
	begun      time.Time
	once       bool
	clusters   []string
	kubeconfig string // empty: local clusters are started
}

// clustersFrom names as many clusters as the text says; none is one.
func (o *options) clustersFrom(text string) error {
	o.clusters = []string{"in-cluster"}
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostClusters {
		return fmt.Errorf("DEMO_CLUSTERS=%s: say how many clusters there are to be, from 1 to %d", text, mostClusters)
	}
	if n > 1 && o.kubeconfig != "" {
		return errors.New("DEMO_CLUSTERS makes clusters, and DEMO_KUBECONFIG uses one that is there: set one of them")
	}
	for i := 2; i <= n; i++ {
		o.clusters = append(o.clusters, fmt.Sprintf("cluster-%d", i))
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// run is the demo from the first start to the last end. Being stopped is no
// error.
func run(ctx context.Context, o options) (err error) {
	if o.bin, err = filepath.Abs(o.bin); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "capstan-demo-")
	if err != nil {
		return err
	}
	start := stack.Options{Bin: o.bin, Dir: dir, Clusters: o.clusters, Nodes: true, Durable: true, Say: say}
	if o.kubeconfig != "" {
		start.Existing = map[string]string{o.clusters[0]: o.kubeconfig}
	}
	s, err := stack.Start(ctx, start)
	if err == nil {
		d := &demo{options: o, dir: dir, s: s, apps: apps(o.clusters)}
		err = errors.Join(ignoreStop(ctx, d.show(ctx)), d.leave(), s.Stop())
	}
	err = ignoreStop(ctx, err)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil && ctx.Err() != nil {
		say("\nStopped: all processes have ended, and %s is removed.", dir)
	}
	return err
}

// ignoreStop forgets an error that came of being asked to stop.
func ignoreStop(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
