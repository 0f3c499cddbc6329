package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/integration/rigs/machine"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/shared/fault"
)

// TestMain makes the test binary the first stage of a program when a runner
// starts it as one, and a probe when a plugin starts it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ProgramCommand {
		os.Exit(Main())
	}
	if len(os.Args) > 1 && os.Args[1] == "probe" {
		os.Exit(probe(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "plugin-hub" {
		os.Exit(runUntilKilled(os.Args[2]))
	}
	os.Exit(m.Run())
}

// plugins makes a runner of definitions and returns the directory in which it
// makes its exports.
func plugins(t *testing.T, change func(*Config), definitions ...string) (*Runner, string) {
	t.Helper()
	folder, temp := t.TempDir(), t.TempDir()
	for i, text := range definitions {
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(i)+".yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Folder: folder, Temp: temp}
	if change != nil {
		change(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ended, end := context.WithCancel(context.Background())
		end()
		if err := r.Loop(ended); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("CMP-05 a run left something behind: %v, %v", left, err)
		}
	})
	return r, temp
}

func call(name string, files map[string]string) render.PluginCall {
	return render.PluginCall{
		Tenant: "t1", Plugin: name, Action: render.PluginGenerate, Tree: rendertest.NewTree(files), Root: ".", Dir: ".", Output: 1 << 20,
	}
}

// shell runs a script as a plugin, with a version of Landlock.
func shell(t *testing.T, abi int, script string, files map[string]string) (string, error) {
	t.Helper()
	r, _ := plugins(t, nil, minimal("p", script))
	r.abi = abi
	reply, err := r.Run(t.Context(), call("p", files))
	return string(reply.Output), err
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	files := map[string]string{"app/a.txt": "a\n", "app/sub/b.txt": "b\n", "other/c.txt": "c\n", "link app/l": "../other/c.txt", "link app/out": "../../etc/hosts"}
	at := func(c render.PluginCall) render.PluginCall { c.Dir = "app"; return c }
	run := func(t *testing.T, script string, change func(string) string, with func(*render.PluginCall)) (string, error) {
		t.Helper()
		text := minimal("p", script)
		if change != nil {
			text = change(text)
		}
		r, _ := plugins(t, nil, text)
		c := at(call("p", files))
		if with != nil {
			with(&c)
		}
		reply, err := r.Run(t.Context(), c)
		return string(reply.Output), err
	}
	annotated := func(annotation string) func(string) string {
		return func(text string) string {
			return strings.Replace(text, "  name: p", "  name: p\n  annotations: {"+annotation+"}", 1)
		}
	}
	for name, c := range map[string]struct {
		script string
		change func(string) string
		with   func(*render.PluginCall)
		want   string
		says   string // of an error
	}{
		"CMP-05 it runs in the path of the source, in a copy of the tree": {script: "cat a.txt sub/b.txt ../other/c.txt l; pwd | grep -c /tree/app", want: "a\nb\nc\nc\n1\n"},
		"CMP-05 a link that leaves the tree is left out":                  {script: "ls", want: "a.txt\nl\nsub\n"},
		"CMP-05 the tree cannot be changed":                               {script: "echo x > a.txt", says: "Permission denied"},
		"CMP-05 nor can files be added":                                   {script: "echo x > new", says: "Permission denied"},
		"CMP-05 nor removed":                                              {script: "rm -f a.txt && echo removed", says: "Permission denied"},
		"CMP-05 where the operator permits it, the private copy can": {
			script: "echo x > a.txt; mkdir d; mv sub d; cat a.txt d/sub/b.txt", change: annotated(`capstan.dev/writable: "true"`), want: "x\nb\n",
		},
		"CMP-05 home and temporary files are private":   {script: `echo x > $HOME/h; mktemp > /dev/null; cat $HOME/h; ls $TMPDIR | wc -l`, want: "x\n1\n"},
		"CMP-02 init runs first":                        {script: `cat $HOME/init`, change: func(s string) string { return s + "  init: {command: [sh, -c, 'echo made > $HOME/init; echo none']}\n" }, want: "made\n"},
		"CMP-08 init that fails is an error":            {script: "echo x", change: func(s string) string { return s + "  init: {command: [sh, -c, 'echo why >&2; exit 3']}\n" }, says: "plugin p: its init command failed (exit status 3): why"},
		"CMP-08 a failure shows the standard error":     {script: "echo out; echo line 1 >&2; echo line 2 >&2; exit 7", says: "plugin p: its generate command failed (exit status 7): line 1\nline 2"},
		"CMP-08 a failure without a word":               {script: "exit 1", says: "it wrote nothing to its standard error"},
		"CMP-08 a signal":                               {script: "kill -9 $$", says: "signal: killed"},
		"CMP-08 a long standard error is cut":           {script: "i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; echo last >&2; exit 1", says: "last"},
		"CMP-08 control characters do not come through": {script: `printf 'a\033[31mb\r\342\200\256c' >&2; exit 1`, says: "a[31mbc"},
		"CMP-08 a program that is not there":            {script: "", change: func(s string) string { return strings.Replace(s, "[sh, -c]", "[no-such-program]", 1) }, says: `its generate command cannot be started: there is no program "no-such-program"`},
		"CMP-02 file modes are not kept by themselves":  {script: "./x.sh || echo no", with: func(c *render.PluginCall) { c.Tree = executable{c.Tree} }, want: "no\n"},
		"CMP-02 preserveFileMode keeps programs":        {script: "./x.sh", change: func(s string) string { return s + "  preserveFileMode: true\n" }, with: func(c *render.PluginCall) { c.Tree = executable{c.Tree} }, want: "ran\n"},
		"CMP-14 files that are excluded":                {script: "find .. -type f | sort", with: func(c *render.PluginCall) { c.Exclude = []string{"app/sub", "**/c.*"} }, want: "../app/a.txt\n"},
		"CMP-14 only a part of the tree":                {script: "ls; ls .. || true", with: func(c *render.PluginCall) { c.Root = "app" }, want: "a.txt\nsub\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := run(t, c.script, c.change, c.with)
			if c.says != "" {
				if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) || len(fault.Sentence(err)) > 2_200 {
					t.Errorf("output %q, error %v, want %q", out, err, c.says)
				}
				return
			}
			if err != nil || out != c.want {
				t.Errorf("output %q, error %v, want %q", out, err, c.want)
			}
		})
	}
}

