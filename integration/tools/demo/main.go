// Command demo is "make demo": it builds what is missing, prints the duration
// of each step, and then runs bin/capstan-demo, which starts everything. It
// imports the standard library only, so that it prints at once and not after
// the minutes that the rest needs to compile.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/build"
)

func main() {
	grouped := flag.Bool("grouped", false, "the process group is this program's own already")
	flag.Parse()
	if !*grouped {
		if code, done := inOwnGroup(); done {
			os.Exit(code)
		}
	}
	os.Exit(run())
}

// run builds what is missing and then runs the demo. Being stopped is no error.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	begun := time.Now()
	if err := prepare(ctx); err != nil {
		if ctx.Err() != nil || interrupted(err) {
			fmt.Println("\nStopped. What is compiled is kept: the next make demo goes on from there.")
			return 0
		}
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return play(ctx, begun)
}

// play runs the demo itself, which counts the time from begun on, and gives
// its exit code. The demo says by itself what went wrong.
func play(ctx context.Context, begun time.Time) int {
	runtime.LockOSThread() // the demo ends with this thread
	cmd := exec.CommandContext(ctx, filepath.Join("bin", "capstan-demo"), "-bin", "bin", "-begun", begun.Format(time.RFC3339Nano))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = group()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err := cmd.Run()
	if interrupted(err) || ctx.Err() != nil && (cmd.ProcessState == nil || cmd.ProcessState.ExitCode() < 0) {
		fmt.Println("\nStopped.") // before the demo could say it
		return 0
	}
	if err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	return exitCode(cmd)
}

// interrupted says whether err is that of a command that Ctrl-C ended. Commands
// run in process groups of their own, but the terminal reaches one that has
// just been forked, and its end can be seen before this program's own signal.
func interrupted(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGINT
}

// exitCode is that of a command that has ended; one that was killed failed.
func exitCode(cmd *exec.Cmd) int {
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code
	}
	return 1
}

// prepare makes everything that the demo runs.
func prepare(ctx context.Context) error {
	if len(os.Getenv("DEMO_CLUSTERS")) > 0 && os.Getenv("DEMO_KUBECONFIG") != "" {
		return errors.New("DEMO_CLUSTERS makes clusters, and DEMO_KUBECONFIG uses one that is there: set one of them")
	}
	local := os.Getenv("DEMO_KUBECONFIG") == ""
	cached, err := greet(local)
	if err != nil {
		return err
	}
	var console *step
	if runStep(ctx, "", "make", "--question", "web/dist/index.html") != nil {
		console = begin(ctx, "the console", "make", "--no-print-directory", "console")
	}
	if local && !cached {
		begun := time.Now()
		if _, err := build.ControlPlane(ctx, os.Stdout); err != nil {
			return errors.Join(err, console.stop())
		}
		say("Kubernetes", begun)
	}
	if !console.ended() { // what needs no console can be compiled meanwhile
		if err := runStep(ctx, "most of the hub", "make", "--no-print-directory", "demo-libraries"); err != nil {
			return errors.Join(err, console.stop())
		}
	}
	if err := console.wait(); err != nil {
		return err
	}
	return runStep(ctx, "hub, agent and CLI", "make", "--no-print-directory", "demo-binaries")
}

// greet says what is about to happen and how long it takes.
func greet(local bool) (cached bool, err error) {
	fmt.Print(`Capstan's demo: a hub, its Postgres, a Git server, a cluster, an agent and sample applications,
all on this machine and on loopback. Nothing is installed; Ctrl-C ends everything.

`)
	if !local {
		fmt.Printf("It uses the cluster of %s, so no Kubernetes is compiled.\n\n", os.Getenv("DEMO_KUBECONFIG"))
		return false, nil
	}
	if _, cached, err = build.ControlPlanePath(); err != nil || cached {
		return cached, err
	}
	fmt.Print(`The first run compiles Kubernetes (API server, controllers, scheduler, etcd) and Capstan from source:
about 7 minutes on two cores, and some more to download the sources. Later runs take about 15 seconds.
A cluster that you have already takes none of that: DEMO_KUBECONFIG=~/.kube/config make demo

`)
	return false, nil
}

// say tells that a step is done, unless it has no name.
func say(what string, begun time.Time) {
	if what == "" {
		return
	}
	fmt.Printf("%-18s ready after %.1f s\n", what, time.Since(begun).Seconds())
}
