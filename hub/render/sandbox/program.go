package sandbox

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rules say what a program of an operator may use of the machine.
type Rules struct {
	Read    []string // files and directories that it may read and execute
	Write   []string // directories that it may write in, too
	Devices []string // files that it may read and write

	Memory    uint64 // bytes of private memory of one process; 0: not limited
	FileBytes uint64 // of one file that it writes
	Files     uint64 // open files of one process
	ABI       int    // as in Limits
	CPU       uint64 // seconds of processor time of one process
	// Sockets lets it open TCP sockets, which the kernel asks the supervisor
	// for. They are connected already, wherever the program connects to.
	Sockets bool
}

// EnterProgram restricts the calling thread for a program of an operator, which
// must replace the process next. The program may start others, which have the
// same restrictions. It can neither reach files but its own, nor a network, nor
// other processes, and cannot leave its process group. The kernel asks the
// supervisor about each new process, thread and socket through the file.
func EnterProgram(r Rules, keep uint) (*os.File, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.CloseRange(keep+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("close inherited files: %w", err)
	}
	abi, err := restrictFiles(programRules(r), r.ABI)
	if err != nil {
		return nil, err
	}
	if err := dropCapabilities(); err != nil {
		return nil, err
	}
	if err := limitProgram(r); err != nil {
		return nil, err
	}
	return supervised(programFilter(abi, r.Sockets))
}

func programRules(r Rules) []fileRule {
	const read = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	var out []fileRule
	for _, name := range r.Read {
		out = append(out, fileRule{name, read})
	}
	for _, name := range r.Write {
		out = append(out, fileRule{name, math.MaxUint64 &^ notWritten})
	}
	for _, name := range r.Devices {
		out = append(out, fileRule{name, unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE})
	}
	return out
}

// notWritten are kinds of files that a program cannot make anywhere.
const notWritten = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK

func limitProgram(r Rules) error {
	for _, l := range [...]struct {
		name     string
		resource int
		value    uint64
	}{
		{"core size", unix.RLIMIT_CORE, 0}, {"file size", unix.RLIMIT_FSIZE, r.FileBytes}, {"open files", unix.RLIMIT_NOFILE, r.Files},
		{"processor time", unix.RLIMIT_CPU, r.CPU}, {"memory", unix.RLIMIT_DATA, r.Memory},
	} {
		if l.value == 0 && l.resource != unix.RLIMIT_CORE {
			continue
		}
		limit := unix.Rlimit{Cur: l.value, Max: l.value}
		if err := unix.Setrlimit(l.resource, &limit); err != nil {
			return fmt.Errorf("set limit of %s to %d: %w", l.name, l.value, err)
		}
	}
	return nil
}

const (
	answerIgnore   = uint32(unix.SECCOMP_RET_ERRNO) // with 0: the call returns success and does nothing
	answerNoXattr  = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOTSUP)
	answerNoFamily = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EAFNOSUPPORT)
	// namespaces are the flags of clone that make namespaces.
	namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	socketType = 0xf // of the second argument of socket and socketpair
	setOwner   = 0x8901
	setGroup   = 0x8902
)

// programFilter refuses what Landlock does not hold: signals before ABI 6,
// attributes of files, priorities and limits of other processes, sockets of any
// kind, and leaving the process group, by which the hub ends everything.
func programFilter(abi int, sockets bool) []unix.SockFilter {
	f := prologue()
	for _, number := range ignoredCalls() {
		f = append(f, unless(number), ret(answerIgnore))
	}
	for _, number := range attributeCalls() {
		f = append(f, unless(number), ret(answerNoXattr))
	}
	if sockets {
		f = append(f, socketRule()...)
		f = append(f, unless(unix.SYS_CONNECT), ret(answerIgnore))
	}
	for _, number := range programDenied(abi) {
		f = append(f, unless(number), ret(answerDeny))
	}
	f = append(f, unless(unix.SYS_CLONE3), ret(answerNone))
	f = append(f, rule(unix.SYS_CLONE, 0, test{unix.BPF_JSET, namespaces, answerDeny}, test{unix.BPF_JGE, 0, unix.SECCOMP_RET_USER_NOTIF})...)
	for _, number := range machineForks() {
		f = append(f, unless(number), ret(unix.SECCOMP_RET_USER_NOTIF))
	}
	// The supervisor makes the handler restart what it interrupts.
	f = append(f, rule(unix.SYS_RT_SIGACTION, 0, test{unix.BPF_JEQ, uint32(unix.SIGCHLD), unix.SECCOMP_RET_USER_NOTIF})...)
	f = append(f, rule(unix.SYS_PRLIMIT64, 0, test{unix.BPF_JEQ, 0, answerAllow}, test{unix.BPF_JGE, 0, answerDeny})...)
	f = append(f, rule(unix.SYS_FCNTL, 1, test{unix.BPF_JEQ, unix.F_SETOWN, answerDeny}, test{unix.BPF_JEQ, unix.F_SETSIG, answerDeny}, test{unix.BPF_JEQ, unix.F_SETOWN_EX, answerDeny})...)
	f = append(f, rule(unix.SYS_IOCTL, 1, test{unix.BPF_JEQ, setOwner, answerDeny}, test{unix.BPF_JEQ, setGroup, answerDeny}, test{unix.BPF_JEQ, unix.TIOCSTI, answerDeny})...)
	f = append(f, pairRule()...)
	return append(f, ret(answerAllow))
}

