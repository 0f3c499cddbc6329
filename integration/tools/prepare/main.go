// Command prepare builds what the tests, the demo and the generated code need
// from source, once, into the user's cache. "prepare cluster" makes the
// program of a local Kubernetes cluster, "prepare registry" that of an OCI
// registry, "prepare tools" the code generators; what it prints on standard output is where they are. The
// Makefile calls it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/capstan-cd/capstan/integration/rigs/build"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := prepare(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "prepare:", err)
		os.Exit(1)
	}
}

func prepare(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("say what to prepare: cluster, tools or linter")
	}
	switch args[0] {
	case "cluster":
		made, err := build.ControlPlane(ctx, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(made)
	case "registry":
		made, err := build.Registry(ctx, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(made)
	case "tools":
		folder, err := build.Tools(ctx, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(folder)
	case "linter":
		made, err := build.Linter(ctx, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(made)
	default:
		return fmt.Errorf("%q cannot be prepared: say cluster, registry, tools or linter", args[0])
	}
	return nil
}
