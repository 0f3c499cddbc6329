package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// GIT compares the hub's own Git source with the git program, each in a
// process of its own, over smart HTTP and SSH, on two large repositories. It
// needs no installation and runs only when it is named. What it found is in
// docs/decisions/0013-git-library.md.

// A gitRepository is what is measured on.
type gitRepository struct {
	name    string
	what    string
	stream  func(w *bufio.Writer)
	changed string // a file that the measured pushes change
}

func gitRepositories() []gitRepository {
	return []gitRepository{
		{"files", "100,000 files, 5,000 applications", streamFiles, "apps/app-2500/deployment-3.yaml"},
		{"history", "20,000 commits, 2,000 branches", streamHistory, "apps/app-7/values.yaml"},
	}
}

const (
	manyApps     = 5000
	filesPerApp  = 20
	manyCommits  = 20_000
	manyBranches = 2000
)

func gitCommit(w *bufio.Writer, ref string, mark, from int, message string) {
	fmt.Fprintf(w, "commit %s\nmark :%d\ncommitter Bench <bench@example.test> %d +0000\ndata %d\n%s\n", ref, mark, 1_700_000_000+mark*60, len(message), message)
	if from > 0 {
		fmt.Fprintf(w, "from :%d\n", from)
	}
}

func gitFile(w *bufio.Writer, name, text string) {
	fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", name, len(text), text)
}

// manifestText is a Deployment of usual size.
func manifestText(app, file, revision int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-%[1]d-%[2]d
  labels: {app.kubernetes.io/name: app-%[1]d, app.kubernetes.io/component: part-%[2]d}
spec:
  replicas: %[4]d
  selector: {matchLabels: {app.kubernetes.io/name: app-%[1]d, app.kubernetes.io/component: part-%[2]d}}
  template:
    metadata:
      labels: {app.kubernetes.io/name: app-%[1]d, app.kubernetes.io/component: part-%[2]d}
    spec:
      containers:
      - name: main
        image: registry.example.test/team-%[5]d/app-%[1]d:1.%[3]d.%[2]d
        ports: [{containerPort: %[6]d}]
        env: [{name: APP, value: "%[1]d"}, {name: PART, value: "%[2]d"}, {name: KEY, value: "%[7]x"}]
        resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 256Mi}}