// An executable tree has a program besides.
type executable struct{ hub.Tree }

func (e executable) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := e.Tree.ReadDir(name)
	if name == "app" {
		all = append(all, fs.FileInfoToDirEntry(script{}))
	}
	return all, err
}

func (e executable) ReadFile(name string) ([]byte, error) {
	if name == "app/x.sh" {
		return []byte("#!/bin/sh\necho ran\n"), nil
	}
	return e.Tree.ReadFile(name)
}

type script struct{}

func (script) Name() string       { return "x.sh" }
func (script) Size() int64        { return 20 }
func (script) Mode() fs.FileMode  { return 0o555 }
func (script) ModTime() time.Time { return time.Time{} }
func (script) IsDir() bool        { return false }
func (script) Sys() any           { return nil }

func TestMatch(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]bool{"echo found": true, "exit 0": false, "printf ' \\n'": false, "echo found; exit 1": false, "find . -name '*.cue'": true, "find . -name '*.tf'": false} {
		t.Run("CMP-07 find.command "+script, func(t *testing.T) {
			t.Parallel()
			r, _ := plugins(t, nil, minimal("p", "")+"  discover: {find: {command: [sh, -c, \""+strings.ReplaceAll(script, `\n`, `\\n`)+"\"]}}\n")
			c := call("p", map[string]string{"a.cue": "x"})
			c.Action = render.PluginMatch
			reply, err := r.Run(t.Context(), c)
			if err != nil || reply.Matches != want {
				t.Errorf("matches: %t, %v; want %t", reply.Matches, err, want)
			}
		})
	}
}

