package archives

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A shelf is what is stored of one repository: for each archive its contents and
// its list of files, both named by its digest, and the digests of versions.
type shelf struct {
	dir    string // of the repository
	tenant string // folder of the tenant
}

func (s *Source) at(tenant hub.TenantID, dir string) shelf {
	return shelf{dir, filepath.Join(s.cfg.Dir, string(tenant))}
}

const (
	contentsExt = ".data"
	listExt     = ".json"
	pinsFile    = "pins"
	partial     = "part-" // begins the names of what is being written
	maxPins     = 10_000
)

// name is that of an archive without its ending; empty: the digest is none.
func (a shelf) name(digest string) string {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return ""
	}
	return filepath.Join(a.dir, hex)
}

// has reports whether an archive is stored.
func (a shelf) has(digest string) bool {
	name := a.name(digest)
	if name == "" {
		return false
	}
	_, list := os.Stat(name + listExt)
	_, contents := os.Stat(name + contentsExt)
	return list == nil && contents == nil
}

// drop deletes an archive.
func (a shelf) drop(digest string) {
	if name := a.name(digest); name != "" {
		_ = os.Remove(name + listExt) // what is left is written over
		_ = os.Remove(name + contentsExt)
	}
}

func (a shelf) pins() map[string]string {
	pins := map[string]string{}
	text, err := os.ReadFile(filepath.Join(a.dir, pinsFile))
	if err != nil || json.Unmarshal(text, &pins) != nil {
		return map[string]string{}
	}
	return pins
}

// pin is the digest that a version was first seen with; empty: it was not.
func (a shelf) pin(chart, commit string) string { return a.pins()[chart+"@"+commit] }

// setPin stores the digest of a version. The caller holds the repository.
func (a shelf) setPin(chart, commit, digest string) error {
	pins := a.pins()
	key := chart + "@" + commit
	if pins[key] == digest {
		return nil
	}
	if len(pins) >= maxPins {
		pins = map[string]string{}
	}
	pins[key] = digest
	text, err := json.Marshal(pins)
	if err != nil {
		return fmt.Errorf("write the digests of versions: %w", err)
	}
	return a.replace(pinsFile, text)
}

// replace writes a file of the shelf, or leaves the one that is there.
func (a shelf) replace(name string, text []byte) error {
	return Replace(filepath.Join(a.dir, name), text)
}

// Replace writes a file at once: a reader sees the old text or the new one.
func Replace(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), partial)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	return nil
}

// summed is a list with its SHA-256 before it: a disk may change names in it,
// which nothing else would notice.
func summed(list []byte) []byte {
	sum := sha256.Sum256(list)
	return append([]byte(hex.EncodeToString(sum[:])+"\n"), list...)
}

// unsummed reads a list that summed has written.
func unsummed(text []byte) (m manifest, err error) {
	written, list, _ := bytes.Cut(text, []byte("\n"))
	if sum := sha256.Sum256(list); string(written) != hex.EncodeToString(sum[:]) {
		return m, errors.New("it has another digest")
	}
	return m, json.Unmarshal(list, &m)
}

// tree opens a stored archive.
func (s *Source) tree(at shelf, commit, digest string) (hub.Tree, error) {
	name := at.name(digest)
	damaged := func() {
		s.layouts.Drop(func(n string) bool { return n == name })
		at.drop(digest)
	}
	l, ok := s.layouts.Get(name)
	if !ok {
		text, err := os.ReadFile(name + listExt)
		if err != nil {
			return nil, fmt.Errorf("open an archive: %w", err)
		}
		m, err := unsummed(text)
		if err != nil {
			damaged()
			return nil, fmt.Errorf("read the list of an archive: %w", err)
		}
		l = newLayout(m)
		s.layouts.Put(name, l, l.size)
	}
	if _, err := os.Stat(name + contentsExt); err != nil {
		damaged()
		return nil, fmt.Errorf("open an archive: %w", err)
	}
	now := time.Now()
	_ = os.Chtimes(name+contentsExt, now, now) // so that what is not used is evicted first
	return &tree{layout: l, commit: commit, contents: name + contentsExt, maxFile: s.cfg.MaxFile, damaged: damaged}, nil
}

// A Download receives the archive of a choice.
type Download struct {
	unpacker *unpacker
	contents string // the file with the bytes
	digest   string
	info     hub.CommitInfo
}

// Unpack reads an archive, which may be compressed. Nested removes the one
// directory that everything is in.
func (d *Download) Unpack(from io.Reader, nested bool) error { return d.unpacker.unpack(from, nested) }

// Is stores what was read: the digest that it is known by, and what people see
// of it.
func (d *Download) Is(digest string, info hub.CommitInfo) { d.digest, d.info = digest, info }

// download reads an archive into the shelf and returns its digest. Expected is
// the one that it must have; empty: any. The caller holds the repository.
func (s *Source) download(ctx context.Context, at shelf, session Session, c Choice, expected string) (digest string, err error) {
	if err := os.MkdirAll(at.dir, 0o700); err != nil {
		return "", fmt.Errorf("create the folder of a repository: %w", err)
	}
	at.clear()
	f, err := os.CreateTemp(at.dir, partial)
	if err != nil {
		return "", fmt.Errorf("store an archive: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // it was renamed, or is of no use
	d := &Download{unpacker: newUnpacker(f, s.cfg.Limits), contents: f.Name()}
	err = session.Download(ctx, c, d)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", firstFault(err)
	}
	name := at.name(d.digest)
	switch {
	case name == "":
		return "", fmt.Errorf("the digest %q is none", d.digest)
	case expected != "" && d.digest != expected:
		return "", republished(c.Target.Chart, c.Commit, expected, d.digest)
	}
	text, err := json.Marshal(manifest{Info: d.info, Entries: d.unpacker.sorted()})
	if err != nil {
		return "", fmt.Errorf("write the list of an archive: %w", err)
	}
	s.layouts.Drop(func(n string) bool { return n == name })
	if err := os.Rename(f.Name(), name+contentsExt); err != nil {
		return "", fmt.Errorf("store an archive: %w", err)
	}
	if err := at.replace(filepath.Base(name)+listExt, summed(text)); err != nil {
		return "", err
	}
	return d.digest, s.evict(at, name+contentsExt)
}

// firstFault is the classified error among joined ones.
func firstFault(err error) error {
	if e, ok := fault.As(err); ok {
		return e
	}
	return err
}

// clear removes what a process that was killed left half written.
func (a shelf) clear() {
	left, err := filepath.Glob(filepath.Join(a.dir, partial+"*"))
	if err != nil {
		return
	}
	for _, name := range left {
		_ = os.Remove(name) // the next download tries again
	}
}

// A kept archive is one of a tenant.
type kept struct {
	name string
	size int64
	used time.Time
}

// evict deletes the archives of a tenant that were not used for the longest
// time, until the others fit. The newest one stays.
func (s *Source) evict(at shelf, newest string) error {
	var all []kept
	var sum int64
	err := filepath.WalkDir(at.tenant, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != contentsExt {
			return nil //nolint:nilerr // what cannot be read is not counted
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
			all = append(all, kept{name, info.Size(), info.ModTime()})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the archives of a tenant: %w", err)
	}
	slices.SortFunc(all, func(a, b kept) int { return a.used.Compare(b.used) })
	for _, k := range all {
		if sum <= s.cfg.MaxBytes {
			break
		}
		if k.name == newest {
			continue
		}
		_ = os.Remove(strings.TrimSuffix(k.name, contentsExt) + listExt) // without its list an archive is not there
		_ = os.Remove(k.name)
		sum -= k.size
	}
	return nil
}