// A test of an argument answers if it holds.
type test struct {
	jump   uint16
	k      uint32
	answer uint32
}

// rule decides about one call by the low half of one argument; if no test holds
// it is allowed.
func rule(number uintptr, index uint32, tests ...test) []unix.SockFilter {
	body := []unix.SockFilter{load(offArgs + 8*index)}
	for _, t := range tests {
		body = append(body, unix.SockFilter{Code: unix.BPF_JMP | t.jump | unix.BPF_K, K: t.k, Jt: 0, Jf: 1}, ret(t.answer))
	}
	body = append(body, ret(answerAllow))
	return only(number, body)
}

// only executes a body for one call. The body always answers.
func only(number uintptr, body []unix.SockFilter) []unix.SockFilter {
	first := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(number), Jt: 0, Jf: uint8(len(body))}
	return append([]unix.SockFilter{first}, body...)
}

// ofType answers by the type of a socket, without its flags.
func ofType(want, then uint32) []unix.SockFilter {
	return []unix.SockFilter{
		load(offArgs + 8*1),
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: socketType},
		unless(want), ret(then),
		ret(answerDeny),
	}
}

// pairRule allows pairs of streams, which runtimes talk to their children
// through. A pair of datagram sockets could send to a socket of the machine.
func pairRule() []unix.SockFilter {
	return only(unix.SYS_SOCKETPAIR, ofType(unix.SOCK_STREAM, answerAllow))
}

// socketRule has the supervisor make TCP sockets. No other kind exists.
func socketRule() []unix.SockFilter {
	stream := ofType(unix.SOCK_STREAM, unix.SECCOMP_RET_USER_NOTIF)
	body := []unix.SockFilter{
		load(offArgs),
		unless(unix.AF_INET6), ret(answerNoFamily),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AF_INET, Jt: 1, Jf: 0},
		ret(answerDeny),
	}
	return only(unix.SYS_SOCKET, append(body, stream...))
}

// programDenied are the calls that no program has.
func programDenied(abi int) []uint32 {
	var out []uint32
	for _, number := range deniedCalls() {
		switch number {
		case unix.SYS_KILL, unix.SYS_TKILL:
			if abi >= signalScope {
				continue
			}
		case unix.SYS_SOCKETPAIR: // pairRule decides
			continue
		}
		out = append(out, number)
	}
	out = append(out,
		unix.SYS_SETSID, unix.SYS_SETPGID, unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET,
		unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETATTR,
		unix.SYS_PROCESS_MADVISE, unix.SYS_PROCESS_MRELEASE, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
		unix.SYS_INOTIFY_INIT1, unix.SYS_FANOTIFY_INIT, unix.SYS_FANOTIFY_MARK, unix.SYS_QUOTACTL, unix.SYS_ACCT,
		unix.SYS_PERSONALITY, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_VHANGUP, unix.SYS_SHMAT, unix.SYS_FSPICK,
	)
	if abi < signalScope {
		out = append(out, unix.SYS_TGKILL)
	}
	if abi < truncateRight {
		out = append(out, unix.SYS_TRUNCATE)
	}
	return append(out, machineDenied()...)
}

// The versions of Landlock that confine signals, and truncation by name.
const (
	signalScope   = 6
	truncateRight = 3
)

// ignoredCalls change the mode, owner or time of a file. Landlock does not hold
// these, and the program runs as the hub's user, so they do nothing.
func ignoredCalls() []uint32 {
	return append([]uint32{
		unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	}, machineIgnored()...)
}

func attributeCalls() []uint32 {
	return []uint32{
		unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR,
		unix.SYS_SETXATTRAT, unix.SYS_REMOVEXATTRAT,
	}
}

// supervised installs a filter and returns the file by which the kernel asks
// about its calls.
func supervised(filter []unix.SockFilter) (*os.File, error) {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// Signals do not disturb a call that the supervisor is deciding about, if the
	// kernel knows how (Linux 5.19).
	const listener = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, listener|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, uintptr(unsafe.Pointer(&prog)))
	if errno == unix.EINVAL {
		fd, _, errno = unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, listener, uintptr(unsafe.Pointer(&prog)))
	}
	if errno != 0 {
		return nil, fmt.Errorf("install system call filter with a supervisor: %w", errno)
	}
	return os.NewFile(fd, "system calls"), nil
}
