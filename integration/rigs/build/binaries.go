// Package build builds, once, the programs that the tests, the demo and the
// generated code need, and stores them outside of the source tree. It imports
// the standard library only, so that a build starts at once.
package build

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	module = "github.com/capstan-cd/capstan"
	// progressEvery is how often a running build says how far it is.
	progressEvery = 10 * time.Second
)

// A recipe says how one binary is made.
type recipe struct {
	name string
	dir  string // its module
	pkg  string
}

// CacheDir is where Capstan stores what is expensive to build and safe to
// delete: $XDG_CACHE_HOME/capstan, or ~/.cache/capstan.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder (set XDG_CACHE_HOME or HOME): %w", err)
	}
	return filepath.Join(dir, "capstan"), nil
}

// ControlPlane returns the program that is a whole local Kubernetes, and
// builds it unless it is in the cache: some minutes the first time, which it
// reports to progress line by line. Two processes may call it at once; one
// builds, the other waits.
func ControlPlane(ctx context.Context, progress io.Writer) (string, error) {
	r, cache, err := controlPlane()
	if err != nil {
		return "", err
	}
	return build(ctx, cache, r, progress)
}

// ControlPlanePath is where ControlPlane puts its program, and whether it is
// there already.
func ControlPlanePath() (path string, there bool, err error) {
	r, cache, err := controlPlane()
	if err != nil {
		return "", false, err
	}
	path, err = r.path(cache)
	return path, err == nil && Executable(path), err
}

func controlPlane() (r recipe, cache string, err error) {
	root, cache, err := places("localcluster")
	return recipe{name: "controlplane", dir: filepath.Join(root, "integration", "rigs", "localcluster"), pkg: "./cmd/controlplane"}, cache, err
}

// Registry returns the program of an OCI registry, and builds it unless it is in
// the cache.
func Registry(ctx context.Context, progress io.Writer) (string, error) {
	root, cache, err := places("registry")
	if err != nil {
		return "", err
	}
	return build(ctx, cache, recipe{name: "registry", dir: filepath.Join(root, "integration", "rigs", "registry", "program"), pkg: "."}, progress)
}

// generators write the code that is generated, at the versions that
// integration/tools/lint/go.mod names.
var generators = map[string]string{
	"buf":                "github.com/bufbuild/buf/cmd/buf",
	"oapi-codegen":       "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen",
	"protoc-gen-go":      "google.golang.org/protobuf/cmd/protoc-gen-go",
	"protoc-gen-go-grpc": "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
}

// Tools returns a folder with the code generators under their usual
// names, and builds those that are not in the cache.
func Tools(ctx context.Context, progress io.Writer) (string, error) {
	root, cache, err := places("tools")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "integration", "tools", "lint")
	key, err := sourceHash(dir)
	if err != nil {
		return "", fmt.Errorf("read the versions of the tools: %w", err)
	}
	folder := filepath.Join(cache, key)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(generators)) {
		made, err := build(ctx, cache, recipe{name: name, dir: dir, pkg: generators[name]}, progress)
		if err != nil {
			return "", err
		}
		if err := link(made, filepath.Join(folder, name)); err != nil {
			return "", fmt.Errorf("name the tool %s: %w", name, err)
		}
	}
	return folder, nil
}

// Linter returns the path of golangci-lint, and builds it unless the cache
// has it. Its version is that of integration/tools/lint/golangci/go.mod; it has a
// module of its own because it shares few versions with the code generators.
func Linter(ctx context.Context, progress io.Writer) (string, error) {
	root, cache, err := places("tools")
	if err != nil {
		return "", err
	}
	return build(ctx, cache, recipe{
		name: "golangci-lint", dir: filepath.Join(root, "integration", "tools", "lint", "golangci"),
		pkg: "github.com/golangci/golangci-lint/v2/cmd/golangci-lint",
	}, progress)
}

// Renderers returns the paths of the command lines helm and kustomize at the
// versions whose libraries the hub renders with, and builds those that are not
// in the cache. Their versions are those of integration/tools/renderers/go.mod.
func Renderers(ctx context.Context, progress io.Writer) (helm, kustomize string, err error) {
	root, cache, err := places("tools")
	if err != nil {
		return "", "", err
	}
	dir := filepath.Join(root, "integration", "tools", "renderers")
	if helm, err = build(ctx, cache, recipe{name: "helm", dir: dir, pkg: "helm.sh/helm/v3/cmd/helm"}, progress); err != nil {
		return "", "", err
	}
	kustomize, err = build(ctx, cache, recipe{name: "kustomize", dir: dir, pkg: "sigs.k8s.io/kustomize/kustomize/v5"}, progress)
	return helm, kustomize, err
}

// link makes path stand for target, whoever else does so at the same time.
func link(target, path string) error {
	if at, err := os.Readlink(path); err == nil && at == target {
		return nil
	}
	temporary := path + "." + rand.Text()
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// places are the source tree and a folder of the cache.
func places(kind string) (root, cache string, err error) {
	if root, err = SourceRoot(); err != nil {
		return "", "", err
	}
	base, err := CacheDir()
	if err != nil {
		return "", "", err
	}
	cache = filepath.Join(base, kind)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", "", fmt.Errorf("make the cache folder: %w", err)
	}
	return root, cache, nil
}

// SourceRoot is the top of the source tree in which this process runs.
func SourceRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the source tree: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module "+module+"\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%q is not inside a checkout of %s: start this from the source tree", start, module)
		}
	}
}

