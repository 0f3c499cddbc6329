package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The notification and its answers are those of the kernel (seccomp_unotify(2)).
type notification struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type addFile struct {
	id       uint64
	flags    uint32
	source   uint32
	target   uint32
	newFlags uint32
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// A supervisor decides about the processes, threads and sockets that a program
// wants. The kernel waits for its answer, so that no program can have more
// processes than it may, however fast it makes them.
type supervisor struct {
	group   int
	limit   int      // of processes and threads
	network *network // nil: the filter refuses sockets

	made     int // processes and threads that were permitted since the last count
	counted  int // at the last count
	exceeded atomic.Bool
	running  sync.WaitGroup
}

// supervise answers until ctx ends or nothing of the program is left. rights
// hold the file by which the kernel asks.
func (s *supervisor) supervise(ctx context.Context, rights []byte) error {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("supervise plugin: %d messages: %w", len(messages), err)
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(files) != 1 {
		return fmt.Errorf("supervise plugin: %d files: %w", len(files), err)
	}
	// The supervisor wakes at once on the processor of the program that waits. Until
	// it has read the question, a signal interrupts the call of the program. Kernels
	// before 6.6 do not have it.
	_ = ioctlValue(files[0], notifSetFlags, notifSyncWakeUp)
	s.running.Go(func() {
		defer unix.Close(files[0])
		s.answer(ctx, files[0])
	})
	return nil
}

func (s *supervisor) answer(ctx context.Context, fd int) {
	const wait = 50 // milliseconds, after which the end of the run is noticed
	for ctx.Err() == nil {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		ready, err := unix.Poll(poll, wait)
		if errors.Is(err, unix.EINTR) || err == nil && ready == 0 {
			continue
		}
		if err != nil || poll[0].Revents&unix.POLLIN == 0 {
			return // nobody is left to ask
		}
		var asked notification
		if ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&asked)) == nil {
			s.decide(fd, asked)
		} // else it was killed meanwhile
	}
}

func (s *supervisor) decide(fd int, asked notification) {
	no := response{id: asked.id, errno: -int32(unix.EAGAIN)}
	switch {
	case asked.nr == unix.SYS_RT_SIGACTION:
		restartCalls(fd, asked)
		no = response{id: asked.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	case asked.nr == unix.SYS_SOCKET:
		if s.network != nil && s.network.give(fd, asked) == nil {
			return
		}
	case s.permitsProcess():
		// The flags are in a register, and were checked by the filter.
		no = response{id: asked.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	}
	_ = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&no)) // it may have been killed meanwhile
}

// restartCalls has a program's handler of SIGCHLD restart the calls that it
// interrupts. While the supervisor has not read a question, a signal ends the call
// with EINTR otherwise, and a shell whose command has just ended says that it
// cannot fork. The program may set the flag by itself, so it gains nothing; where
// its memory cannot be written, it runs as before.
func restartCalls(fd int, asked notification) {
	const restart = 0x10000000 // SA_RESTART
	at := uintptr(asked.args[1])
	var action [2]uint64 // handler and flags of the kernel's struct sigaction
	local := []unix.Iovec{{Base: (*byte)(unsafe.Pointer(&action[0])), Len: uint64(unsafe.Sizeof(action))}}
	if at == 0 {
		return // it only asks
	}
	n, err := unix.ProcessVMReadv(int(asked.pid), local, []unix.RemoteIovec{{Base: at, Len: int(local[0].Len)}}, 0)
	if err != nil || n != int(local[0].Len) || action[0] <= 1 || action[1]&restart != 0 { // 0 and 1 are no handlers
		return
	}
	action[1] |= restart
	if ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&asked.id)) != nil {
		return
	}
	local = []unix.Iovec{{Base: (*byte)(unsafe.Pointer(&action[1])), Len: 8}}
	_, _ = unix.ProcessVMWritev(int(asked.pid), local, []unix.RemoteIovec{{Base: at + 8, Len: 8}}, 0)
}

// permitsProcess counts one more process or thread. All are counted anew when
// there may be too many: most have ended by then.
func (s *supervisor) permitsProcess() bool {
	if s.counted+s.made >= s.limit {
		s.counted, s.made = measure(s.group).processes, 0
	}
	if s.counted >= s.limit {
		s.exceeded.Store(true)
		return false
	}
	s.made++
	return true
}

// SECCOMP_IOCTL_NOTIF_SET_FLAGS and SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP of linux/seccomp.h.
const (
	notifSetFlags   = 0x40082104
	notifSyncWakeUp = 1
)

func ioctlValue(fd int, request uint, value uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), value); errno != 0 {
		return errno
	}
	return nil
}

func ioctl(fd int, request uint, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
