// Package editor has a person change a text with the program of VISUAL or EDITOR.
package editor

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Streams are those of the terminal that the editor runs in.
type Streams struct {
	In  io.Reader
	Out io.Writer
}

// Edit has the user's editor change a text. The editor is that of VISUAL, of EDITOR,
// or vi.
func Edit(ctx context.Context, s Streams, text []byte) (out []byte, err error) {
	words := usage.Words(program()) // such as code --wait
	name, err := Keep(text)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.Remove(name)) }()
	run := exec.CommandContext(ctx, words[0], append(words[1:], name)...)
	run.Stdin, run.Stdout, run.Stderr = s.In, s.Out, s.Out
	if err := run.Run(); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the editor %s has failed", words[0]), "", "set EDITOR; nothing was changed")
	}
	return os.ReadFile(name)
}

// Keep writes a text to a new file that only the user can read, and returns its name.
func Keep(text []byte) (name string, err error) {
	file, err := os.CreateTemp("", "capstan-*.yaml")
	if err != nil {
		return "", err
	}
	_, err = file.Write(text)
	return file.Name(), errors.Join(err, file.Close())
}

func program() string {
	for _, name := range []string{"VISUAL", "EDITOR"} {
		if v := os.Getenv(name); strings.TrimSpace(v) != "" {
			return v
		}
	}
	return "vi"
}
