package worker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/scheduler"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// probe does, inside a worker, what a renderer must not be able to do. What
// succeeds comes back as an object, what fails as the render's error.
func probe(_ context.Context, name string, job render.Job) (string, render.Output, error) {
	arg := job.Source.Path
	switch name {
	case "grow":
		grow()
	case "spin":
		for i := 0; ; i++ {
			_ = i
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "deep":
		return "", render.Output{}, fmt.Errorf("%d", deep(1))
	case "panic":
		var m map[string]int
		m[arg] = 1 //nolint:staticcheck // on purpose
	case "panic-text":
		panic("the password is " + arg)
	case "exit":
		os.Exit(7)
	case "internal":
		return "", render.Output{}, errors.New("our own defect")
	case "outside":
		_, err := job.Files.Read(context.Background(), arg)
		return "", render.Output{}, err
	}
	gotText, err := attempt(name, arg)
	if err != nil {
		return "", render.Output{}, fault.New(fault.Invalid, "%s: %w", name, err)
	}
	o := &manifest.Object{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"said": gotText},
	}}
	return render.TypeDirectory, render.Output{Objects: []render.Rendered{{File: "probe", Object: o}}}, nil
}

func deep(n int) int {
	var pad [512]byte
	pad[n%512] = byte(n)
	return deep(n+1) + int(pad[(n+1)%512]) //nolint:staticcheck // on purpose
}

func grow() {
	var all [][]byte
	for {
		b := make([]byte, 1<<20)
		for i := range b {
			b[i] = byte(i)
		}
		all = append(all, b)
		if len(all) > 1<<20 {
			return
		}
	}
}

func attempt(name, arg string) (string, error) {
	raw := func(number uintptr, args ...uintptr) error {
		args = append(args, 0, 0, 0, 0, 0, 0)
		_, _, errno := syscall.RawSyscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
		if errno != 0 {
			return errno
		}
		return nil
	}
	switch name {
	case "env":
		return strings.Join(os.Environ(), " "), nil
	case "connect":
		_, err := net.DialTimeout("tcp", arg, time.Second)
		return "connected", err
	case "listen":
		_, err := net.Listen("tcp", "127.0.0.1:0")
		return "listening", err
	case "socket-unix":
		_, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return "socket", err
	case "socketpair":
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return "pair", err
	case "read":
		data, err := os.ReadFile(arg)
		return string(data[:min(len(data), 20)]), err
	case "list":
		all, err := os.ReadDir(arg)
		return fmt.Sprint(len(all)), err
	case "stat":
		_, err := os.Stat(arg)
		return "there", err
	case "write":
		return "written", os.WriteFile(arg, []byte("x"), 0o600)
	case "mkdir":
		return "made", os.Mkdir(arg, 0o700)
	case "remove":
		return "removed", os.Remove(arg)
	case "chmod":
		return "changed", os.Chmod(arg, 0o777)
	case "exec":
		out, err := exec.Command(arg).CombinedOutput()
		return string(out), err
	case "execve":
		return "executed", syscall.Exec(arg, []string{arg}, nil)
	case "fork":
		return "forked", raw(unix.SYS_CLONE, uintptr(unix.SIGCHLD))
	case "kill":
		return "killed", unix.Kill(os.Getppid(), unix.SIGTERM)
	case "signal-0":
		return "signalled", unix.Kill(os.Getppid(), 0)
	case "tgkill":
		return "signalled", unix.Tgkill(os.Getppid(), os.Getppid(), 0)
	case "ptrace":
		return "traced", unix.PtraceAttach(os.Getppid())
	case "mount":
		return "mounted", unix.Mount("none", "/tmp", "tmpfs", 0, "")
	case "unshare":
		return "unshared", unix.Unshare(unix.CLONE_NEWUSER)
	case "bpf":
		return "bpf", raw(unix.SYS_BPF)
	case "io-uring":
		return "ring", raw(unix.SYS_IO_URING_SETUP, 1)
	case "memfd":
		_, err := unix.MemfdCreate("x", 0)
		return "memfd", err
	case "pid":
		return fmt.Sprint(os.Getpid()), nil
	case "fd":
		var n int
		if _, err := fmt.Sscan(arg, &n); err != nil {
			return "", err
		}
		got, err := unix.Read(n, make([]byte, 10))
		return fmt.Sprint(got), err
	case "raise-limit":
		return "raised", unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	case "fcntl-setown":
		_, err := unix.FcntlInt(wireFile, unix.F_SETOWN, os.Getppid())
		return "owned", err
	case "fcntl-setown-ex":
		owner := struct{ kind, pid int32 }{1, int32(os.Getppid())}
		return "owned", raw(unix.SYS_FCNTL, wireFile, 15, uintptr(unsafe.Pointer(&owner))) // F_SETOWN_EX
	case "fcntl-setsig":
		_, err := unix.FcntlInt(wireFile, 10, int(unix.SIGURG)) // F_SETSIG
		return "set", err
	case "fcntl-async":
		_, err := unix.FcntlInt(wireFile, unix.F_SETFL, unix.O_NONBLOCK|unix.O_ASYNC)
		return "asynchronous", err
	case "fcntl-lease":
		_, err := unix.FcntlInt(wireFile, unix.F_SETLEASE, unix.F_RDLCK)
		return "leased", err
	case "fcntl-dup":
		_, err := unix.FcntlInt(wireFile, unix.F_DUPFD, 10)
		return "doubled", err
	case "fcntl-high": // the kernel reads only the low half of the command
		return "owned", raw(unix.SYS_FCNTL, wireFile, 1<<32|unix.F_SETOWN, uintptr(os.Getppid()))
	case "fcntl-ordinary":
		flags, err := unix.FcntlInt(wireFile, unix.F_GETFL, 0)
		if err == nil {
			_, err = unix.FcntlInt(wireFile, unix.F_SETFL, flags|unix.O_NONBLOCK)
		}
		if err == nil {
			flags, err = unix.FcntlInt(wireFile, unix.F_GETFD, 0)
		}
		if err == nil {
			_, err = unix.FcntlInt(wireFile, unix.F_SETFD, flags)
		}
		if err == nil {
			_, err = unix.FcntlInt(wireFile, unix.F_DUPFD_CLOEXEC, 10)
		}
		return "served", err
	case "x32":
		return "called", raw(0x40000000 + unix.SYS_GETPID)
	}
	return "", fmt.Errorf("no probe %q", name)
}

