package archives

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// left lists the names in a folder.
func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// noise is a text that cannot be compressed to the limit of the tests.
func noise(t *testing.T) string {
	t.Helper()
	out := make([]byte, 8<<10)
	if _, err := rand.Read(out); err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestUploads(t *testing.T) {
	t.Parallel()
	made := func(t *testing.T) *Uploads {
		t.Helper()
		u, err := NewUploads(filepath.Join(t.TempDir(), "uploads"))
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	t.Run("REPO-12 the files of an upload are a tree until its end, under the digest of what was sent", func(t *testing.T) {
		t.Parallel()
		u := made(t)
		sent := pack(t, []tar.Header{{Name: "app/a.yaml"}, {Name: "app/link.yaml", Typeflag: tar.TypeSymlink, Linkname: "a.yaml"}}, "x: 1\n")
		tree, end, err := u.Receive(t.Context(), bytes.NewReader(sent), UploadLimits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"app/a.yaml", "app/link.yaml"} {
			if text, err := fs.ReadFile(tree, name); err != nil || string(text) != "x: 1\n" {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
		other, endOther, err := u.Receive(t.Context(), bytes.NewReader(pack(t, one(tar.Header{Name: "b"}), "y")), UploadLimits{})
		if err != nil || len(tree.Commit()) != 64 || other.Commit() == tree.Commit() {
			t.Errorf("commits %q and %q, %v", tree.Commit(), other.Commit(), err)
		}
		endOther()
		if u.stored == 0 {
			t.Error("the upload takes no room")
		}
		end()
		end()
		if _, err := fs.ReadFile(tree, "app/a.yaml"); err == nil || u.stored != 0 {
			t.Errorf("after its end: %v, %d bytes", err, u.stored)
		}
	})
	t.Run("REPO-12 FT-A1 a hub that is killed at any moment leaves no name of a file, and a new one removes what another left", func(t *testing.T) {
		t.Parallel()
		u := made(t)
		body, caller := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, _, err := u.Receive(context.WithoutCancel(t.Context()), body, UploadLimits{})
			done <- err
		}()
		sent := pack(t, []tar.Header{{Name: "a"}, {Name: "b"}}, strings.Repeat("text", 100_000))
		if _, err := caller.Write(sent[:len(sent)/2]); err != nil {
			t.Fatal(err)
		}
		if names := left(t, u.dir); len(names) != 0 {
			t.Errorf("in the middle of an upload there is %v", names)
		}
		_ = caller.CloseWithError(errors.New("the caller has gone"))
		if err := <-done; fault.KindOf(err) != fault.Invalid || u.stored != 0 {
			t.Errorf("%v, %d bytes are taken", err, u.stored)
		}
		if err := os.WriteFile(filepath.Join(u.dir, "upload-1"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewUploads(u.dir); err != nil || len(left(t, u.dir)) != 0 {
			t.Errorf("%v, %v", err, left(t, u.dir))
		}
	})
	t.Run("REPO-12 FT-G5 uploads that take all of the room together are refused, and their end frees it", func(t *testing.T) {
		t.Parallel()
		u := made(t)
		u.stored = storedUploads - 10
		sent := pack(t, one(tar.Header{Name: "a"}), strings.Repeat("text", 100))
		if _, _, err := u.Receive(t.Context(), bytes.NewReader(sent), UploadLimits{}); fault.KindOf(err) != fault.Offline || u.stored != storedUploads-10 {
			t.Errorf("%v, %d bytes are taken", err, u.stored)
		}
		u.stored = 0
		if _, end, err := u.Receive(t.Context(), bytes.NewReader(sent), UploadLimits{}); err != nil {
			t.Error(err)
		} else {
			end()
		}
	})
	t.Run("REPO-12 an upload ends with its request", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cancel()
		if _, _, err := made(t).Receive(ctx, bytes.NewReader(pack(t, one(tar.Header{Name: "a"}), "x")), UploadLimits{}); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("REPO-12 a tenant can lower the limits and not raise them", func(t *testing.T) {
		t.Parallel()
		for set, want := range map[int64]int64{0: 100 << 20, 1000: 1000, 1 << 40: 100 << 20, -1: 100 << 20} {
			if got := (UploadLimits{Packed: set}).withDefaults().Packed; got != want {
				t.Errorf("%d becomes %d, want %d", set, got, want)
			}
		}
	})
}

func TestHostileUploads(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 1<<20)
	many := make([]tar.Header, 200)
	for i := range many {
		many[i] = tar.Header{Name: strings.Repeat("f", i+1)}
	}
	limits := UploadLimits{Packed: 4 << 10, Bytes: 1 << 20, Entries: 100}
	whole := pack(t, one(tar.Header{Name: "a"}), "text")
	for name, c := range map[string]struct {
		archive []byte
		kind    fault.Kind
		says    []string
	}{
		"SEC-B3 a bomb":                      {pack(t, []tar.Header{{Name: "a"}, {Name: "b"}}, zeros), fault.Exceeded, []string{"unfolds to more than 1048576 bytes"}},
		"SEC-B3 too many files":              {pack(t, many, ""), fault.Exceeded, []string{"more than 100 entries"}},
		"SEC-B3 too much is sent":            {pack(t, one(tar.Header{Name: "a"}), noise(t)), fault.Exceeded, []string{"more than 4096 bytes", "reposerver.streamed.manifest.max.tar.size"}},
		"SEC-A2 a path that leads out":       {pack(t, one(tar.Header{Name: "a/../../etc/cron.d/x"}), "x"), fault.Invalid, []string{"leads out of it", "etc/cron.d/x"}},
		"SEC-A2 an absolute path":            {pack(t, one(tar.Header{Name: "/etc/passwd"}), "x"), fault.Invalid, []string{"is absolute", "/etc/passwd"}},
		"SEC-A1 a file below a link":         {pack(t, []tar.Header{{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "a/passwd"}}, "x"), fault.Invalid, []string{"in the place of a directory"}},
		"SEC-A1 a hard link":                 {pack(t, one(tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}), ""), fault.Invalid, []string{"hard link"}},
		"SEC-A1 a device":                    {pack(t, one(tar.Header{Name: "a", Typeflag: tar.TypeChar}), ""), fault.Invalid, []string{"neither file"}},
		"FT-G2 half an archive":              {whole[:len(whole)/2], fault.Invalid, []string{"no complete tar"}},
		"FT-G2 nothing at all":               {nil, fault.Invalid, []string{"is empty"}},
		"FT-G2 something that is no archive": {[]byte(`{"kind":"List"}`), fault.Invalid, []string{"no complete tar"}},
	} {
		t.Run("REPO-12 "+name, func(t *testing.T) {
			t.Parallel()
			u, err := NewUploads(filepath.Join(t.TempDir(), "uploads"))
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = u.Receive(t.Context(), bytes.NewReader(c.archive), limits)
			if fault.KindOf(err) != c.kind || u.stored != 0 || len(left(t, u.dir)) != 0 {
				t.Errorf("%v (kind %q), %d bytes are taken", err, fault.KindOf(err), u.stored)
			}
			for _, says := range c.says {
				if err != nil && !strings.Contains(fault.Sentence(err), says) {
					t.Errorf("%q does not say %q", fault.Sentence(err), says)
				}
			}
		})
	}
	t.Run("REPO-12 SEC-A1 a link that leads out is refused when it is read", func(t *testing.T) {
		t.Parallel()
		u, err := NewUploads(filepath.Join(t.TempDir(), "uploads"))
		if err != nil {
			t.Fatal(err)
		}
		tree, end, err := u.Receive(t.Context(), bytes.NewReader(pack(t, one(tar.Header{Name: "a.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), "")), UploadLimits{})
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		if _, err := fs.ReadFile(tree, "a.yaml"); err == nil || !strings.Contains(fault.Sentence(err), "leads out") || !strings.Contains(fault.Sentence(err), "a.yaml") {
			t.Error(err)
		}
	})
}
