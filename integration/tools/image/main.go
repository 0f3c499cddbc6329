// Command image builds the product's container images without a container
// engine: OCI layouts made of the binaries, the well-known certificate
// authorities and nothing else, with a list of the modules inside (SPDX)
// beside each. It dials nobody. Two builds of one commit with one toolchain
// and one list of authorities are equal to the byte.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, epoch string) error {
	b := builder{say: func(format string, a ...any) { fmt.Printf(format+"\n", a...) }}
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&b.source, "source", ".", "checkout of the source")
	flags.StringVar(&b.out, "out", "bin/images", "folder for the layouts; those in it are replaced")
	flags.StringVar(&b.authorities, "ca", "/etc/ssl/certs/ca-certificates.crt", "certificate authorities that the images trust, in PEM")
	names := flags.String("images", "capstan-hub,capstan-agent,capstan", "which images")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64", "for which platforms")
	if err := flags.Parse(args); err != nil {
		return err
	}
	b.created = time.Unix(0, 0).UTC()
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return fmt.Errorf("SOURCE_DATE_EPOCH %q is no number of seconds", epoch)
		}
		b.created = time.Unix(seconds, 0).UTC()
	}
	for _, name := range strings.Split(*names, ",") {
		digest, err := b.image(ctx, name, strings.Split(*platforms, ","))
		if err != nil {
			return fmt.Errorf("image %q: %w", name, err)
		}
		b.say("%-14s %s", name, digest)
	}
	return nil
}
