package archives

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Limits are what an archive may unfold to. They are checked while it is read.
type Limits struct {
	Bytes   int64 // of all files, unpacked
	Entries int
}

const (
	maxName     = 4096 // bytes of a path
	maxLinkText = 4096 // bytes of a link's text
	maxDepth    = 100  // elements of a path
	maxDetails  = 1 << 20
)

// The kinds of entries.
const (
	isFile = "f"
	isLink = "l"
)

// An entry is one file or link of an archive. Directories follow from names.
type entry struct {
	Name   string `json:"n"`
	Kind   string `json:"k"`
	Offset int64  `json:"o,omitempty"` // of its bytes among the contents
	Size   int64  `json:"s,omitempty"`
	Hash   string `json:"h"` // SHA-256 of its bytes, or of the link's text
	Text   string `json:"t,omitempty"`
	Exec   bool   `json:"x,omitempty"`
}

// A manifest is what is stored of an archive beside its contents.
type manifest struct {
	Info    hub.CommitInfo `json:"info"`
	Entries []entry        `json:"entries"`
}

// An unpacker writes the files of an archive one behind the other. Nothing in
// an archive becomes a name on disk.
type unpacker struct {
	limits  Limits
	out     *bufio.Writer
	written int64
	entries map[string]entry
	seen    int
	same    map[string]int64 // offset of contents by hash
}

// A disk tells errors of the hub's disk from those of an archive.
type disk struct{ io.Writer }

func (d disk) Write(p []byte) (int, error) {
	n, err := d.Writer.Write(p)
	if err != nil {
		err = fault.With(fault.Wrap(fault.Offline, err, "the hub has no room to store the archive"), "", "let the operator free space in the hub's state directory")
	}
	return n, err
}

func newUnpacker(out io.Writer, limits Limits) *unpacker {
	return &unpacker{limits: limits, out: bufio.NewWriterSize(disk{out}, 64<<10), entries: map[string]entry{}, same: map[string]int64{}}
}

// unpack reads a tar, which may be compressed with gzip, to its end. Nested
// removes the one directory that everything is in, as charts are packed.
func (u *unpacker) unpack(from io.Reader, nested bool) error {
	packed := bufio.NewReaderSize(from, 64<<10)
	var text io.Reader = packed
	if magic, err := packed.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		unzipped, err := gzip.NewReader(packed)
		if err != nil {
			return broken(err)
		}
		text = unzipped
	}
	// What is behind the end of the tar is bounded, too.
	bounded := &io.LimitedReader{R: text, N: 2*u.limits.Bytes + int64(u.limits.Entries)*4096 + 1<<20}
	archive := tar.NewReader(bounded)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return broken(err)
		}
		if err := u.add(header, archive); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return broken(err)
	}
	if bounded.N == 0 {
		return u.tooLarge()
	}
	if _, err := io.Copy(io.Discard, packed); err != nil { // so that its digest is known
		return broken(err)
	}
	if err := u.out.Flush(); err != nil {
		return broken(err)
	}
	if nested {
		u.unnest()
	}
	return u.consistent()
}

func broken(err error) error {
	if _, is := fault.As(err); is {
		return err
	}
	return fault.With(fault.Wrap(fault.Invalid, err, "the archive cannot be read: it is no complete tar"), "", "pack it again")
}

func (u *unpacker) tooLarge() error {
	return fault.With(fault.New(fault.Exceeded, "the archive unfolds to more than %d bytes", u.limits.Bytes), "", "keep large files out of it")
}

