package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub/render/sandbox"
)

// ProgramCommand is the first argument that makes the hub's binary the first
// stage of a plugin's program. Its main calls Main before anything else.
const ProgramCommand = "plugin-program"

const (
	controlFile = 3 // the file descriptor of the supervisor
	niceness    = 10
)

// A program is what the supervisor has the first stage start.
type program struct {
	Line  []string // the command with its arguments
	Env   []string
	Dir   string
	Rules sandbox.Rules
}

// Main restricts the process and becomes the program. It returns only if it
// fails, after it has sent the reason to the supervisor.
func Main() int {
	if len(os.Args) > 2 && os.Args[2] == cleanupArgument {
		runCleanup(os.Stdin)
		return 0
	}
	// Landlock and seccomp hold one thread and what it becomes; it is this one
	// that becomes the program. It is never unlocked.
	runtime.LockOSThread()
	err := become()
	if _, failed := unix.Write(controlFile, []byte("E"+err.Error())); failed != nil {
		fmt.Fprintln(os.Stderr, "plugin-program: this process is started by the hub only")
	}
	return 1
}

func become() error {
	unix.CloseOnExec(controlFile)
	var p program
	if err := json.NewDecoder(control{}).Decode(&p); err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	if err := os.Chdir(p.Dir); err != nil {
		return fmt.Errorf("enter the directory: %w", err)
	}
	path, err := searchPath(p.Line[0], p.Env)
	if err != nil {
		return err
	}
	// A plugin steps back behind the hub, and goes first if memory runs out. A
	// kernel that refuses has its own order.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("800"), 0)
	asked, err := sandbox.EnterProgram(p.Rules, controlFile)
	if err != nil {
		return err
	}
	if asked != nil {
		if err := unix.Sendmsg(controlFile, []byte("S"), unix.UnixRights(int(asked.Fd())), nil, 0); err != nil {
			return fmt.Errorf("reach the supervisor: %w", err)
		}
	}
	return fmt.Errorf("start %s: %w", p.Line[0], syscall.Exec(path, p.Line, p.Env))
}

// control reads from the supervisor. It is used before the program starts.
type control struct{}

// Read reads what is there.
func (control) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(controlFile, b)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// searchPath searches a command in the program's own PATH.
func searchPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, v := range env {
		list, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(list) {
			at := filepath.Join(dir, name)
			if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return at, nil
			}
		}
	}
	return "", fmt.Errorf("there is no program %q on the hub's machine", name)
}