func probeRequest(name, arg string) render.Request {
	r := request(hub.Source{Path: arg}, map[string]string{"a.yaml": configMap})
	r.Application = "probe-" + name
	return r
}

// wellAgain shows that other renders still work.
func wellAgain(t *testing.T, p *scheduler.Pool) {
	t.Helper()
	res, err := p.Render(t.Context(), request(hub.Source{Path: "app"}, map[string]string{"app/a.yaml": configMap}))
	if err != nil || len(res.Objects) != 1 {
		t.Errorf("the next render gives %d objects and %v, want one object", len(res.Objects), err)
	}
}

func TestSandboxHolds(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector cannot be caged")
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hidden"), 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	p := newPool(t, nil)
	for _, c := range []struct{ id, name, arg string }{
		{"SEC-A6", "connect", listener.Addr().String()},
		{"SEC-A6", "connect", "169.254.169.254:80"},
		{"SEC-A11", "listen", ""},
		{"SEC-A6", "socket-unix", ""},
		{"SEC-A6", "socketpair", ""},
		{"SEC-A5", "read", "/etc/passwd"},
		{"SEC-A5", "read", "/proc/self/environ"},
		{"SEC-A5", "read", "/proc/1/environ"},
		{"SEC-A5", "read", "/proc/self/maps"},
		{"SEC-A4", "read", secret},
		{"SEC-A4", "list", filepath.Dir(secret)},
		{"SEC-A4", "list", "/"},
		{"SEC-A4", "stat", secret},
		{"SEC-A11", "write", filepath.Join(filepath.Dir(secret), "new")},
		{"SEC-A11", "write", "/tmp/capstan-probe"},
		{"SEC-A11", "mkdir", filepath.Join(filepath.Dir(secret), "dir")},
		{"SEC-A11", "remove", secret},
		{"SEC-A11", "chmod", secret},
		{"SEC-A11", "exec", "/bin/true"},
		{"SEC-A11", "execve", "/proc/self/exe"},
		{"SEC-A11", "fork", ""},
		{"SEC-A11", "kill", ""},
		{"SEC-A11", "signal-0", ""},
		{"SEC-A11", "tgkill", ""},
		{"SEC-A11", "ptrace", ""},
		{"SEC-A11", "mount", ""},
		{"SEC-A11", "unshare", ""},
		{"SEC-A11", "bpf", ""},
		{"SEC-A11", "io-uring", ""},
		{"SEC-A11", "memfd", ""},
		{"SEC-A11", "raise-limit", ""},
	} {
		t.Run(c.id+" "+c.name+" "+c.arg, func(t *testing.T) {
			res, err := p.Render(t.Context(), probeRequest(c.name, c.arg))
			if err == nil {
				t.Fatalf("%s %s was possible: %s", c.name, c.arg, res.Objects[0].JSON)
			}
			if kind := fault.KindOf(err); kind != fault.Invalid {
				t.Errorf("error kind %q, want %q: %v", kind, fault.Invalid, err)
			}
			if !strings.Contains(err.Error(), "not permitted") && !strings.Contains(err.Error(), "permission denied") {
				t.Errorf("error %q does not say that it was not permitted", err)
			}
		})
	}
	if _, err := os.Stat(secret); errors.Is(err, fs.ErrNotExist) {
		t.Error("a file was removed")
	}
	t.Run("SEC-A5 a renderer sees no variable of the hub", func(t *testing.T) {
		t.Setenv("CAPSTAN_SECRET", "hunter2")
		p := newPool(t, nil)
		res, err := p.Render(t.Context(), probeRequest("env", ""))
		if err != nil || strings.Contains(string(res.Objects[0].JSON), "hunter2") || strings.Contains(string(res.Objects[0].JSON), "PATH") {
			t.Errorf("the environment is %s, %v", res.Objects[0].JSON, err)
		}
	})
	t.Run("SEC-A11 a call of another ABI ends the worker", func(t *testing.T) {
		if _, err := p.Render(t.Context(), probeRequest("x32", "")); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("error %v, want one of kind %q", err, fault.Exceeded)
		}
	})
	wellAgain(t, p)
}

