// Command fuzz looks for inputs that break the fuzz targets of this module, for
// so long at each target. New inputs that are worth keeping for the next run go
// into a cache folder; one that breaks a target into testdata/fuzz beside it,
// where "go test" runs it from then on. The Makefile calls it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	each := flag.Duration("time", 10*time.Second, "how long to look at each target")
	cache := flag.String("cache", "", "folder for test programs and for inputs that later runs begin with")
	only := flag.String("run", "", "regular expression of \"folder target\"; empty: all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *each, *cache, *only); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// run looks at all targets, also after one was broken.
func run(ctx context.Context, each time.Duration, cache, only string) error {
	if cache == "" {
		return errors.New("-cache names no folder")
	}
	picks, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	cache, err = filepath.Abs(cache)
	if err != nil {
		return err
	}
	found, err := targets(".", picks)
	if err != nil {
		return err
	}
	var broken []string
	n := 0
	for _, p := range found {
		program := filepath.Join(cache, strings.ReplaceAll(filepath.ToSlash(p.dir), "/", "-")+".test")
		if err := build(ctx, p.dir, program); err != nil {
			return err
		}
		for _, target := range p.targets {
			n++
			begun := time.Now()
			out, err := fuzz(ctx, p.dir, program, target, filepath.Join(cache, "inputs", p.dir), each)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil && !late(out) {
				broken = append(broken, p.dir+" "+target)
				fmt.Printf("BROKEN  %s %s: %v\n%s\n", p.dir, target, err, out)
				continue
			}
			fmt.Printf("ok      %s %s  %s  %s\n", p.dir, target, time.Since(begun).Round(time.Second), last(out))
		}
	}
	if n == 0 {
		return fmt.Errorf("no fuzz target matches %q", only)
	}
	fmt.Printf("Fuzz: %d targets, %d broken\n", n, len(broken))
	if len(broken) > 0 {
		return fmt.Errorf("broken: %s; the inputs are in testdata/fuzz of each folder", strings.Join(broken, ", "))
	}
	return nil
}

// A tested package has fuzz targets.
type tested struct {
	dir     string
	targets []string
}

// targets finds the fuzz targets of the module below a folder.
func targets(root string, picks *regexp.Regexp) ([]tested, error) {
	declared := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\) \{`)
	in := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || ownModule(name)):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		dir := filepath.Dir(name)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			if target := string(m[1]); picks.MatchString(dir + " " + target) {
				in[dir] = append(in[dir], target)
			}
		}
		return nil
	})
	out := make([]tested, 0, len(in))
	for dir, names := range in {
		slices.Sort(names)
		out = append(out, tested{dir, names})
	}
	slices.SortFunc(out, func(a, b tested) int { return strings.Compare(a.dir, b.dir) })
	return out, err
}

func ownModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// build makes the test program of a package, which reports to the fuzzing
// engine what each input reaches.
func build(ctx context.Context, dir, program string) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-fuzz", ".", "-o", program, "./"+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the tests of %s: %w", dir, err)
	}
	return nil
}

// fuzz looks for an input that breaks one target, and returns what was printed.
func fuzz(ctx context.Context, dir, program, target, inputs string, each time.Duration) (string, error) {
	cmd := exec.CommandContext(ctx, program, "-test.run", "^$", "-test.fuzz", "^"+target+"$", "-test.fuzztime", each.String(),
		"-test.fuzzcachedir", inputs, "-test.parallel", fmt.Sprint(runtime.NumCPU()))
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// late reports whether a run failed for nothing but the end of its time: the
// engine takes its own deadline for a failure now and then, if it comes while an
// input is being tried. An input that breaks a target is always written down.
func late(out string) bool {
	return strings.Contains(out, "context deadline exceeded") && !strings.Contains(out, "Failing input written to") && !strings.Contains(out, "panic:")
}

// last returns the counts of the engine's last line about its progress.
func last(out string) string {
	lines := strings.Split(out, "\n")
	for _, line := range slices.Backward(lines) {
		if _, counts, ok := strings.Cut(line, ", execs: "); ok {
			return "executions: " + counts
		}
	}
	return ""
}
