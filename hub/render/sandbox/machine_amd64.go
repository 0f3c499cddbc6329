package sandbox

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

func machineForks() []uint32 { return []uint32{unix.SYS_FORK, unix.SYS_VFORK} }

func machineDenied() []uint32 {
	return []uint32{unix.SYS_INOTIFY_INIT, unix.SYS_IOPERM, unix.SYS_IOPL, unix.SYS_MODIFY_LDT, unix.SYS_USELIB}
}

func machineIgnored() []uint32 {
	return []uint32{unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT}
}

func machineCalls() []uint32 {
	return []uint32{unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT}
}