`, app, file, revision, 1+(app+file)%5, app%97, 8000+file, app*2654435761+file*40503+revision)
}

func streamFiles(w *bufio.Writer) {
	gitCommit(w, "refs/heads/main", 1, 0, "everything")
	for app := range manyApps {
		for f := range filesPerApp {
			gitFile(w, fmt.Sprintf("apps/app-%d/deployment-%d.yaml", app, f), manifestText(app, f, 0))
		}
	}
	for i := range 50 {
		gitCommit(w, "refs/heads/main", i+2, 0, "a change")
		gitFile(w, fmt.Sprintf("apps/app-%d/deployment-1.yaml", i*83), manifestText(i*83, 1, i+1))
	}
}

func streamHistory(w *bufio.Writer) {
	for i := 1; i <= manyCommits; i++ {
		gitCommit(w, "refs/heads/main", i, 0, fmt.Sprintf("change %d", i))
		gitFile(w, fmt.Sprintf("apps/app-%d/values.yaml", i%400), manifestText(i%400, 0, i))
	}
	mark := manyCommits
	for b := range manyBranches {
		mark++
		gitCommit(w, fmt.Sprintf("refs/heads/feature/work-%04d", b), mark, 1+b*(manyCommits/manyBranches), "work in progress")
		gitFile(w, fmt.Sprintf("work/%d.yaml", b), manifestText(b, 1, b))
	}
}

// A gitBench is one run of the comparison.
type gitBench struct {
	*bench
	dir  string // of this run
	self string // this program
	git  *gitserver.Server
	ssh  *gitserver.SSH
	key  string
	hops map[string]*hop // by scheme
}

func (b *bench) compareGit(ctx context.Context) (err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	g := &gitBench{bench: b, hops: map[string]*hop{}}
	if g.self, err = os.Executable(); err != nil {
		return err
	}
	if g.dir, err = os.MkdirTemp("", "capstan-gitbench-"); err != nil {
		return err
	}
	defer os.RemoveAll(g.dir)
	for _, r := range gitRepositories() {
		origin, err := makeRepository(ctx, filepath.Join(cache, "capstan", "bench-git"), r)
		if err != nil {
			return fmt.Errorf("make %s: %w", r.what, err)
		}
		copied := filepath.Join(g.dir, "served", "repositories", r.name+".git")
		if _, err := runGit(ctx, "", "clone", "--quiet", "--bare", "--local", origin, copied); err != nil {
			return err
		}
	}
	if g.git, err = gitserver.Start(ctx, gitserver.Options{Dir: filepath.Join(g.dir, "served")}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.git.Stop()) }()
	for _, r := range gitRepositories() {
		if _, err := g.git.Create(ctx, r.name, gitserver.RepositoryOptions{}); err != nil {
			return err
		}
	}
	if g.ssh, err = gitserver.StartSSH(ctx, gitserver.SSHOptions{Repositories: g.git.Repositories()}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.ssh.Stop()) }()
	if g.key, err = g.ssh.NewKey("ed25519"); err != nil {
		return err
	}
	for scheme, to := range map[string]string{"http": strings.TrimPrefix(g.git.URL(), "http://"), "ssh": g.ssh.Address()} {
		h, err := newHop(to)
		if err != nil {
			return err
		}
		defer h.listener.Close()
		g.hops[scheme] = h
	}
	for _, r := range gitRepositories() {
		for _, scheme := range []string{"http", "ssh"} {
			if err := g.pair(ctx, r, scheme); err != nil {
				return fmt.Errorf("%s over %s: %w", r.name, scheme, err)
			}
		}
	}
	return nil
}

// makeRepository makes a repository as a server has it, once.
func makeRepository(ctx context.Context, cache string, r gitRepository) (string, error) {
	final := filepath.Join(cache, r.name+"-v1.git")
	if _, err := os.Stat(filepath.Join(final, "HEAD")); err == nil {
		return final, nil
	}
	fmt.Fprintf(os.Stderr, "making the repository of %s once, in %s\n", r.what, final)
	work := final + ".tmp"
	if err := errors.Join(os.RemoveAll(work), os.MkdirAll(cache, 0o755)); err != nil {
		return "", err
	}
	if _, err := runGit(ctx, "", "init", "--quiet", "--bare", "--initial-branch=main", work); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "git", "-C", work, "fast-import", "--quiet")
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	w := bufio.NewWriterSize(in, 1<<20)
	r.stream(w)
	if err := errors.Join(w.Flush(), in.Close(), cmd.Wait()); err != nil {
		return "", err
	}
	for _, args := range [][]string{{"repack", "-a", "-d", "-q", "--window=10"}, {"pack-refs", "--all"}} {
		if _, err := runGit(ctx, work, args...); err != nil {
			return "", err
		}
	}
	return final, os.Rename(work, final)
}

func runGit(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=Bench", "GIT_AUTHOR_EMAIL=bench@example.test",
		"GIT_COMMITTER_NAME=Bench", "GIT_COMMITTER_EMAIL=bench@example.test")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %v: %w: %s", args, err, complaints.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// A hop passes connections on and counts what the server sends.
type hop struct {
	listener net.Listener
	to       string
	sent     atomic.Int64
}

func newHop(to string) (*hop, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &hop{listener: l, to: to}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go h.pass(c)
		}
	}()
	return h, nil
}

func (h *hop) pass(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", h.to)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		_, _ = io.Copy(s, c)
		_ = s.(*net.TCPConn).CloseWrite()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		h.sent.Add(int64(n))
		if n > 0 {
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// A cost is what one step of one way took.
type cost struct {
	Wall, CPU time.Duration
	Peak      int64 // bytes of memory, the largest process
	sent      int64 // bytes from the server
}

func (c cost) String() string {
	return fmt.Sprintf("%6.2f s  CPU %6.2f s  %4d MiB", c.Wall.Seconds(), c.CPU.Seconds(), c.Peak>>20)
}

// pair measures both ways on one repository over one scheme.
func (g *gitBench) pair(ctx context.Context, r gitRepository, scheme string) error {
	bare := filepath.Join(g.git.Repositories(), r.name+".git")
	ours := &hubWay{g: g, scheme: scheme, repo: r, dir: filepath.Join(g.dir, "hub-"+r.name+"-"+scheme)}
	theirs := &gitWay{g: g, scheme: scheme, repo: r, dir: filepath.Join(g.dir, "git-"+r.name+"-"+scheme)}
	if err := theirs.prepare(ctx); err != nil {
		return err
	}
	for _, step := range []string{"first", "unchanged", "push", "tree", "files"} {
		if scheme == "ssh" && (step == "tree" || step == "files") {
			continue // no network in it
		}
		for _, w := range []interface {
			name() string
			step(ctx context.Context, step string) (cost, error)
		}{ours, theirs} {
			if step == "push" {
				if err := pushOne(ctx, bare, r.changed); err != nil {
					return err
				}
			}
			before := g.hops[scheme].sent.Load()
			c, err := w.step(ctx, step)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", w.name(), step, err)
			}
			c.sent = g.hops[scheme].sent.Load() - before
			g.add("GIT", fmt.Sprintf("%-8s %-5s %-10s %s", r.name, scheme, step, w.name()), c.String(), fmt.Sprintf("%d bytes", c.sent))
		}
	}
	return nil
}

// pushOne puts one commit with one changed file upon main.
func pushOne(ctx context.Context, bare, file string) error {
	cmd := exec.CommandContext(ctx, "git", "-C", bare, "fast-import", "--quiet")
	text := manifestText(1, 1, int(time.Now().UnixNano()))
	cmd.Stdin = strings.NewReader(fmt.Sprintf("commit refs/heads/main\ncommitter Bench <bench@example.test> %d +0000\ndata 4\npush\nfrom refs/heads/main^0\nM 100644 inline %s\ndata %d\n%s\n",
		time.Now().Unix(), file, len(text), text))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("push: %w: %s", err, out)
	}
	return nil
}

// address is where a way finds the repository: behind the hop that counts.
func (g *gitBench) address(scheme, name string) string {
	at := g.hops[scheme].listener.Addr().String()
	if scheme == "http" {
		return "http://" + at + "/" + name + ".git"
	}
	return strings.Replace(g.ssh.URL(name+".git"), g.ssh.Address(), at, 1)
}

func (g *gitBench) knownHosts() (string, error) {
	lines, err := g.ssh.KnownHosts()
	_, from, _ := net.SplitHostPort(g.ssh.Address())
	_, to, _ := net.SplitHostPort(g.hops["ssh"].listener.Addr().String())
	return strings.ReplaceAll(lines, "]:"+from, "]:"+to), err
}

// spent is what a process that has ended took, with those that it waited for.
func spent(cmd *exec.Cmd, begin time.Time) cost {
	c := cost{Wall: time.Since(begin), CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		c.Peak = u.Maxrss << 10
	}
	return c
}

// A hubWay is the hub's own source, in a child process.
type hubWay struct {
	g      *gitBench
	scheme string
	repo   gitRepository
	dir    string
}

func (*hubWay) name() string { return "hub" }

func (w *hubWay) step(ctx context.Context, step string) (cost, error) {
	lines, err := w.g.knownHosts()
	if err != nil {
		return cost{}, err
	}
	order, err := json.Marshal(gitOrder{Step: step, URL: w.g.address(w.scheme, w.repo.name), Dir: w.dir, Key: w.g.key, KnownHosts: lines})
	if err != nil {
		return cost{}, err
	}
	cmd := exec.CommandContext(ctx, w.g.self, gitChild)
	cmd.Stdin = bytes.NewReader(order)
	var complaints, out bytes.Buffer
	cmd.Stderr, cmd.Stdout = &complaints, &out
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%w: %s", err, complaints.String())
	}
	total := spent(cmd, begin)
	var inner cost
	if err := json.Unmarshal(out.Bytes(), &inner); err != nil {
		return cost{}, err
	}
	inner.Peak = total.Peak
	return inner, nil
}

// A gitWay is the git program.
type gitWay struct {
	g      *gitBench
	scheme string
	repo   gitRepository
	dir    string
}

func (*gitWay) name() string { return "git" }

func (w *gitWay) prepare(ctx context.Context) error {
	_, err := runGit(ctx, "", "init", "--quiet", "--bare", w.dir)
	return err
}

func (w *gitWay) step(ctx context.Context, step string) (cost, error) {
	url := w.g.address(w.scheme, w.repo.name)
	var args []string
	var stdin strings.Builder
	switch step {
	case "first", "push":
		args = []string{"fetch", "--quiet", "--prune", "--no-write-fetch-head", url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"}
	case "unchanged":
		args = []string{"ls-remote", "--quiet", url}
	case "tree":
		args = []string{"ls-tree", "-r", "-z", "main"}
	case "files":
		args = []string{"cat-file", "--batch"}
		for _, name := range someFiles(w.repo.name) {
			fmt.Fprintf(&stdin, "main:%s\n", name)
		}
	}
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stdin = w.dir, strings.NewReader(stdin.String())
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0")
	if w.scheme == "ssh" {
		lines, err := w.g.knownHosts()
		if err != nil {
			return cost{}, err
		}
		key, hosts := filepath.Join(w.g.dir, "id"), filepath.Join(w.g.dir, "known_hosts")
		if err := errors.Join(os.WriteFile(key, []byte(w.g.key), 0o600), os.WriteFile(hosts, []byte(lines), 0o600)); err != nil {
			return cost{}, err
		}
		cmd.Env = append(cmd.Env, "GIT_SSH_COMMAND=ssh -F none -i "+key+" -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile="+hosts)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("git %v: %w: %s", args, err, complaints.String())
	}
	return spent(cmd, begin), nil
}

// someFiles are those of one application.
func someFiles(repo string) (names []string) {
	for f := range filesPerApp {
		if repo == "files" {
			names = append(names, fmt.Sprintf("apps/app-4321/deployment-%d.yaml", f))
			continue
		}
		names = append(names, fmt.Sprintf("apps/app-%d/values.yaml", f*17))
	}
	return names
}