func TestAnnounce(t *testing.T) {
	t.Parallel()
	const static = "  parameters:\n    static: [{name: a, string: x}]\n"
	r, _ := plugins(t, nil, minimal("static", "")+static,
		minimal("dynamic", "")+static+"    dynamic: {command: [sh, -c, 'cat parameters.json']}\n",
		minimal("broken", "")+"  parameters: {dynamic: {command: [echo, none]}}\n",
		minimal("nameless", "")+"  parameters: {dynamic: {command: [echo, '[{}]']}}\n",
		minimal("failing", "")+"  parameters: {dynamic: {command: [sh, -c, 'echo why >&2; exit 1']}}\n")
	files := map[string]string{"parameters.json": `[{"name":"a","string":"other"},{"name":"b","title":"B","collectionType":"array","array":["1"]},{"name":"c","collectionType":"map","map":{"k":"v"},"required":true,"tooltip":"t"}]`}
	a := Parameter{Name: "a", String: "x", CollectionType: "string", ItemType: "string"}
	for name, want := range map[string][]Parameter{
		"static": {a},
		"dynamic": {
			a, {Name: "b", Title: "B", CollectionType: "array", ItemType: "string", Array: []string{"1"}},
			{Name: "c", CollectionType: "map", ItemType: "string", Map: map[string]string{"k": "v"}, Required: true, Tooltip: "t"},
		},
	} {
		t.Run("CMP-11 parameters of a plugin: "+name, func(t *testing.T) {
			got, err := announced(t, r, call(name, files))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	for name, says := range map[string]string{"broken": "makes no JSON list", "nameless": "has no name", "failing": "its parameters.dynamic command failed (exit status 1): why", "none": "there is no plugin"} {
		t.Run("CMP-11 refused: "+name, func(t *testing.T) {
			if _, err := announced(t, r, call(name, files)); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), says) {
				t.Errorf("error %v, want %q", err, says)
			}
		})
	}
}

func announced(t *testing.T, r *Runner, c render.PluginCall) (out []Parameter, err error) {
	t.Helper()
	c.Action = render.PluginAnnounce
	reply, err := r.Run(t.Context(), c)
	if err == nil {
		err = json.Unmarshal(reply.Output, &out)
	}
	return out, err
}

func TestTenantsOfAPlugin(t *testing.T) {
	t.Parallel()
	r, _ := plugins(t, nil, strings.Replace(minimal("mine", "echo x"), "  name: mine", "  name: mine\n  annotations: {capstan.dev/tenants: t1}", 1), minimal("all", "echo x"))
	for tenant, want := range map[hub.TenantID][]string{"t1": {"mine", "all"}, "t2": {"all"}} {
		var names []string
		for _, p := range r.Installed(tenant) {
			names = append(names, p.FullName())
		}
		if d := cmp.Diff(want, names); d != "" {
			t.Errorf("plugins of %s (-want +got):\n%s", tenant, d)
		}
	}
	c := call("mine", nil)
	c.Tenant = "t2"
	if _, err := r.Run(t.Context(), c); fault.KindOf(err) != fault.Invalid {
		t.Errorf("SEC-A4 another tenant runs it: %v", err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		limits Limits
		says   string
	}{
		"CMP-13 a program that does not end":                  {"sleep 600", Limits{Timeout: 300 * time.Millisecond, Grace: time.Second}, "took more than 300ms"},
		"CMP-13 SEC-A11 one that ignores SIGTERM":             {"trap '' TERM; while :; do sleep 1; done", Limits{Timeout: 300 * time.Millisecond, Grace: 200 * time.Millisecond}, "took more than 300ms"},
		"CMP-13 one that ends when it is told to":             {"trap 'exit 0' TERM; sleep 600 & wait", Limits{Timeout: 300 * time.Millisecond, Grace: time.Minute}, "took more than 300ms"},
		"SEC-A11 one that writes without end":                 {"yes", Limits{}, "more than 1048576 bytes of output"},
		"SEC-A11 one that complains without end":              {"yes >&2", Limits{Timeout: time.Second}, "took more than 1s"},
		"SEC-A11 a fork bomb":                                 {"f() { [ $1 -eq 0 ] || { f $(($1-1)) & f $(($1-1)) & }; sleep 60; }; f 8", Limits{Processes: 40}, "more than 40 processes"},
		"SEC-A11 many processes that sleep":                   {"i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done; wait", Limits{Processes: 40}, "more than 40 processes"},
		"SEC-A11 threads and processes that end do not count": {"i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done; sleep 60", Limits{Processes: 10, Timeout: 3 * time.Second}, "took more than 3s"},
		"SEC-A11 one that fills the disk with a file":         {"cat /dev/zero > $HOME/x", Limits{Disk: 8 << 20}, ""},
		"SEC-A11 one that fills the disk with many files":     {"i=0; while :; do echo > $HOME/$i; i=$((i+1)); done", Limits{Disk: 2 << 20}, "more than 2 MiB of files"},
		"SEC-A11 one that needs memory without end":           {"x=0123456789; while :; do x=$x$x; done", Limits{Memory: 64 << 20}, ""},
		"CMP-14 a tree that has too many bytes":               {"echo x", Limits{Export: 10}, "too many bytes"},
		"CMP-14 a tree that has too many files":               {"echo x", Limits{Files: 1}, "too many files"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := plugins(t, func(cfg *Config) { cfg.Limits = c.limits }, minimal("p", c.script))
			_, err := r.Run(t.Context(), call("p", map[string]string{"a": "twelve bytes", "b": "x"}))
			kind := fault.KindOf(err)
			if kind != fault.Exceeded && !(c.says == "" && kind == fault.Invalid) || !strings.Contains(fault.Sentence(err), c.says) || !strings.Contains(fault.Sentence(err), "p") {
				t.Errorf("kind %q, error %v, want %q", kind, err, c.says)
			}
		})
	}
}

// What a plugin leaves running ends with it: it cannot leave its group.
func TestNothingSurvives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		limits Limits
	}{
		"SEC-A11 a background process of a plugin that succeeds": {"(trap '' HUP TERM; sleep 5432.MARK) > /dev/null 2>&1 & echo ok", Limits{}},
		"SEC-A11 one in a session of its own":                    {"setsid sleep 5432.MARK > /dev/null 2>&1 & sleep 0.2; echo ok", Limits{}},
		"SEC-A11 one of a plugin that took too long":             {"sleep 5432.MARK & sleep 5432.MARK", Limits{Timeout: 200 * time.Millisecond, Grace: time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := fmt.Sprintf("%d%d", os.Getpid(), time.Now().UnixNano())
			r, _ := plugins(t, func(cfg *Config) { cfg.Limits = c.limits }, minimal("p", strings.ReplaceAll(c.script, "MARK", mark)))
			_, err := r.Run(t.Context(), call("p", nil))
			t.Log(err)
			if left := withArgument(t, mark); len(left) > 0 {
				t.Errorf("processes %v are still there", left)
			}
		})
	}
	t.Run("CMP-13 a run that nobody waits for is ended", func(t *testing.T) {
		t.Parallel()
		mark := fmt.Sprintf("%d%d", os.Getpid(), time.Now().UnixNano())
		r, _ := plugins(t, nil, minimal("p", "sleep 5432."+mark))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(200*time.Millisecond, cancel)
		_, err := r.Run(ctx, call("p", nil))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		if left := withArgument(t, mark); len(left) > 0 {
			t.Errorf("processes %v are still there", left)
		}
	})
}

