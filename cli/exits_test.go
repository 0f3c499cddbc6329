package cli_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
)

// exits runs a command and fails unless it ends with the code given first.
func exits() {
	want, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		fmt.Fprintf(os.Stderr, "it ended with %d, want %d\n", got, want)
		os.Exit(1)
	}
}
