// Package sandbox removes from a process everything that a renderer does not
// need: files, network, other processes, capabilities. Restrictions are
// permanent for the process. The renderer's worker calls Enter before it
// executes itself again. The new process calls Seal before it reads the first
// byte of a tenant. Afterwards no file can be opened, no socket created, no
// program started and no other process signalled, whatever the templates
// execute.
package sandbox

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnsupported means that this kernel cannot sandbox a renderer.
var ErrUnsupported = errors.New("this kernel has no Landlock (Linux 5.13 or newer, with landlock among the active security modules)")

// Limits are set on the process by Enter.
type Limits struct {
	Data  uint64 // bytes of private memory that may be mapped; 0: not limited
	Files uint64 // open files
	// ABI is the highest version of Landlock that is used; 0: the kernel's own.
	// Tests use it to check older kernels.
	ABI int
}

// Enter restricts the calling thread and all that it executes from now on. The
// caller has locked its goroutine to the thread and must replace the process by
// executable next; nothing else can be opened afterwards. The result names the
// active restrictions. File descriptors above keep are closed.
func Enter(executable string, limits Limits, keep uint) (string, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "", fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := setLimits(limits); err != nil {
		return "", err
	}
	if err := unix.CloseRange(keep+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return "", fmt.Errorf("close inherited files: %w", err)
	}
	var rules []fileRule
	for _, name := range readable(executable) {
		rules = append(rules, fileRule{name, unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE})
	}
	abi, err := restrictFiles(rules, limits.ABI)
	if err != nil {
		return "", err
	}
	if err := dropCapabilities(); err != nil {
		return "", err
	}
	if err := install(denyFilter(), 0); err != nil {
		return "", err
	}
	return fmt.Sprintf("Landlock (ABI %d), seccomp, no capabilities", abi), nil
}

// Seal restricts every thread of the process to the calls that the Go runtime
// needs to compute and to use open files.
func Seal() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return install(allowFilter(unix.Getpid()), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

func setLimits(l Limits) error {
	set := func(name string, resource int, value uint64) error {
		limit := unix.Rlimit{Cur: value, Max: value}
		if err := unix.Setrlimit(resource, &limit); err != nil {
			return fmt.Errorf("set limit of %s to %d: %w", name, value, err)
		}
		return nil
	}
	if err := set("core size", unix.RLIMIT_CORE, 0); err != nil {
		return err
	}
	if err := set("file size", unix.RLIMIT_FSIZE, 0); err != nil {
		return err
	}
	if err := set("open files", unix.RLIMIT_NOFILE, l.Files); err != nil {
		return err
	}
	if l.Data == 0 {
		return nil
	}
	return set("memory", unix.RLIMIT_DATA, l.Data)
}

// A fileRule gives rights to a file, or to a directory and all below it.
type fileRule struct {
	name   string
	rights uint64
}

// restrictFiles denies all files except those of the rules, all TCP, and
// everything else that its version of Landlock can deny. That is the kernel's,
// or newest if that is older. It is returned.
func restrictFiles(rules []fileRule, newest int) (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 || abi < 1 {
		return 0, ErrUnsupported
	}
	if newest > 0 {
		abi = min(abi, uintptr(newest))
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handledFiles(int(abi))}
	if abi >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	switch {
	case abi >= 6:
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	case abi >= 4:
		size += unsafe.Sizeof(attr.Handled_access_net)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return 0, fmt.Errorf("make Landlock rules: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, r := range rules {
		if err := allow(int(fd), r.name, r.rights&attr.Handled_access_fs); err != nil {
			return 0, err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return 0, fmt.Errorf("enter Landlock: %w", errno)
	}
	return int(abi), nil
}

// handledFiles are all file rights that a version of Landlock knows.
func handledFiles(abi int) uint64 {
	rights := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1)
	if abi >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		rights |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return rights
}

// readable is the executable and, for a build that is not static, the
// libraries that it is started with. Seal closes these too.
func readable(executable string) []string {
	out := []string{executable}
	f, err := elf.Open(executable)
	if err != nil {
		return out
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return append(out, "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
		}
	}
	return out
}

// fileRights are those that a file can have; the others are for directories.
const fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

func allow(ruleset int, name string, rights uint64) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %q: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("look at %q: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("allow %q: %w", name, errno)
	}
	return nil
}

// dropCapabilities drops all of them; with no_new_privs the next program of the
// thread gets none back, even as root.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// Static reports whether this very program is linked without libraries.
func Static() bool {
	return len(readable("/proc/self/exe")) == 1 && fileExists("/proc/self/exe")
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
