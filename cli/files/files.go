// Package files reads manifests from files, folders and standard input, and knows
// which line came from where. Nothing is rendered.
package files

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/capstan-cd/capstan/shared/fault"
)

// An Input is the text of files one behind the other.
type Input struct{ Parts []Part }

// A Part is one file.
type Part struct {
	Name string // of the file; stdin for standard input
	Text []byte
}

const (
	stdinName = "stdin"
	between   = "\n---\n" // files
)

// Text is all files, each a document of its own.
func (in Input) Text() []byte {
	var texts [][]byte
	for _, p := range in.Parts {
		texts = append(texts, p.Text)
	}
	return bytes.Join(texts, []byte(between))
}

// Locate finds the file in which a line of the text stands, and its line there.
// The name is empty if there is no such line.
func (in Input) Locate(line int) (file string, at int) {
	if line < 1 {
		return "", 0
	}
	for _, p := range in.Parts {
		rows := bytes.Count(p.Text, []byte("\n")) + 1
		if line <= rows {
			return p.Name, line
		}
		if line -= rows; line == 1 { // the line between two files
			return p.Name, rows
		}
		line--
	}
	return "", 0
}

// Read reads all files, in the order given; folders are read by name.
func Read(files []string, stdin io.Reader) (Input, error) {
	var out Input
	add := func(name string, text []byte) {
		out.Parts = append(out.Parts, Part{name, bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))})
	}
	for _, name := range files {
		if name == "-" {
			b, err := io.ReadAll(stdin)
			if err != nil {
				return out, err
			}
			add(stdinName, b)
			continue
		}
		paths, err := manifestsBelow(name)
		if err != nil {
			return out, err
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				return out, fault.Wrap(fault.Invalid, err, "%s cannot be read", p)
			}
			add(p, b)
		}
	}
	return out, nil
}

func manifestsBelow(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s cannot be read", name)
	}
	if !info.IsDir() {
		return []string{name}, nil
	}
	var out []string
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			out = append(out, path)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fault.New(fault.Invalid, "%s contains no .yaml, .yml or .json file", name)
	}
	return out, err
}