// What a worker cannot do, one without a sandbox can: the probes do try it.
// Those that would harm the test itself are left out.
func TestProbesWorkOutsideOfTheSandbox(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	file := func(name string) string {
		full := filepath.Join(dir, name)
		if err := os.WriteFile(full, []byte("hidden"), 0o600); err != nil {
			t.Fatal(err)
		}
		return full
	}
	p := newPool(t, func(c *render.Config) { c.Sandbox = render.SandboxNone })
	for _, c := range []struct{ id, name, arg, want string }{
		{"SEC-A6", "connect", listener.Addr().String(), "connected"},
		{"SEC-A11", "listen", "", "listening"},
		{"SEC-A6", "socket-unix", "", "socket"},
		{"SEC-A6", "socketpair", "", "pair"},
		{"SEC-A5", "read", "/etc/passwd", ":"},
		{"SEC-A5", "read", "/proc/self/maps", "-"},
		{"SEC-A4", "read", file("read"), "hidden"},
		{"SEC-A4", "list", "/", ""},
		{"SEC-A4", "stat", file("stat"), "there"},
		{"SEC-A11", "write", file("write"), "written"},
		{"SEC-A11", "mkdir", filepath.Join(dir, "made"), "made"},
		{"SEC-A11", "remove", file("remove"), "removed"},
		{"SEC-A11", "chmod", file("chmod"), "changed"},
		{"SEC-A11", "exec", "/bin/true", ""},
		{"SEC-A11", "signal-0", "", "signalled"},
		{"SEC-A11", "tgkill", "", "signalled"},
		{"SEC-A11", "memfd", "", "memfd"},
		{"SEC-A11", "fcntl-setown", "", "owned"},
		{"SEC-A11", "fcntl-dup", "", "doubled"},
	} {
		t.Run(c.id+" without a sandbox: "+c.name+" "+filepath.Base(c.arg), func(t *testing.T) {
			res, err := p.Render(t.Context(), probeRequest(c.name, c.arg))
			if err != nil || !strings.Contains(string(res.Objects[0].JSON), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestSandboxHoldsOnOlderKernels(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector cannot be caged")
	}
	for _, abi := range []string{"1", "5", "0"} {
		p := newPool(t, func(c *render.Config) { c.Arguments = []string{render.WorkerCommand, "--landlock-abi=" + abi} })
		for _, name := range []string{
			"fcntl-setown", "fcntl-setown-ex", "fcntl-setsig", "fcntl-async", "fcntl-lease", "fcntl-dup", "fcntl-high", "kill", "tgkill", "connect",
		} {
			t.Run("SEC-A11 "+name+" with Landlock ABI "+abi, func(t *testing.T) {
				res, err := p.Render(t.Context(), probeRequest(name, "127.0.0.1:1"))
				if err == nil {
					t.Fatalf("%s was possible: %s", name, res.Objects[0].JSON)
				}
				if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "not permitted") {
					t.Errorf("error %v, want one of kind %q that says that it was not permitted", err, fault.Invalid)
				}
			})
		}
		t.Run("what the runtime does to open files is permitted with Landlock ABI "+abi, func(t *testing.T) {
			if _, err := p.Render(t.Context(), probeRequest("fcntl-ordinary", "")); err != nil {
				t.Error(err)
			}
			if held, err := p.Status(t.Context()); err != nil || abi != "0" && !strings.Contains(held, "ABI "+abi+")") {
				t.Errorf("the sandbox is %q (%v), and is tried with ABI %s", held, err, abi)
			}
		})
	}
}

func TestFailingRendererAffectsNoOther(t *testing.T) {
	limited := func(change func(*render.Limits)) *scheduler.Pool {
		return newPool(t, func(c *render.Config) {
			c.Workers = 1
			if c.Limits.Memory = 128 << 20; raceDetector {
				c.Limits.Memory = 512 << 20
			}
			change(&c.Limits)
		})
	}
	// Only those that end by the clock are hurried.
	patient, hurried := limited(func(*render.Limits) {}), limited(func(l *render.Limits) { l.Timeout = 2 * time.Second })
	for _, c := range []struct {
		id, name, arg string
		kind          fault.Kind
		says          string
	}{
		{"SEC-B5", "grow", "", fault.Exceeded, "MiB of memory"},
		{"SEC-B5", "spin", "", fault.Exceeded, "took more than"},
		{"SEC-B5", "sleep", "", fault.Exceeded, "took more than"},
		{"SEC-B6", "deep", "", fault.Exceeded, "too deep"},
		{"SEC-B", "panic", "x", fault.Invalid, "crashed on this source"},
		{"SEC-C", "panic-text", "hunter2", fault.Invalid, "crashed on this source"},
		{"SEC-B", "exit", "", fault.Exceeded, "broke off"},
		{"SEC-B", "internal", "", fault.Internal, "our own defect"},
		{"SEC-A2", "outside", "../other/a.yaml", fault.Invalid, "leaves the repository"},
		{"SEC-A2", "outside", "/etc/passwd", fault.Invalid, "leaves the repository"},
		{"SEC-A2", "outside", "a/../../x", fault.Invalid, "leaves the repository"},
	} {
		t.Run(c.id+" "+c.name+" "+c.arg, func(t *testing.T) {
			if raceDetector && c.name == "grow" {
				t.Skip("the race detector makes it too slow to grow")
			}
			p := patient
			if c.says == "took more than" {
				p = hurried
			}
			_, err := p.Render(t.Context(), probeRequest(c.name, c.arg))
			if kind := fault.KindOf(err); kind != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v (kind %q), want kind %q and %q", err, kind, c.kind, c.says)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v repeats a value", err)
			}
			wellAgain(t, p)
		})
	}
}
