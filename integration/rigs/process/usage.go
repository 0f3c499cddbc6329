package process

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Parent is the process that started another one.
func Parent(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strconv.Atoi(strings.Fields(rest)[1])
}

// PSS is the proportional set size of processes in MiB.
func PSS(pids ...int) float64 {
	total := 0.0
	for _, pid := range pids {
		f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
				kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				total += kb / 1024
			}
		}
		_ = f.Close()
	}
	return total
}

// CPUSeconds is the CPU time of processes, with that of children that ended.
func CPUSeconds(pids ...int) float64 {
	total := 0.0
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, i := range []int{11, 12, 13, 14} { // utime, stime and both of children
			v, _ := strconv.ParseFloat(fields[i], 64)
			total += v / 100
		}
	}
	return total
}

// StolenSeconds is what the host of a virtual machine has given to others although
// there was work here, in CPU seconds of all cores.
func StolenSeconds() float64 {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	const steal = 8 // cpu user nice system idle iowait irq softirq steal
	fields := strings.Fields(line)
	if len(fields) <= steal {
		return 0
	}
	v, _ := strconv.ParseFloat(fields[steal], 64)
	return v / 100
}

// RaiseFiles lets this process and those that it starts open many files.
func RaiseFiles(want uint64) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Max = max(l.Max, want)
	l.Cur = max(l.Cur, want)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("%d open files are needed, the limit is %d: %w", want, l.Cur, err)
	}
	return nil
}
