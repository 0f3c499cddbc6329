package plugin

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A usage is what all processes of a group use of the machine now.
type usage struct {
	processes int // and threads
	memory    int64
}

// measure adds up a process group. It trusts the kernel alone: the filter of
// system calls keeps programs from leaving their group.
func measure(group int) usage {
	var u usage
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return u
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		threads, ok := member(pid, group)
		if !ok {
			continue
		}
		u.processes += threads
		u.memory += private(pid)
	}
	return u
}

// member reports whether a process is alive and of a group, with its threads.
func member(pid, group int) (threads int, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	// The name, in brackets, may hold anything.
	rest := strings.Fields(string(text[max(0, strings.LastIndexByte(string(text), ')')+1):]))
	const state, groupAt, threadsAt = 0, 2, 17
	if len(rest) <= threadsAt || rest[state] == "Z" || rest[state] == "X" || rest[groupAt] != strconv.Itoa(group) {
		return 0, false
	}
	threads, err = strconv.Atoi(rest[threadsAt])
	return max(threads, 1), err == nil
}

// private is the memory that a process has to itself.
func private(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text))
	if len(f) < 3 {
		return 0
	}
	resident, err1 := strconv.ParseInt(f[1], 10, 64)
	shared, err2 := strconv.ParseInt(f[2], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return (resident - shared) * int64(os.Getpagesize())
}

// endGroup kills a process group until nothing of it is left, and reaps what
// has become the hub's child. A killed process may need a moment to go.
func endGroup(group int) {
	until := time.Now().Add(5 * time.Second)
	for time.Now().Before(until) {
		if errors.Is(unix.Kill(-group, unix.SIGKILL), unix.ESRCH) {
			return
		}
		for {
			pid, err := unix.Wait4(-group, nil, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
		if measure(group).processes == 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}
