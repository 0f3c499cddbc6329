package scheduler

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The functions below measure a worker from outside. They trust the kernel and
// nothing that the worker reports. A process that has ended counts as zero.

const (
	clockTick    = time.Second / 100 // of the kernel's accounts, on every Linux that Go runs on
	lowPriority  = 10                // how far a long render steps back behind all others
	idleCPULimit = 2 * time.Second   // of processor time that a worker may use while it has nothing to do
)

// anonymous is the memory that a process has to itself.
func anonymous(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return 0
	}
	resident, err1 := strconv.ParseInt(fields[1], 10, 64)
	shared, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return (resident - shared) * int64(os.Getpagesize())
}

// processor is the processor time that all threads of a process have used.
func processor(pid int) time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name, in brackets, may hold anything.
	_, rest, ok := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 13 {
		return 0
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * clockTick
}

// deprioritize makes a process step back behind everything else that wants the
// processor. Priorities belong to threads; new ones inherit theirs.
func deprioritize(pid int) {
	threads, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/[0-9]*")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(filepath.Base(t)); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, lowPriority) // it may be gone
		}
	}
}

// waitForExit waits for a process that has closed its connection, and reports
// whether it ended without a signal of the hub. Its parent must still reap it.
func waitForExit(pid int, wait time.Duration) bool {
	until := time.Now().Add(wait)
	for {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return true
		}
		if _, rest, ok := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), " "); ok && strings.HasPrefix(rest, "Z") {
			return true
		}
		if time.Now().After(until) {
			return false
		}
		time.Sleep(time.Millisecond)
	}
}