// add takes the next entry of the archive.
func (u *unpacker) add(header *tar.Header, content io.Reader) error {
	if u.seen++; u.seen > u.limits.Entries {
		return fault.New(fault.Exceeded, "the archive has more than %d entries", u.limits.Entries)
	}
	if header.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := nameOf(header.Name)
	if err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return nil
	case tar.TypeReg:
		if name == "." {
			return fault.New(fault.Invalid, "the archive has a file without a name")
		}
		return u.file(name, header, content)
	case tar.TypeSymlink:
		if header.Linkname == "" || len(header.Linkname) > maxLinkText || strings.ContainsRune(header.Linkname, 0) {
			return fault.With(fault.New(fault.Invalid, "the symbolic link is malformed"), shown(name), "")
		}
		sum := sha256.Sum256([]byte(header.Linkname))
		u.entries[name] = entry{Name: name, Kind: isLink, Text: header.Linkname, Hash: hex.EncodeToString(sum[:])}
		return nil
	case tar.TypeLink:
		return fault.With(fault.New(fault.Invalid, "the archive has a hard link, which is not accepted"), shown(name), "pack the file itself")
	}
	return fault.With(fault.New(fault.Invalid, "the archive has an entry that is neither file, directory nor symbolic link"), shown(name), "pack files alone")
}

func (u *unpacker) file(name string, header *tar.Header, content io.Reader) error {
	if header.Size > u.limits.Bytes-u.written {
		return u.tooLarge()
	}
	sum := sha256.New()
	e := entry{Name: name, Kind: isFile, Offset: u.written, Exec: header.Mode&0o111 != 0}
	var err error
	if e.Size, err = u.copy(sum, content); err != nil {
		return err
	}
	e.Hash = hex.EncodeToString(sum.Sum(nil))
	if at, twice := u.same[e.Hash]; twice {
		e.Offset = at
	} else {
		u.same[e.Hash] = e.Offset
	}
	u.entries[name] = e
	return nil
}

// copy writes contents, of which there may be more than the header says.
func (u *unpacker) copy(sum hash.Hash, content io.Reader) (int64, error) {
	n, err := io.Copy(io.MultiWriter(u.out, sum), io.LimitReader(content, u.limits.Bytes-u.written+1))
	u.written += n
	if err != nil {
		return n, broken(err)
	}
	if u.written > u.limits.Bytes {
		return n, u.tooLarge()
	}
	return n, nil
}

// nameOf is the name of an entry as a path of a tree. What leads out of the
// archive is refused, and not made harmless.
func nameOf(written string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", fault.With(fault.New(fault.Invalid, "the archive has a path that %s", why), shown(written), "pack it with relative paths")
	}
	switch {
	case len(written) > maxName:
		return refuse("is too long")
	case strings.HasPrefix(written, "/"):
		return refuse("is absolute")
	case strings.ContainsRune(written, 0) || strings.ContainsRune(written, '\\'):
		return refuse("contains a zero byte or a backslash")
	}
	elements := strings.Split(written, "/")
	if slices.Contains(elements, "..") {
		return refuse("leads out of it")
	}
	name := path.Clean(written)
	if !fs.ValidPath(name) {
		return refuse("is not valid UTF-8")
	}
	if strings.Count(name, "/") >= maxDepth {
		return refuse(fmt.Sprintf("is more than %d directories deep", maxDepth))
	}
	return name, nil
}

// shown is a name of an archive in a message.
func shown(name string) string {
	const most = 200
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%q", strings.ToValidUTF8(name, "?"))
}

// unnest removes the directory that all entries are in.
func (u *unpacker) unnest() {
	top := ""
	for name := range u.entries {
		first, _, below := strings.Cut(name, "/")
		if !below || top != "" && top != first {
			return
		}
		top = first
	}
	moved := make(map[string]entry, len(u.entries))
	for name, e := range u.entries {
		e.Name = strings.TrimPrefix(name, top+"/")
		moved[e.Name] = e
	}
	u.entries = moved
}

// consistent refuses names that are a file and a directory.
func (u *unpacker) consistent() error {
	for name := range u.entries {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, is := u.entries[dir]; is {
				return fault.With(fault.New(fault.Invalid, "the archive has a file or link in the place of a directory"), shown(dir), "")
			}
		}
	}
	return nil
}

// sorted returns the entries in the order of their names.
func (u *unpacker) sorted() []entry {
	out := make([]entry, 0, len(u.entries))
	for _, e := range u.entries {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return out
}
