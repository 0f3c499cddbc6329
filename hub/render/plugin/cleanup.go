package plugin

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/shared/fault"
)

// cleanupArgument makes the first stage the process that ends plugins after
// their hub.
const cleanupArgument = "cleanup"

// A cleanup ends running programs if the hub is killed. A signal on the death
// of the parent would reach the program alone, and none that it has started.
// So a process of its own reads the process groups from a pipe. The kernel
// closes the pipe with the hub, and then that process kills the groups.
type cleanup struct {
	mu     sync.Mutex
	cmd    *exec.Cmd
	pipe   *os.File // to the process; nil: there is none yet
	groups map[int]bool
}

// add registers a group. The program may start afterwards.
func (c *cleanup) add(group int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.groups == nil {
		c.groups = map[int]bool{}
	}
	c.groups[group] = true
	if c.pipe != nil {
		if _, err := fmt.Fprintf(c.pipe, "+%d\n", group); err == nil {
			return nil
		}
		c.close() // somebody has killed it
	}
	if err := c.start(); err != nil {
		delete(c.groups, group)
		return fault.Wrap(fault.Offline, err, "the hub cannot start a plugin at the moment")
	}
	return nil
}

// remove forgets a group that has ended.
func (c *cleanup) remove(group int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.groups, group)
	if c.pipe == nil {
		return
	}
	if _, err := fmt.Fprintf(c.pipe, "-%d\n", group); err != nil {
		c.close()
	}
}

// start starts the process and sends it all groups. The caller holds mu.
func (c *cleanup) start() error {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the cleanup of plugins: %w", err)
	}
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe", ProgramCommand, cleanupArgument) //nolint:noctx // our own binary; it ends with the pipe
	cmd.Env, cmd.Dir, cmd.Stdin = []string{}, "/", theirs
	// What kills the hub's group does not kill this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = ours.Close()
		return fmt.Errorf("start the cleanup of plugins: %w", err)
	}
	c.cmd, c.pipe = cmd, ours
	for group := range c.groups {
		if _, err := fmt.Fprintf(ours, "+%d\n", group); err != nil {
			c.close()
			return fmt.Errorf("reach the cleanup of plugins: %w", err)
		}
	}
	return nil
}

// close ends the process, and with it the registered groups. The caller holds
// mu, or nobody else uses c.
func (c *cleanup) close() {
	if c.pipe == nil {
		return
	}
	_ = c.pipe.Close()
	_ = c.cmd.Wait() // its state says nothing
	c.pipe, c.cmd = nil, nil
}

// runCleanup is the process: it reads until the hub is gone.
func runCleanup(in io.Reader) {
	// It ends after the hub, whatever the hub is told.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	groups := map[int]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		group, err := strconv.Atoi(strings.TrimLeft(lines.Text(), "+-"))
		if err != nil || group <= 1 {
			continue
		}
		if strings.HasPrefix(lines.Text(), "+") {
			groups[group] = true
		} else {
			delete(groups, group)
		}
	}
	for group := range groups {
		endGroup(group)
	}
}
