package sandbox

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16 // six of 8 bytes each; the low half first on the machines we know
)

// x32 marks calls of the x32 ABI, which share the architecture of amd64.
const x32 = 0x4000_0000

const (
	answerAllow = unix.SECCOMP_RET_ALLOW
	answerDeny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	answerNone  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	answerKill  = unix.SECCOMP_RET_KILL_PROCESS
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func ret(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}
}

// unless skips the next instruction if the loaded word is not k.
func unless(k uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: 0, Jf: 1}
}

// prologue kills calls of a foreign architecture and loads the number.
func prologue() []unix.SockFilter {
	f := []unix.SockFilter{
		load(offArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditArch, Jt: 1, Jf: 0},
		ret(answerKill),
		load(offNumber),
	}
	if runtime.GOARCH == "amd64" {
		f = append(f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: x32, Jt: 0, Jf: 1}, ret(answerKill))
	}
	return f
}

// denyFilter refuses what reaches beyond the process. The program that is
// executed next still needs to start; allowFilter follows there.
func denyFilter() []unix.SockFilter {
	f := prologue()
	for _, number := range deniedCalls() {
		f = append(f, unless(number), ret(answerDeny))
	}
	return append(f, ret(answerAllow))
}

// allowFilter permits the listed calls, new threads but no new processes, and
// signals to the process itself. Everything else is refused with EPERM, so that
// a render fails with a message; clone3 is unknown, because its arguments
// cannot be checked and runtimes then use clone.
func allowFilter(pid int) []unix.SockFilter {
	f := prologue()
	for _, number := range allowedCalls() {
		f = append(f, unless(number), ret(answerAllow))
	}
	f = append(f, unless(unix.SYS_CLONE3), ret(answerNone))
	f = append(f, argument(unix.SYS_TGKILL, 0, uint32(pid))...)
	f = append(f, argumentMask(unix.SYS_CLONE, 0, unix.CLONE_THREAD)...)
	f = append(f, files()...)
	// Memory may be mapped, but never from a file (fd below 0 means anonymous).
	f = append(f, argumentMask(unix.SYS_MMAP, 3, unix.MAP_ANONYMOUS)...)
	return append(f, ret(answerDeny))
}

// files allows what the Go runtime does to an open file with fcntl, and
// nothing else: with F_SETOWN, F_SETSIG and O_ASYNC the kernel would send any
// signal to the hub. Otherwise only Landlock of ABI 6 prevents that.
func files() []unix.SockFilter {
	body := []unix.SockFilter{load(offArgs + 8*1)}
	for _, command := range [...]uint32{unix.F_GETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC} {
		body = append(body, unless(command), ret(answerAllow))
	}
	body = append(body,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.F_SETFL, Jt: 1, Jf: 0},
		ret(answerDeny),
		load(offArgs+8*2),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.O_ASYNC, Jt: 0, Jf: 1},
		ret(answerDeny),
		ret(answerAllow),
	)
	only := unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_FCNTL, Jt: 0, Jf: uint8(len(body))}
	return append([]unix.SockFilter{only}, body...)
}

// argument allows a call if one argument has this value.
func argument(number uintptr, index, value uint32) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(number), Jt: 0, Jf: 4},
		load(offArgs + 8*index),
		unless(value),
		ret(answerAllow),
		ret(answerDeny),
	}
}

// argumentMask allows a call if one argument has this bit.
func argumentMask(number uintptr, index, bit uint32) []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(number), Jt: 0, Jf: 4},
		load(offArgs + 8*index),
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: bit, Jt: 0, Jf: 1},
		ret(answerAllow),
		ret(answerDeny),
	}
}

func install(filter []unix.SockFilter, flags uintptr) error {
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("install system call filter: %w", errno)
	}
	if r != 0 {
		return fmt.Errorf("install system call filter: thread %d did not accept it", r)
	}
	return nil
}

// deniedCalls are refused from the first stage on.
func deniedCalls() []uint32 {
	return []uint32{
		unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
		unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_KILL, unix.SYS_TKILL,
		unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_MOUNT_SETATTR,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_USERFAULTFD, unix.SYS_MEMFD_CREATE,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_SYSLOG,
		unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_MQ_OPEN, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT,
	}
}

// allowedCalls are what the Go runtime uses to compute, and what reads and
// writes files that are open.
func allowedCalls() []uint32 {
	return append([]uint32{
		unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_FSTAT,
		unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2,
		unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
		unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
		unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
		unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_RSEQ, unix.SYS_MEMBARRIER, unix.SYS_GETRUSAGE,
		unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
		unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	}, machineCalls()...)
}
