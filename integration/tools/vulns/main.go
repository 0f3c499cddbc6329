// Command vulns fails if the programs call code with a known vulnerability, or
// if the console ships a package with a serious one. "make lint" runs it.
//
// The database of Go's vulnerabilities is made of the module golang.org/x/vulndb
// at the version of go.mod, so that equal sources get equal answers, and no
// other host than the module proxy is asked. exceptions.txt lists what is known
// and does not concern Capstan.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// programs are what users run.
var programs = []string{"./hub/cmd/...", "./agent/cmd/...", "./cli/cmd/..."}

func main() {
	root := flag.String("root", ".", "the checkout to read")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := check(ctx, os.Stdout, *root); err != nil {
		fmt.Fprintln(os.Stderr, "vulns:", err)
		os.Exit(1)
	}
}

// check writes what it found to out. An error means that something must be
// mended or excepted, or that a step failed.
func check(ctx context.Context, out io.Writer, root string) error {
	text, err := os.ReadFile("exceptions.txt")
	if err != nil {
		return err
	}
	exceptions, err := readExceptions(string(text))
	if err != nil {
		return fmt.Errorf("read exceptions.txt: %w", err)
	}
	wanted, err := toolchain(ctx, root)
	if err != nil {
		return err
	}
	called, version, err := scan(ctx, root)
	if err != nil {
		return err
	}
	shipped, notice, err := audit(ctx, filepath.Join(root, "web"))
	if err != nil {
		return err
	}
	r := assess(called, shipped, exceptions, builds{version, wanted}, notice == "")
	for _, line := range r.notices {
		fmt.Fprintln(out, "vulns:", line)
	}
	if notice != "" {
		fmt.Fprintln(out, "vulns:", notice)
	}
	if len(r.failures) > 0 {
		return fmt.Errorf("this must be mended:\n%s", strings.Join(r.failures, "\n"))
	}
	return nil
}

// toolchain is the Go that go.mod asks for.
func toolchain(ctx context.Context, root string) (string, error) {
	text, err := output(ctx, root, "go", "mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var mod struct{ Go, Toolchain string }
	if err := json.Unmarshal(text, &mod); err != nil {
		return "", fmt.Errorf("read the Go version of go.mod: %w", err)
	}
	if mod.Toolchain != "" {
		return mod.Toolchain, nil
	}
	return "go" + mod.Go, nil
}

// scan returns the vulnerabilities whose code the programs call, and the
// version of Go that they were looked for with.
func scan(ctx context.Context, root string) ([]vulnerability, string, error) {
	db, err := database(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("make the database of vulnerabilities: %w", err)
	}
	arguments := append([]string{"tool", "govulncheck", "-C", root, "-db", "file://" + db, "-format", "json"}, programs...)
	text, err := output(ctx, ".", "go", arguments...)
	if err != nil {
		return nil, "", err
	}
	return readFindings(bytes.NewReader(text))
}

// database returns the folder of the database, in the user's cache, and makes it
// unless it is there. Two processes may do so at once.
func database(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder (set XDG_CACHE_HOME or HOME): %w", err)
	}
	text, err := output(ctx, ".", "go", "mod", "download", "-json", "golang.org/x/vulndb")
	if err != nil {
		return "", err
	}
	var source struct{ Version, Dir string }
	if err := json.Unmarshal(text, &source); err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "capstan", "vulns", source.Version)
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(filepath.Dir(folder), "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	if _, err := output(ctx, ".", "go", "tool", "indexdb", "-vulns", filepath.Join(source.Dir, "data", "osv"), "-out", temporary); err != nil {
		return "", err
	}
	if err := os.Rename(temporary, folder); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", err
	}
	return folder, nil
}

// audit returns the serious vulnerabilities of the packages that the console
// ships. A notice says why they are not known.
func audit(ctx context.Context, web string) (shipped []vulnerability, notice string, err error) {
	cmd := exec.CommandContext(ctx, "npm", "audit", "--json", "--omit=dev")
	cmd.Dir = web
	text, err := cmd.Output() // it fails where it finds something, too
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	if len(text) == 0 && err != nil {
		return nil, "", fmt.Errorf("npm audit: %w", err)
	}
	return readAudit(text)
}

// output runs a program in a folder. Its complaints become part of the error.
func output(ctx context.Context, dir, name string, arguments ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, arguments...)
	cmd.Dir = dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(arguments, " "), err, strings.TrimSpace(complaints.String()))
	}
	return text, nil
}
