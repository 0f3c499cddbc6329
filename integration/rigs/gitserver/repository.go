package gitserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A Repository is one of a Git server. Its methods may be called by several
// goroutines.
type Repository struct {
	Name string

	git     *Server
	options RepositoryOptions
	bare    string
	clone   string

	work    sync.Mutex // guards the clone
	pushing sync.Mutex // one push at a time, so that each knows what it changed

	mu         sync.Mutex // guards what follows
	fault      Fault
	requests   RequestCount
	webhook    Webhook
	deliveries []Delivery
}

// A Fault is what a repository does to every request but the tests' own.
type Fault struct {
	Delay  time.Duration // before anything else; zero: none
	Status int           // answered instead of serving, such as 401 or 503; zero: serve
}

// RequestCount is what a repository was asked for, without the tests' own
// pushes.
type RequestCount struct {
	Listings int // of refs
	Fetches  int // of objects
	Pushes   int
	Refused  int // wrong or missing credentials, or a Fault
}

// Configure sets what the server makes of the repository, such as
// uploadpack.allowRefInWant.
func (r *Repository) Configure(ctx context.Context, key, value string) error {
	_, err := r.git.command(ctx, "-C", r.bare, "config", key, value)
	return err
}

// A Change is one commit.
type Change struct {
	Message string
	Branch  string            // empty: Branch
	Write   map[string]string // file to content; executable if the content starts with #!
	Remove  []string          // files or folders
	Tag     string            // put on the commit and pushed with it
}

// URL is the address to clone, without credentials.
func (r *Repository) URL() string { return r.git.url + "/" + r.Name + ".git" }

// Commit writes files on the main branch and pushes them, and returns the
// commit.
func (r *Repository) Commit(ctx context.Context, message string, files map[string]string) (string, error) {
	return r.Push(ctx, Change{Message: message, Write: files})
}

// Push makes a commit in a clone and pushes it with git over HTTP, and
// returns the commit. A change of nothing makes an empty commit.
func (r *Repository) Push(ctx context.Context, c Change) (string, error) {
	r.work.Lock()
	defer r.work.Unlock()
	if c.Branch == "" {
		c.Branch = Branch
	}
	commit, err := r.push(ctx, c)
	if err != nil {
		return "", fmt.Errorf("push to repository %q: %w", r.Name, err)
	}
	return commit, nil
}

func (r *Repository) push(ctx context.Context, c Change) (string, error) {
	if err := r.checkout(ctx, c.Branch); err != nil {
		return "", err
	}
	if err := r.edit(c); err != nil {
		return "", err
	}
	refs := []string{"HEAD:refs/heads/" + c.Branch}
	steps := [][]string{{"add", "--all"}, {"commit", "--quiet", "--allow-empty", "--allow-empty-message", "--message=" + c.Message}}
	if c.Tag != "" {
		steps = append(steps, []string{"tag", "--force", c.Tag})
		refs = append(refs, "+refs/tags/"+c.Tag)
	}
	for _, args := range append(steps, append([]string{"push", "--quiet", "origin"}, refs...)) {
		if _, err := r.inClone(ctx, args...); err != nil {
			return "", err
		}
	}
	return r.inClone(ctx, "rev-parse", "HEAD")
}

// Run runs any git command in the clone, such as push --force or a merge. The
// remote is called origin.
func (r *Repository) Run(ctx context.Context, args ...string) (string, error) {
	r.work.Lock()
	defer r.work.Unlock()
	if err := r.open(ctx); err != nil {
		return "", fmt.Errorf("clone repository %q: %w", r.Name, err)
	}
	return r.inClone(ctx, args...)
}

// open makes the clone if it is not there.
func (r *Repository) open(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(r.clone, ".git")); err == nil {
		return nil
	}
	header := "http.extraHeader=" + bypassHeader + ": " + r.git.bypass
	_, err := r.git.command(ctx, "clone", "--quiet", "-c", header, r.URL(), r.clone)
	return err
}

// checkout moves the clone to the newest state of a branch, which it starts
// from the current one if it is new.
func (r *Repository) checkout(ctx context.Context, branch string) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	current, err := r.inClone(ctx, "symbolic-ref", "--short", "HEAD")
	if err == nil && current == branch {
		return nil
	}
	if _, err := r.inClone(ctx, "switch", "--quiet", branch); err == nil {
		return nil
	}
	_, err = r.inClone(ctx, "switch", "--quiet", "--create", branch)
	return err
}

// edit writes and removes files of the clone.
func (r *Repository) edit(c Change) error {
	root, err := os.OpenRoot(r.clone)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range c.Remove {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	for name, text := range c.Write {
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		if err := root.WriteFile(name, []byte(text), mode); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository) inClone(ctx context.Context, args ...string) (string, error) {
	return r.git.command(ctx, append([]string{"-C", r.clone}, args...)...)
}

// Break makes the repository answer everyone else with a fault from now on.
// The zero Fault ends it.
func (r *Repository) Break(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// Protect changes who may use the repository from now on.
func (r *Repository) Protect(o RepositoryOptions) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.options = o
}

// Requests is what was asked of the repository so far.
func (r *Repository) Requests() RequestCount {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}
