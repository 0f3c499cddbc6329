// Command bench measures the product against real parts on this machine and
// prints a table with exact counts beside times. The observer is this program:
// it pushes, holds watches of its own on the cluster, and stamps when a new
// value is there; no report of the product decides. Times start when git push
// has returned.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

func main() {
	bin := flag.String("bin", "bin", "folder with the built binaries")
	only := flag.String("run", "", "comma-separated benchmarks; empty: all. With SOURCES only those of fetching and rendering without a cluster")
	idle := flag.Duration("idle", 5*time.Minute, "how long B13 watches an idle installation")
	apps := flag.Int("apps", 200, "applications of B02, B09 and B13")
	rounds := flag.Int("rounds", 20, "pushes of B01 and edits of B04")
	agents := flag.Int("agents", 1000, "simulated agents of B03, B08, B10, B14, B22, B23, B24 and B28")
	most := flag.Int("most", 5000, "simulated agents of MANY")
	events := flag.Duration("events", 30*time.Second, "how long the agents of B10 report")
	rest := flag.Duration("rest", 130*time.Second, "how long a hub is left alone before its memory is read, so that what a start or a storm needed has gone back to the system")
	parts := flag.Int("parts", 5000, "objects of the application of B21")
	objects := flag.Int("objects", 10000, "objects of the largest cluster of B15")
	volume := flag.Int64("volume", 1<<30, "bytes of the log of LOG")
	readers := flag.Int("readers", 500, "followers of one container of FOLLOW")
	keys := flag.Int("keys", 300, "keystrokes of each series of KEY")
	changes := flag.Int("changes", 20, "commits of B17, each of which changes one file of every application")
	profiles := flag.String("profiles", "", "folder for profiles of the hub: goroutines and memory while B14 and MANY are idle, CPU during the first rounds of B24; CPU and statements of both halves of B02")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if child := map[string]func(context.Context, io.Reader, io.Writer) error{gitChild: runGitChild, nullRenderChild: runNullRender}[flag.Arg(0)]; child != nil {
		if err := child(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	b := &bench{
		apps: *apps, rounds: *rounds, idle: *idle, agents: *agents, most: *most, events: *events, objects: *objects, parts: *parts, rest: *rest,
		changes: *changes, volume: *volume, readers: *readers, keys: *keys, profiles: *profiles, only: map[string]bool{},
	}
	for _, name := range strings.Split(*only, ",") {
		if name != "" {
			b.only[strings.ToUpper(name)] = true
		}
	}
	if err := b.run(ctx, *bin); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run of the suite.
type bench struct {
	apps    int
	rounds  int
	idle    time.Duration
	agents  int           // simulated
	most    int           // of them at most
	events  time.Duration // of B10
	objects int           // of B15
	parts   int           // of B21
	rest    time.Duration // before memory is read
	changes int           // of B17
	volume  int64         // bytes of LOG
	readers int           // of FOLLOW
	keys    int           // of KEY
	only    map[string]bool

	profiles string // folder; empty: none are taken

	s     *stack.Stack
	table []row
}

type row struct{ id, what, value, counts string }

func (b *bench) add(id, what, value, counts string) {
	b.table = append(b.table, row{id, what, value, counts})
	fmt.Printf("%-5s %-58s %-34s %s\n", id, what, value, counts)
}

func (b *bench) wants(ids ...string) bool {
	return len(b.only) == 0 || slices.ContainsFunc(ids, func(id string) bool { return b.only[id] })
}

func (b *bench) run(ctx context.Context, bin string) (err error) {
	if bin, err = filepath.Abs(bin); err != nil {
		return err
	}
	if b.only["GIT"] {
		if err := b.compareGit(ctx); err != nil {
			return fmt.Errorf("GIT: %w", err)
		}
		if len(b.only) == 1 {
			return nil
		}
	}
	dir, err := os.MkdirTemp("", "capstan-bench-")
	if err != nil {
		return err
	}
	keep := func() {
		if err == nil {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintln(os.Stderr, "logs are kept in", dir)
		}
	}
	defer keep()
	if b.only["SOURCES"] {
		delete(b.only, "SOURCES")
		return b.sources(ctx, bin, dir)
	}
	if b.wants("B01", "B04", "B02", "B02P", "B09", "B12", "B13", "B15", "B21", "B25", "B28", "NULL") {
		if err := b.clustered(ctx, bin, dir); err != nil {
			return err
		}
	}
	if b.wants(scaleIDs...) {
		if err := b.scale(ctx, bin, dir); err != nil {
			return err
		}
	}
	if b.wants(sourceIDs...) {
		if err := b.sources(ctx, bin, dir); err != nil {
			return err
		}
	}
	if b.wants(liveIDs...) {
		if err := b.live(ctx, bin, dir); err != nil {
			return fmt.Errorf("live operations: %w", err)
		}
	}
	if b.wants(screenIDs...) {
		if err := b.screen(ctx, bin, dir); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(screenIDs, ", "), err)
		}
	}
	return b.rights(ctx, bin, dir)
}

// clustered runs the benchmarks that need a cluster.
func (b *bench) clustered(ctx context.Context, bin, dir string) (err error) {
	b.s, err = stack.Start(ctx, stack.Options{
		Bin: bin, Dir: dir, Clusters: []string{"in-cluster"}, Nodes: true, Durable: true, Settings: b.profiled(), Postgres: b.explained(),
		Say: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) },
	})
	if err != nil {
		return err
	}
	defer func() {
		if stopped := b.s.Stop(); err == nil {
			err = stopped
		}
	}()
	for _, part := range []struct {
		ids []string
		do  func(context.Context) error
	}{
		{[]string{"B01", "B04"}, b.single},
		{[]string{"B02", "B09", "B13"}, b.many},
		{[]string{"B02P"}, b.singly},
		{[]string{"NULL"}, b.nullSystem},
		{[]string{"B25"}, b.noisy},
		{[]string{"B12"}, b.requests},
		{[]string{"B21"}, b.big},
		{[]string{"B28"}, b.growth},
		{[]string{"B15", "B28"}, b.large},
	} {
		if !b.wants(part.ids...) {
			continue
		}
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(part.ids, ", "), err)
		}
	}
	return nil
}

// spread shows the middle and the ends of a series.
func spread(d []time.Duration) string {
	s := slices.Clone(d)
	slices.Sort(s)
	return fmt.Sprintf("median %s ms, min %s, max %s", ms(s[len(s)/2]), ms(s[0]), ms(s[len(s)-1]))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d.Microseconds())/1000) }
