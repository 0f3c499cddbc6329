// Package secret has the hub's master key and wraps other keys with it. The
// master key comes from a file and stays in memory; it is never written
// anywhere else and never printed. The store uses it to wrap each tenant's keys
// and the certificate authority. A wrapped key can be unwrapped only as a
// whole, and only with the key that its id names.
package secret

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	format  = 1 // first byte of everything wrapped
	idSize  = 8
	maxFile = 64 << 10
	// maxKeys bounds the list of old keys.
	maxKeys = 64
)

type keyID [idSize]byte

// A Master is the current master key and those before it. It is safe for use
// by many goroutines.
type Master struct {
	current keyID
	keys    map[keyID]encryption.Key
}

// Format hides the keys from every verb of package fmt.
func (*Master) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("(master key)")) }

// Load reads a master key file: one key a line, each 32 bytes in base64. The
// first is used from now on; the others only open what was wrapped before
// they were replaced. Empty lines and those that begin with # are left out.
// A file that others than its owner and group can read is refused.
func Load(path string) (*Master, error) {
	m, err := load(path)
	if err != nil {
		return nil, fault.With(err, fmt.Sprintf("master key file %q", path), "")
	}
	return m, nil
}

func load(path string) (*Master, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.With(fault.New(fault.Missing, "it does not exist"), "", "make one with: capstan-hub master-key create, or: head -c 32 /dev/urandom | base64")
	}
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "it cannot be opened")
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "it cannot be read")
	}
	if err := private(info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "it cannot be read")
	}
	return parse(text)
}

// private refuses what everyone may read, or others may replace. The group
// may read, because that is how an orchestrator hands files to a process.
func private(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fault.New(fault.Invalid, "it is not an ordinary file")
	}
	if mode := info.Mode().Perm(); mode&0o027 != 0 {
		return fault.With(fault.New(fault.Invalid, "its mode %04o lets others than its owner and group at it", mode), "", "run: chmod 600 on it, and make a new key if others were on this machine")
	}
	return nil
}

// parse never repeats a line: it may hold most of a key.
func parse(text []byte) (*Master, error) {
	if len(text) > maxFile {
		return nil, fault.New(fault.Invalid, "it is longer than %d bytes", maxFile)
	}
	m := &Master{keys: map[keyID]encryption.Key{}}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != encryption.KeySize {
			return nil, fault.New(fault.Invalid, "line %d is not %d bytes in base64", n, encryption.KeySize)
		}
		if bytes.Equal(raw, make([]byte, encryption.KeySize)) {
			return nil, fault.New(fault.Invalid, "line %d is a key of zeros", n)
		}
		if err := m.add(encryption.Key(raw)); err != nil {
			return nil, fault.New(fault.Invalid, "line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fault.New(fault.Invalid, "one of its lines is too long to be a key")
	}
	if len(m.keys) == 0 {
		return nil, fault.New(fault.Invalid, "there is no key in it")
	}
	return m, nil
}

func (m *Master) add(key encryption.Key) error {
	id := idOf(key)
	if _, twice := m.keys[id]; twice {
		return errors.New("the key is there twice")
	}
	if len(m.keys) == maxKeys {
		return fmt.Errorf("there are more than %d keys", maxKeys)
	}
	if len(m.keys) == 0 {
		m.current = id
	}
	m.keys[id] = key
	return nil
}

// idOf identifies a key without revealing anything about it.
func idOf(key encryption.Key) keyID {
	derived := encryption.Derive(key, "capstan master key id v1")
	sum := sha256.Sum256(derived[:])
	return keyID(sum[:idSize])
}

// Create draws a master key and writes it to a new file that only its owner
// can read. A file that is there already is never touched: fault.Conflict.
func Create(path string) (*Master, error) {
	object := fmt.Sprintf("master key file %q", path)
	key, err := encryption.NewKey()
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fault.With(fault.New(fault.Conflict, "it is there already and will not be overwritten"), object, "")
	}
	if err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "it cannot be created"), object, "")
	}
	_, err = file.WriteString(base64.StdEncoding.EncodeToString(key[:]) + "\n")
	err = errors.Join(err, file.Sync(), file.Close(), syncFolder(path))
	if err != nil {
		return nil, errors.Join(fault.With(fault.Wrap(fault.Internal, err, "it cannot be written"), object, ""), os.Remove(path))
	}
	m := &Master{keys: map[keyID]encryption.Key{}}
	return m, m.add(key)
}

// syncFolder makes the new name last: a lost master key loses everything that
// was wrapped with it.
func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// LoadOrCreate loads the file, or creates it if it is not there. Of several
// that start at once, all end with the same key.
func LoadOrCreate(path string) (*Master, error) {
	m, err := Load(path)
	if fault.KindOf(err) != fault.Missing {
		return m, err
	}
	m, err = Create(path)
	if fault.KindOf(err) == fault.Conflict {
		return Load(path)
	}
	return m, err
}

// Wrap seals plain under the current key. The result names the key by its id.
func (m *Master) Wrap(plain []byte) ([]byte, error) {
	head := append([]byte{format}, m.current[:]...)
	sealed, err := encryption.Seal(m.keys[m.current], head, plain)
	if err != nil {
		return nil, fmt.Errorf("wrap: %w", err)
	}
	return append(head, sealed...), nil
}

// Unwrap opens what Wrap sealed under any of the keys. The error is
// fault.Missing if the key that was used is not in the file, and fault.Invalid
// if the text was changed.
func (m *Master) Unwrap(wrapped []byte) ([]byte, error) {
	if len(wrapped) < 1+idSize || wrapped[0] != format {
		return nil, fault.New(fault.Invalid, "this is nothing that a master key has wrapped")
	}
	head := wrapped[:1+idSize]
	key, ok := m.keys[keyID(head[1:])]
	if !ok {
		return nil, fault.With(fault.New(fault.Missing, "it was wrapped with the master key %x, which the key file does not have", head[1:]),
			"", "put the former key behind the current one in the key file")
	}
	return encryption.Open(key, head, wrapped[1+idSize:])
}

// Current reports whether something was wrapped with the current key; if not,
// wrap it again before its key is removed from the file.
func (m *Master) Current(wrapped []byte) bool {
	return len(wrapped) > 1+idSize && wrapped[0] == format && keyID(wrapped[1:1+idSize]) == m.current
}
