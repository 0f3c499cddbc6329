// Package canary plants random secrets and searches files, processes and
// responses for them, so that a test shows where secrets do not leak to.
package canary

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// A Set is random secrets that a test plants where secrets belong, and
// searches for where they must not be. They are found in plain text, in base64
// with every alignment, in hex and escaped for URLs. Several goroutines may
// call the methods.
type Set struct {
	mu     sync.Mutex
	values map[string]string // name → value
	forms  []form
}

type form struct {
	name, how string
	text      []byte
}

// New returns an empty set.
func New() *Set { return &Set{values: map[string]string{}} }

// Plant makes a secret and returns it. The same name always returns the same
// secret.
func (c *Set) Plant(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.values[name]; ok {
		return v
	}
	v := "canary-" + rand.Text()
	c.add(name, v)
	return v
}

// Add watches over a secret that somebody else made, such as a join token.
func (c *Set) Add(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(name, value)
}

func (c *Set) add(name, v string) {
	c.values[name] = v
	c.forms = append(c.forms, form{name, "in the clear", []byte(v)}, form{name, "in hex", []byte(hex.EncodeToString([]byte(v)))})
	if e := url.QueryEscape(v); e != v {
		c.forms = append(c.forms, form{name, "escaped", []byte(e)})
	}
	for shift := range 3 {
		// What stands before and after in the same base64 text touches the
		// first and the last characters.
		padded := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), v...))
		inner := padded[(shift*8+5)/6 : len(padded)-1]
		c.forms = append(c.forms, form{name, "in base64", []byte(inner)})
	}
}

// A Leak is a canary where it must not be.
type Leak struct{ Canary, How, Where string }

// String is for people.
func (s Leak) String() string { return fmt.Sprintf("%s %s in %s", s.Canary, s.How, s.Where) }

// Find searches bytes, and what is compressed in them as a whole.
func (c *Set) Find(where string, data []byte, except ...string) []Leak {
	c.mu.Lock()
	forms := slices.Clone(c.forms)
	c.mu.Unlock()
	var out []Leak
	for _, f := range forms {
		if !slices.Contains(except, f.name) && bytes.Contains(data, f.text) {
			out = append(out, Leak{f.name, f.how, where})
		}
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		if r, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			var plain bytes.Buffer
			_, _ = plain.ReadFrom(r)
			out = append(out, c.Find(where+" (unpacked)", plain.Bytes(), except...)...)
		}
	}
	return out
}

// FindInFolder searches every file below a folder, except those that skip names
// by their paths in it.
func (c *Set) FindInFolder(dir string, skip func(path string) bool, except ...string) ([]Leak, error) {
	var out []Leak
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // it went while we looked
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		short, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if skip != nil && skip(short) {
			return nil
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		out = append(out, c.Find("file "+path, data, except...)...)
		return nil
	})
	return out, err
}

// FindInProcess searches what everybody on the machine may read of a process
// and its children: names and arguments. With environment, also that.
func (c *Set) FindInProcess(pid int, environment bool) ([]Leak, error) {
	var out []Leak
	for _, p := range append(process.Children(pid), pid) {
		files := []string{"cmdline", "comm"}
		if environment {
			files = append(files, "environ")
		}
		for _, name := range files {
			path := fmt.Sprintf("/proc/%d/%s", p, name)
			data, err := os.ReadFile(path)
			if os.IsNotExist(err) || (err != nil && strings.Contains(err.Error(), "no such process")) {
				continue
			}
			if err != nil {
				return out, err
			}
			out = append(out, c.Find(path, data)...)
		}
	}
	return out, nil
}
