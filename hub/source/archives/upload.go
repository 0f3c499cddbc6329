package archives

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// UploadLimits are what one upload may have. Zero values mean the defaults.
type UploadLimits struct {
	Packed  int64 // bytes as they are sent; default 100 MB
	Bytes   int64 // of all files, unpacked; default 1 GB
	Entries int   // default 100,000
}

func (l UploadLimits) withDefaults() UploadLimits {
	l.Packed = orLess(l.Packed, hub.MaxUpload)
	l.Bytes = orLess(l.Bytes, hub.MaxUploadExtracted)
	if l.Entries <= 0 {
		l.Entries = 100_000
	}
	return l
}

// orLess is what was set, or the most that is possible.
func orLess(set, most int64) int64 {
	if set <= 0 || set > most {
		return most
	}
	return set
}

// storedUploads bounds the files of all uploads that are being rendered.
const storedUploads = 4 << 30

// Uploads unpacks archives that callers send. Each is a file without a name,
// which the operating system deletes with the last process that has it open.
// So nothing is left of an upload, whenever the hub ends.
type Uploads struct {
	dir     string
	maxFile int64

	mu     sync.Mutex
	stored int64
}

// NewUploads makes it. Nothing else may write to the folder.
func NewUploads(dir string) (*Uploads, error) {
	// Only the moment between a file and the end of its name can leave one here.
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("empty the folder of uploads: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of uploads: %w", err)
	}
	return &Uploads{dir: dir, maxFile: 10 << 20}, nil
}

// Receive reads a tar, which may be compressed with gzip, and returns its files.
// Their commit is the digest of what was sent. End must be called.
func (u *Uploads) Receive(ctx context.Context, from io.Reader, limits UploadLimits) (t hub.Tree, end func(), err error) {
	limits = limits.withDefaults()
	file, err := u.nameless()
	if err != nil {
		return nil, nil, fault.With(fault.Wrap(fault.Offline, err, "the hub has no room for uploads"), "", "let the operator free space in the hub's state directory")
	}
	room := &room{file: file, of: u}
	defer func() {
		if err != nil {
			room.leave()
		}
	}()
	sum := sha256.New()
	sent := &sentBytes{ctx: ctx, from: from, left: limits.Packed, limit: limits.Packed}
	packed := bufio.NewReader(io.TeeReader(sent, sum))
	if _, err := packed.Peek(1); err == io.EOF {
		return nil, nil, fault.With(fault.New(fault.Invalid, "the upload is empty"), "", "send a tar.gz of the repository's files")
	}
	unpacking := newUnpacker(room, Limits{Bytes: limits.Bytes, Entries: limits.Entries})
	if err := unpacking.unpack(packed, false); err != nil {
		if sent.failed != nil {
			err = sent.failed
		}
		return nil, nil, fault.With(err, "the upload", "")
	}
	l := newLayout(manifest{Info: hub.CommitInfo{Message: "uploaded files"}, Entries: unpacking.sorted()})
	return &tree{layout: l, commit: hex.EncodeToString(sum.Sum(nil)), open: file, maxFile: u.maxFile, damaged: func() {}}, room.leave, nil
}

// nameless makes a file that has no name any more.
func (u *Uploads) nameless() (*os.File, error) {
	f, err := os.CreateTemp(u.dir, "upload-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("remove the name %s: %w", filepath.Base(f.Name()), err)
	}
	return f, nil
}

// A room is the part of the disk that one upload takes.
type room struct {
	file  *os.File
	of    *Uploads
	taken int64
	once  sync.Once
}

// Write writes to the file, if all uploads together are not too large.
func (r *room) Write(p []byte) (int, error) {
	r.of.mu.Lock()
	full := r.of.stored+int64(len(p)) > storedUploads
	if !full {
		r.of.stored += int64(len(p))
		r.taken += int64(len(p))
	}
	r.of.mu.Unlock()
	if full {
		return 0, fmt.Errorf("uploads take %d bytes together", int64(storedUploads))
	}
	return r.file.Write(p)
}

// leave deletes the file.
func (r *room) leave() {
	r.once.Do(func() {
		_ = r.file.Close() // nobody reads it again
		r.of.mu.Lock()
		defer r.of.mu.Unlock()
		r.of.stored -= r.taken
	})
}

// sentBytes reads what a caller sends, up to a limit. It notes the reason of
// its own for an end.
type sentBytes struct {
	ctx         context.Context //nolint:containedctx // lives for one upload
	from        io.Reader
	left, limit int64
	failed      error
}

func (s *sentBytes) Read(p []byte) (int, error) {
	if s.failed == nil {
		s.failed = s.ctx.Err()
	}
	if s.failed != nil {
		return 0, s.failed
	}
	if int64(len(p)) > s.left+1 {
		p = p[:s.left+1]
	}
	n, err := s.from.Read(p)
	if s.left -= int64(n); s.left < 0 {
		s.failed = fault.With(fault.New(fault.Exceeded, "the archive has more than %d bytes", s.limit), "", "leave out what is not rendered, or have reposerver.streamed.manifest.max.tar.size raised")
		return 0, s.failed
	}
	if err != nil && err != io.EOF {
		s.failed = err
		if _, is := fault.As(err); !is {
			s.failed = fault.Wrap(fault.Invalid, err, "the archive did not arrive completely")
		}
		return n, s.failed
	}
	return n, err
}