// path is where the binary of these sources is kept.
func (r recipe) path(cache string) (string, error) {
	key, err := sourceHash(r.dir)
	if err != nil {
		return "", fmt.Errorf("read the sources of %s: %w", r.name, err)
	}
	return filepath.Join(cache, r.name+"-"+key), nil
}

// build makes one binary unless the cache has it.
func build(ctx context.Context, cache string, r recipe, progress io.Writer) (string, error) {
	path, err := r.path(cache)
	if err != nil {
		return "", err
	}
	if Executable(path) {
		return path, nil
	}
	unlock, err := waitForLock(ctx, path+".lock", func() {
		fmt.Fprintf(progress, "%s: another process is building it, waiting\n", r.name)
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	if Executable(path) { // made while we waited
		return path, nil
	}
	if err := compile(ctx, path, r, progress); err != nil {
		return "", fmt.Errorf("build %s: %w", r.name, err)
	}
	return path, nil
}

// compile runs the Go tool and moves the finished binary into its place.
func compile(ctx context.Context, path string, r recipe, progress io.Writer) error {
	if _, err := exec.LookPath("go"); err != nil {
		return errors.New("the Go tool is not in the PATH: install the version that go.mod names from https://go.dev/dl")
	}
	begun := time.Now()
	fmt.Fprintf(progress, "%s: building (once; some minutes when nothing is cached)\n", r.name)
	total, err := countPackages(ctx, r)
	if err != nil {
		return err
	}
	temporary := path + ".new"
	defer os.Remove(temporary)
	version, err := versionOf(r.dir)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags="+linkFlags(version), "-o", temporary, r.pkg)
	cmd.Dir = r.dir
	cmd.Env = environment()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	out := &counter{progress: progress, name: r.name, total: total, begun: begun, printed: begun}
	cmd.Stderr = out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, strings.Join(out.complaints, "\n"))
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	fmt.Fprintf(progress, "%s: built in %s\n", r.name, time.Since(begun).Round(time.Second))
	return nil
}

// environment makes the Go tool compile as "make build" does: what the product
// and a local cluster share is then compiled once and found in Go's cache.
func environment() []string { return append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0") }

// countPackages also downloads the sources, which is where a machine without
// a network says so.
func countPackages(ctx context.Context, r recipe) (int, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", r.pkg)
	cmd.Dir = r.dir
	cmd.Env = environment()
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("list its packages: %w\n%s", err, strings.TrimSpace(complaints.String()))
	}
	return bytes.Count(out, []byte("\n")), nil
}

// A counter turns the package names that the Go tool prints into progress,
// and keeps what else it says.
type counter struct {
	progress       io.Writer
	name           string
	total, done    int
	begun, printed time.Time
	rest           []byte
	complaints     []string
}

// Write takes any part of the tool's output.
func (c *counter) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	for {
		line, rest, ok := bytes.Cut(c.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		c.rest = rest
		c.line(string(line))
	}
}

func (c *counter) line(text string) {
	if strings.ContainsAny(text, " \t:") { // not the name of a package
		if len(c.complaints) < 40 {
			c.complaints = append(c.complaints, text)
		}
		return
	}
	c.done++
	if now := time.Now(); now.Sub(c.printed) >= progressEvery {
		c.printed = now
		fmt.Fprintf(c.progress, "%s: %d of at most %d packages compiled after %s\n", c.name, c.done, c.total, now.Sub(c.begun).Round(time.Second))
	}
}

// sourceHash names a state of a module: its own sources, the exact versions
// of everything it needs, and the Go that compiles it.
func sourceHash(dir string) (string, error) {
	files, err := moduleFiles(dir)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	version, err := versionOf(dir)
	if err != nil {
		return "", err
	}
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, "trimpath static", linkFlags(version))
	for _, path := range files {
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return "", err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, rel, len(text))
		h.Write(text)
	}
	if version != "" {
		version += "-"
	}
	return version + hex.EncodeToString(h.Sum(nil))[:12], nil
}

// moduleFiles are the files of a module that decide what it builds, in order.
func moduleFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != dir {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir // another module
			}
		}
		name := d.Name()
		if name == "go.mod" || name == "go.sum" || strings.HasSuffix(name, ".go") {
			files = append(files, path)
		}
		return nil
	})
	slices.Sort(files)
	return files, err
}

// versionOf is the version of a module's main requirement, such as "v1.37.2",
// or nothing.
func versionOf(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == "k8s.io/kubernetes" {
			return fields[1], nil
		}
	}
	return "", nil
}

// linkFlags tell a Kubernetes its version, which charts ask for; without
// them it says v0.0.0-master.
func linkFlags(version string) string {
	const v = " -X k8s.io/component-base/version."
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 3 {
		return "-s -w"
	}
	return "-s -w" + v + "gitVersion=" + version + v + "gitMajor=" + parts[0] + v + "gitMinor=" + parts[1] + v + "gitTreeState=clean"
}

// waitForLock takes a lock between processes, and calls waiting once if it
// has to wait.
func waitForLock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	for first := true; ; first = false {
		f, err := TryLock(path)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		if first {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %q: %w", path, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// TryLock takes the lock of a file, or fails at once if someone holds it.
func TryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %q: %w", path, err)
	}
	return f, nil
}

// Executable reports whether there is a program at path.
func Executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
