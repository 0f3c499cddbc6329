// Command capstan is the command line of Capstan: a client of the hub's HTTP
// API and of nothing else.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/capstan-cd/capstan/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