// runUntilKilled is a hub that runs a plugin until something kills it.
func runUntilKilled(folder string) int {
	r, err := New(Config{Folder: folder})
	if err == nil {
		_, err = r.Run(context.Background(), call("p", nil))
	}
	fmt.Fprintln(os.Stderr, "the plugin has ended:", err)
	return 1
}

// A hub that is killed runs none of its own code. What it has started ends all
// the same, with what that has started.
func TestPluginsOfAKilledHub(t *testing.T) {
	t.Parallel()
	const script = `(trap '' HUP TERM; sleep 6432.MARK) & setsid sleep 6433.MARK & (sleep 6434.MARK &) ; sleep 6435.MARK`
	for name, kill := range map[string]func(hub int) error{
		"CMP-13 SEC-A11 FT-H1 kill -9 of the hub":               func(hub int) error { return unix.Kill(hub, unix.SIGKILL) },
		"CMP-13 SEC-A11 FT-H1 kill -9 of the hub and its group": func(hub int) error { return unix.Kill(-hub, unix.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := fmt.Sprintf("%d%d", os.Getpid(), time.Now().UnixNano())
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "p.yaml"), []byte(minimal("p", strings.ReplaceAll(script, "MARK", mark))), 0o600); err != nil {
				t.Fatal(err)
			}
			hub := exec.Command("/proc/self/exe", "plugin-hub", folder)
			hub.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			hub.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
			if err := hub.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = unix.Kill(-hub.Process.Pid, unix.SIGKILL) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			count := func(enough func(int) bool) {
				t.Helper()
				if err := poll.Until(ctx, func(context.Context) error {
					if left := withArgument(t, "."+mark); !enough(len(left)) {
						return fmt.Errorf("processes %v", left)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			count(func(n int) bool { return n >= 3 }) // setsid is refused
			if err := kill(hub.Process.Pid); err != nil {
				t.Fatal(err)
			}
			_ = hub.Wait() // it was killed
			count(func(n int) bool { return n == 0 })
		})
	}
	t.Run("CMP-13 the process that cleans up is started again if it was killed", func(t *testing.T) {
		t.Parallel()
		r, _ := plugins(t, nil, minimal("p", "echo ok"))
		for range 3 {
			if reply, err := r.Run(t.Context(), call("p", nil)); err != nil || string(reply.Output) != "ok\n" {
				t.Fatalf("output %q, %v", reply.Output, err)
			}
			if err := r.cleanup.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := r.cleanup.cmd.Process.Wait(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Argo CD finds a plugin by the socket that it listens on. Here the hub starts
// the program that its definition names, and nobody can be called.
func TestNoAddress(t *testing.T) {
	t.Parallel()
	r, temp := plugins(t, nil, minimal("p", "echo started; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"), minimal("q", "echo other"))
	listening := func() []string {
		text, err := os.ReadFile("/proc/net/unix")
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "cmp-server") || strings.Contains(line, temp) {
				out = append(out, line)
			}
		}
		return out
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.Run(t.Context(), call("p", nil))
		done <- err
	}()
	for running := true; running; {
		if got := listening(); len(got) > 0 {
			t.Fatalf("CMP-03 sockets of a plugin: %v", got)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
	}
	t.Run("CMP-03 a plugin is found by the name of its definition, and has no socket while it runs", func(t *testing.T) {
		for name, want := range map[string]string{"q": "other\n", "/home/argocd/cmp-server/plugins/q.sock": ""} {
			reply, err := r.Run(t.Context(), call(name, nil))
			if got := string(reply.Output); got != want || (err == nil) != (want != "") {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	})
	t.Run("CMP-03 no file of the hub is a socket", func(t *testing.T) {
		err := filepath.WalkDir(temp, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type()&os.ModeSocket != 0 {
				t.Errorf("%s is a socket", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// withArgument returns the processes that have a text among their arguments and
// are alive.
func withArgument(t *testing.T, text string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(name string) bool {
		line, err := os.ReadFile(name)
		return err != nil || !strings.Contains(string(line), text)
	})
}

// A target is what the probes of the sandbox aim at.
type target struct {
	secret  string // a file outside
	pid     int    // another process
	address uint64 // of its memory
}

// probes are what no plugin may do, as scripts that fail unless they can.
func probes(at target) map[string]string {
	proc := "/proc/" + strconv.Itoa(at.pid)
	return map[string]string{
		"SEC-A4 a file of another tenant":                 "cat " + at.secret,
		"SEC-A4 the directory of another":                 "ls " + filepath.Dir(at.secret),
		"SEC-A4 the exports of others":                    "ls ../..",
		"SEC-A1 through a link that it makes":             "ln -s " + at.secret + " $HOME/l; cat $HOME/l",
		"SEC-A1 through a link of the repository":         "cat l",
		"SEC-A1 through a hard link":                      "ln " + at.secret + " $HOME/l && cat $HOME/l",
		"SEC-A11 the environment of the hub":              "cat " + proc + "/environ",
		"SEC-A11 the arguments of the hub":                "cat " + proc + "/cmdline",
		"SEC-A11 the memory of the hub":                   fmt.Sprintf("dd if=%s/mem of=/dev/null bs=1 count=1 skip=%d", proc, at.address),
		"SEC-A11 open files of the hub":                   "ls " + proc + "/fd",
		"SEC-A11 the list of processes":                   "ls /proc",
		"SEC-A11 a file of the machine":                   "cat /etc/passwd",
		"SEC-A11 a file system":                           "mount -t tmpfs none $HOME",
		"SEC-A11 another root":                            "chroot / true",
		"SEC-A11 a user namespace":                        "unshare -U true",
		"SEC-A11 a signal to the hub":                     "kill -0 " + strconv.Itoa(at.pid),
		"SEC-A11 the priority of the hub":                 "renice 19 " + strconv.Itoa(at.pid),
		"SEC-A11 a file outside":                          "echo x > " + at.secret,
		"SEC-A11 removing a file outside":                 "rm -f " + at.secret + " && ! ls " + at.secret,
		"SEC-A11 a device":                                "mknod $HOME/d c 1 1",
		"SEC-A11 a program of the machine that is setuid": "test -u /bin/su && su -c id root < /dev/null",
	}
}

// memoryOf returns an address that a process has mapped.
func memoryOf(t *testing.T, pid int) uint64 {
	t.Helper()
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(maps), "-")
	address, err := strconv.ParseUint(first, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// secretFile makes a file that no plugin may read.
func secretFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "of-another-tenant")
	if err := os.WriteFile(name, []byte("hunter2"), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// A probe that could not work anywhere would show nothing: each one does work
// outside of the sandbox.
func TestProbesWorkOutsideOfTheSandbox(t *testing.T) {
	t.Parallel()
	for name := range probes(target{}) {
		t.Run("SEC-A11 without a sandbox: "+name, func(t *testing.T) {
			t.Parallel()
			other := exec.CommandContext(t.Context(), "sleep", "600")
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = other.Process.Kill()
				_ = other.Wait()
			}()
			at := target{secretFile(t), other.Process.Pid, memoryOf(t, other.Process.Pid)}
			home, dir := t.TempDir(), filepath.Join(t.TempDir(), "run", "tree")
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.Symlink(at.secret, filepath.Join(dir, "l"))); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", probes(at)[name]+" && { umount $HOME 2> /dev/null || true; }")
			cmd.Dir, cmd.Env = dir, []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
			if out, err := cmd.CombinedOutput(); err != nil {
				if os.Getuid() != 0 {
					machine.Lacks(t, "it needs root: %v: %s", err, out)
				}
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestSandbox(t *testing.T) {
	t.Setenv("CAPSTAN_TEST_SECRET", "hunter2")
	secret := secretFile(t)
	for name, script := range probes(target{secret, os.Getpid(), memoryOf(t, os.Getpid())}) {
		for _, abi := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, Landlock %d", name, abi), func(t *testing.T) {
				out, err := shell(t, abi, script, map[string]string{"link l": secret, "a": "x"})
				if err == nil || strings.Contains(out+err.Error(), "hunter2") {
					t.Errorf("output %q, error %v", out, err)
				}
			})
		}
	}
	t.Run("SEC-A11 the mode of a file outside stays", func(t *testing.T) {
		for _, abi := range []int{0, 1} {
			_, _ = shell(t, abi, "chmod 0 "+secret+"; touch -d 2001-01-01 "+secret+"; truncate -s 0 "+secret+"; exit 0", nil)
		}
		info, err := os.Stat(secret)
		if err != nil || info.Mode() != 0o644 || info.ModTime().Year() == 2001 || info.Size() == 0 {
			t.Errorf("%v, %v", info, err)
		}
	})
	t.Run("CMP-05 SEC-A11 the environment is what the hub gives, and no more", func(t *testing.T) {
		out, err := shell(t, 0, "env | sed 's/=.*//' | sort", nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff("GIT_TERMINAL_PROMPT HOME LANG PATH PWD TMPDIR", strings.Join(strings.Fields(out), " ")); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	if err := unix.Kill(os.Getpid(), 0); err != nil {
		t.Fatal(err)
	}
}

func TestSecretsOfAPlugin(t *testing.T) {
	t.Parallel()
	env := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(env, []byte("VAULT_TOKEN=hunter2-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	define := func(script string) string {
		return strings.Replace(minimal("p", script), "  name: p", "  name: p\n  annotations: {capstan.dev/env-file: "+env+"}", 1)
	}
	t.Run("CMP-15 the operator's variables reach the program", func(t *testing.T) {
		t.Parallel()
		r, _ := plugins(t, nil, define("echo $VAULT_TOKEN"))
		reply, err := r.Run(t.Context(), call("p", nil))
		if err != nil || string(reply.Output) != "hunter2-token\n" {
			t.Errorf("output %q, %v", reply.Output, err)
		}
	})
	t.Run("CMP-15 those in its output are named for masking, and no others", func(t *testing.T) {
		t.Parallel()
		for script, want := range map[string][]string{
			"echo token: $VAULT_TOKEN": {"hunter2-token"}, "printf x$VAULT_TOKEN | base64": {"hunter2-token"}, "echo nothing": nil,
		} {
			r, _ := plugins(t, nil, define(script))
			reply, err := r.Run(t.Context(), call("p", nil))
			if d := cmp.Diff(want, reply.Secrets); err != nil || d != "" {
				t.Errorf("%s: %v, %s", script, err, d)
			}
		}
	})
	t.Run("CMP-15 a variable that the operator calls public is none", func(t *testing.T) {
		t.Parallel()
		r, _ := plugins(t, nil, strings.Replace(define("echo $VAULT_TOKEN"), "env-file", "public-env: VAULT_TOKEN, capstan.dev/env-file", 1))
		reply, err := r.Run(t.Context(), call("p", nil))
		if err != nil || len(reply.Secrets) > 0 {
			t.Errorf("secrets %q, %v", reply.Secrets, err)
		}
	})
	t.Run("CMP-15 SEC-C8 no message contains them", func(t *testing.T) {
		t.Parallel()
		r, _ := plugins(t, nil, define("echo denied: $VAULT_TOKEN >&2; exit 1"))
		_, err := r.Run(t.Context(), call("p", nil))
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "denied: ********") {
			t.Errorf("error %v", err)
		}
	})
}

func TestGitCredentials(t *testing.T) {
	t.Parallel()
	const script = `[ -n "$GIT_ASKPASS" ] || { echo none; exit 0; }
for q in "Username for 'https://git.example.com': " "Password for 'https://me@git.example.com': " "Password for 'https://evil.example.com': " "Password for 'https://git.example.com.evil.com': "; do
  $GIT_ASKPASS "$q" || echo refused
done`
	for name, c := range map[string]struct {
		asks bool
		url  string
		cred hub.Credential
		want string
	}{
		"a plugin that does not ask gets none":    {false, "https://git.example.com/a.git", hub.Credential{Username: "me", Password: "hunter2"}, "none\n"},
		"user and password, for their host alone": {true, "https://git.example.com/a.git", hub.Credential{Username: "me", Password: "hunter2"}, "me\nhunter2\nrefused\nrefused\n"},
		"a token":                           {true, "https://git.example.com/a.git", hub.Credential{BearerToken: "hunter2"}, "x-access-token\nhunter2\nrefused\nrefused\n"},
		"a repository without a credential": {true, "https://git.example.com/a.git", hub.Credential{}, "none\n"},
		"a key of SSH is not handed out":    {true, "git@git.example.com:a.git", hub.Credential{SSHPrivateKey: "hunter2"}, "none\n"},
	} {
		t.Run("CMP-12 "+name, func(t *testing.T) {
			t.Parallel()
			text := minimal("p", script)
			if c.asks {
				text += "  provideGitCreds: true\n"
			}
			r, _ := plugins(t, nil, text)
			r.Grants(func(_ context.Context, _ hub.TenantID, _ render.PluginCall) (hub.Credential, string, error) {
				return c.cred, c.url, nil
			})
			reply, err := r.Run(t.Context(), call("p", nil))
			if err != nil || string(reply.Output) != c.want {
				t.Errorf("output %q, %v; want %q", reply.Output, err, c.want)
			}
		})
	}
	t.Run("CMP-12 SEC-C3 no message contains them", func(t *testing.T) {
		t.Parallel()
		r, _ := plugins(t, nil, minimal("p", "echo $CAPSTAN_GIT_PASSWORD >&2; exit 1")+"  provideGitCreds: true\n")
		r.Grants(func(_ context.Context, _ hub.TenantID, _ render.PluginCall) (hub.Credential, string, error) {
			return hub.Credential{Password: "hunter2"}, "https://git.example.com/a.git", nil
		})
		if _, err := r.Run(t.Context(), call("p", nil)); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v", err)
		}
	})
}

func TestNoSandboxNoPlugins(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "p.yaml"), []byte(minimal("p", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Folder: folder, Unsafe: true}); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "sandbox") {
		t.Errorf("SEC-A11 plugins run without a sandbox: %v", err)
	}
}
