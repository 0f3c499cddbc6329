package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/helm"
	"github.com/capstan-cd/capstan/hub/render/kustomize"
	"github.com/capstan-cd/capstan/hub/render/plain"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// nullRenderChild is the word with which this program starts itself as the null
// system of renders.
const nullRenderChild = "null-render"

// A nullOrder says what that process does: fetch a clone with git, read its
// files, and render folders with the hub's renderers, without a sandbox, a
// database, a cache or an agent.
type nullOrder struct {
	Dir, URL string
	Tool     string
	Folders  []string
	Compare  bool     // with the commit before, as git does
	Listings []string // repositories whose refs are asked for, and nothing else
}

// A nullRender is the clone that the null system works on.
type nullRender struct {
	self, dir string
}

func newNullRender(context.Context) (*nullRender, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "capstan-null-render-")
	return &nullRender{self, dir}, err
}

func (n *nullRender) close() { _ = os.RemoveAll(n.dir) }

// run returns the CPU seconds of one order, with those of the git that it
// starts.
func (n *nullRender) run(ctx context.Context, o nullOrder) (float64, error) {
	o.Dir = filepath.Join(n.dir, "clone.git")
	order, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, n.self, nullRenderChild)
	cmd.Stdin = bytes.NewReader(order)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("null system: %w: %s", err, out)
	}
	var took time.Duration
	if _, err := fmt.Sscan(string(out), &took); err != nil {
		return 0, fmt.Errorf("null system: %w: %s", err, out)
	}
	return took.Seconds(), nil
}

// render fetches and renders all applications of a kind, and returns the best
// of some runs.
func (n *nullRender) render(ctx context.Context, url string, k monoKind) (float64, error) {
	o := nullOrder{URL: url, Tool: k.tool}
	for i := range k.n {
		o.Folders = append(o.Folders, k.dir(i))
	}
	best := 0.0
	for round := range bestOf {
		took, err := n.run(ctx, o)
		if err != nil {
			return 0, err
		}
		if round == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// change commits one file, of an application or another one, and returns what
// fetching, comparing and rendering it costs.
func (n *nullRender) change(ctx context.Context, repo *gitserver.Repository, name string, k *monoKind) (float64, error) {
	value := fmt.Sprint("null ", time.Now().UnixNano())
	o, files := nullOrder{URL: repo.URL(), Compare: true}, map[string]string{name: value + "\n"}
	if k != nil {
		o.Tool, o.Folders, files = k.tool, []string{k.dir(k.n - 1)}, k.change(k.n-1, value)
	}
	if _, err := repo.Commit(ctx, value, files); err != nil {
		return 0, err
	}
	return n.run(ctx, o)
}

// runNullRender is the process.
func runNullRender(ctx context.Context, in io.Reader, out io.Writer) error {
	var o nullOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	begin := usage() + usageOfChildren()
	if err := o.work(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, int64(usage()+usageOfChildren()-begin))
	return err
}

func (o nullOrder) work(ctx context.Context) error {
	if len(o.Listings) > 0 {
		for _, url := range o.Listings {
			if err := listRefs(ctx, url); err != nil {
				return err
			}
		}
		return nil
	}
	if _, err := os.Stat(o.Dir); err != nil {
		if _, err := runGit(ctx, "", "clone", "--quiet", "--bare", o.URL, o.Dir); err != nil {
			return err
		}
	} else if _, err := runGit(ctx, o.Dir, "fetch", "--quiet", o.URL, "+refs/heads/main:refs/heads/main"); err != nil {
		return err
	}
	if o.Compare {
		if _, err := runGit(ctx, o.Dir, "diff", "--name-only", "main~1", "main"); err != nil {
			return err
		}
	}
	if len(o.Folders) == 0 {
		return nil
	}
	folders := o.Folders
	if o.Tool == "kust" {
		folders = append([]string{"base"}, folders...)
	}
	files, err := o.read(ctx, folders)
	if err != nil {
		return err
	}
	tree := rendertest.NewTree(files)
	for _, folder := range o.Folders {
		if err := o.render(ctx, tree, folder); err != nil {
			return fmt.Errorf("render %s: %w", folder, err)
		}
	}
	return nil
}

// read returns the files of folders.
func (o nullOrder) read(ctx context.Context, folders []string) (map[string]string, error) {
	archive, err := exec.CommandContext(ctx, "git", append([]string{"-C", o.Dir, "archive", "main"}, folders...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	files := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = string(body)
		}
	}
}

func (o nullOrder) render(ctx context.Context, tree *rendertest.Tree, folder string) error {
	req := rendertest.Request(hub.Source{Path: folder}, nil)
	req.Application, req.Trees = filepath.Base(folder), []hub.Tree{tree}
	job, _ := rendertest.Job(req, 0)
	do := plain.Render
	switch o.Tool {
	case "helm", "large":
		do = helm.Render
	case "kust":
		do = kustomize.Render
	}
	out, err := do(ctx, job)
	if err != nil {
		return err
	}
	_, _, err = render.Assemble(out.Objects, req.Namespace, render.DefaultLimits())
	return err
}

// listRefs is one exchange with a Git server, and what a poll needs at least.
func listRefs(ctx context.Context, url string) error {
	body := strings.NewReader("0014command=ls-refs\n0001" + "0009peel\n" + "001bref-prefix refs/heads/\n" + "0000")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/git-upload-pack", body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	req.Header.Set("Git-Protocol", "version=2")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && !bytes.Contains(text, []byte("refs/heads/main")) {
		err = fmt.Errorf("%s: %s has no main: %q", url, res.Status, text)
	}
	return err
}

func usageOfChildren() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
