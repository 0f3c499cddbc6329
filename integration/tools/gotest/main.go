// Command gotest runs go test, keeps its JSON log in a file for later
// programs, and prints what a person wants to see: one line for each package,
// everything that failing tests said, and one closing line with the counts.
// With -for it repeats the tests until the time is over or one fails. The
// Makefile calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/integration/tools/testlog"
)

func main() {
	log := flag.String("log", "", "file that receives the JSON log; empty: none")
	repeat := flag.Duration("for", 0, "repeat until this much time is over or a test fails; zero: run once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ok, err := soak(ctx, *repeat, *log, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

// soak runs the tests once, or as often as the time allows.
func soak(ctx context.Context, repeat time.Duration, log string, args []string) (bool, error) {
	begun := time.Now()
	for n := 1; ; n++ {
		ok, err := runTests(ctx, log, args)
		if repeat == 0 || !ok || err != nil || ctx.Err() != nil {
			return ok, err
		}
		spent := time.Since(begun)
		fmt.Printf("run %d passed after %s of %s\n", n, spent.Round(time.Second), repeat)
		if spent >= repeat {
			return true, nil
		}
	}
}

// runTests runs the tests and tells whether all is well.
func runTests(ctx context.Context, log string, args []string) (bool, error) {
	keep := io.Discard
	if log != "" {
		if err := os.MkdirAll(filepath.Dir(log), 0o755); err != nil {
			return false, fmt.Errorf("make the folder of the log: %w", err)
		}
		f, err := os.Create(log)
		if err != nil {
			return false, fmt.Errorf("create the log: %w", err)
		}
		defer f.Close()
		keep = f
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start go test: %w", err)
	}
	r := report{out: os.Stdout, output: map[string][]string{}}
	err = testlog.Events(io.TeeReader(out, keep), r.event)
	ended := cmd.Wait()
	if err != nil {
		return false, err
	}
	return r.close(ended), nil
}

// keepLines is how much of what one test said is shown when it fails.
const keepLines = 400

// A report turns events into lines for people.
type report struct {
	out    io.Writer
	output map[string][]string // by package, test and build
	tests  []testlog.Test
	broken int // packages that failed without a failing test
}

func (r *report) event(e testlog.Event) error {
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "output":
		key := e.Package + " " + e.Test
		r.output[key] = append(r.output[key], e.Output)
		if extra := len(r.output[key]) - keepLines; extra > 0 {
			r.output[key] = slices.Delete(r.output[key], 0, extra)
		}
	case e.Action != testlog.Pass && e.Action != testlog.Fail && e.Action != testlog.Skip:
	case e.Test != "":
		r.test(e)
	default:
		r.pack(e)
	}
	return nil
}

// test records the end of a test, and shows what it said if it failed.
func (r *report) test(e testlog.Event) {
	r.tests = append(r.tests, testlog.Test{Package: e.Package, Name: e.Test, Result: e.Action})
	key := e.Package + " " + e.Test
	if e.Action == testlog.Fail {
		fmt.Fprintf(r.out, "\n--- %s\n%s", key, strings.Join(r.output[key], ""))
	}
	delete(r.output, key)
}

// pack shows the end of a package.
func (r *report) pack(e testlog.Event) {
	mine := slices.DeleteFunc(slices.Clone(r.tests), func(t testlog.Test) bool { return t.Package != e.Package })
	n := testlog.Count(mine)
	key := e.Package + " "
	switch {
	case e.Action == testlog.Fail && n.Failed == 0:
		r.broken++
		fmt.Fprintf(r.out, "%s", strings.Join(r.output[key], ""))
		fmt.Fprintf(r.out, "FAIL  %-60s the package itself failed\n", short(e.Package))
	case e.Action == testlog.Fail:
		fmt.Fprintf(r.out, "FAIL  %-60s %s\n", short(e.Package), n)
	case len(mine) > 0:
		fmt.Fprintf(r.out, "ok    %-60s %s in %.1f s\n", short(e.Package), n, e.Elapsed)
	}
	delete(r.output, key)
}

// close prints the closing line.
func (r *report) close(ended error) bool {
	n := testlog.Count(r.tests)
	n.Failed += r.broken
	var exit *exec.ExitError
	if ended != nil && n.Failed == 0 {
		n.Failed++ // go test itself, which has said why
		if !errors.As(ended, &exit) {
			fmt.Fprintln(r.out, "go test:", ended)
		}
	}
	fmt.Fprintf(r.out, "\nGo: %s\n", n)
	return n.Failed == 0
}

func short(pkg string) string {
	_, rest, ok := strings.Cut(pkg, "/capstan/")
	if !ok {
		return pkg
	}
	return rest
}
