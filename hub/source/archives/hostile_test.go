package archives

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/shared/fault"
)

// pack writes a tar of headers; the text is the content of files.
func pack(t *testing.T, entries []tar.Header, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	gz := gzip.NewWriter(&out)
	w := tar.NewWriter(gz)
	for _, h := range entries {
		if h.Typeflag == tar.TypeReg || h.Typeflag == 0 {
			h.Size = int64(len(text))
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), gz.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func one(h tar.Header) []tar.Header { return []tar.Header{h} }

// A full disk accepts so many bytes.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, errors.New("no space left on device")
	}
	f.left -= len(p)
	return len(p), nil
}

func TestHostileArchives(t *testing.T) {
	t.Parallel()
	many := make([]tar.Header, 200)
	for i := range many {
		many[i] = tar.Header{Name: fmt.Sprintf("f%d", i)}
	}
	zeros := strings.Repeat("\x00", 1<<20)
	whole := pack(t, one(tar.Header{Name: "a"}), "text")
	for name, c := range map[string]struct {
		archive []byte
		kind    fault.Kind
		says    string
	}{
		"SEC-B3 zeros without end":                   {pack(t, []tar.Header{{Name: "a"}, {Name: "b"}, {Name: "c"}}, zeros), fault.Exceeded, "unfolds to more than"},
		"SEC-B3 too many entries":                    {pack(t, many, ""), fault.Exceeded, "more than 100 entries"},
		"SEC-B3 an absolute path":                    {pack(t, one(tar.Header{Name: "/etc/passwd"}), "x"), fault.Invalid, "is absolute"},
		"SEC-B3 SEC-A2 a path that leads out":        {pack(t, one(tar.Header{Name: "a/../../x"}), "x"), fault.Invalid, "leads out of it"},
		"SEC-A2 a backslash":                         {pack(t, one(tar.Header{Name: `..\x`}), "x"), fault.Invalid, "backslash"},
		"SEC-A2 a path that is too deep":             {pack(t, one(tar.Header{Name: strings.Repeat("d/", 200) + "x"}), "x"), fault.Invalid, "directories deep"},
		"SEC-A2 a path that is too long":             {pack(t, one(tar.Header{Name: strings.Repeat("x", 5000)}), "x"), fault.Invalid, "too long"},
		"SEC-A1 a hard link":                         {pack(t, one(tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}), ""), fault.Invalid, "hard link"},
		"SEC-A1 a device":                            {pack(t, one(tar.Header{Name: "a", Typeflag: tar.TypeChar}), ""), fault.Invalid, "neither file, directory nor symbolic link"},
		"SEC-A1 a file below a link":                 {pack(t, []tar.Header{{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "a/passwd"}}, "x"), fault.Invalid, "in the place of a directory"},
		"SEC-B7 a page instead of an archive":        {[]byte("<html>not found</html>"), fault.Invalid, "no complete tar"},
		"FT-G2 half an archive":                      {whole[:len(whole)/2], fault.Invalid, "no complete tar"},
		"SEC-B3 text without end behind the archive": {append(bytes.Clone(whole), pack(t, []tar.Header{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}, {Name: "f"}, {Name: "g"}}, zeros)...), fault.Exceeded, "unfolds to more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUnpacker(io.Discard, Limits{Bytes: 1 << 20, Entries: 100})
			err := u.unpack(bytes.NewReader(c.archive), false)
			if fault.KindOf(err) != c.kind || !strings.Contains(fault.Sentence(err), c.says) || len(fault.Sentence(err)) > 1000 {
				t.Errorf("%v (kind %q); want %q (kind %q)", fault.Sentence(err), fault.KindOf(err), c.says, c.kind)
			}
		})
	}
	t.Run("FT-G5 a full disk is not called a fault of the archive", func(t *testing.T) {
		t.Parallel()
		u := newUnpacker(&full{left: 1000}, Limits{Bytes: 1 << 20, Entries: 100})
		err := u.unpack(bytes.NewReader(pack(t, one(tar.Header{Name: "a"}), strings.Repeat("text", 100_000))), false)
		if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "no room") {
			t.Errorf("%v", err)
		}
	})
}

func TestLinksOfArchives(t *testing.T) {
	t.Parallel()
	archive := pack(t, []tar.Header{
		{Name: "top/a/real.yaml"}, {Name: "top/link.yaml", Typeflag: tar.TypeSymlink, Linkname: "a/real.yaml"}, {Name: "top/dir", Typeflag: tar.TypeSymlink, Linkname: "a"},
		{Name: "top/out", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd"}, {Name: "top/absolute", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "top/absent", Typeflag: tar.TypeSymlink, Linkname: "/no/such/file"}, {Name: "top/loop", Typeflag: tar.TypeSymlink, Linkname: "loop"},
		{Name: "top/dangling", Typeflag: tar.TypeSymlink, Linkname: "nothing"},
	}, "x: 1\n")
	u := newUnpacker(io.Discard, Limits{Bytes: 1 << 20, Entries: 100})
	if err := u.unpack(bytes.NewReader(archive), true); err != nil {
		t.Fatal(err)
	}
	tree := &tree{layout: newLayout(manifest{Entries: u.sorted()})}
	for name, says := range map[string]string{"out": "leads out", "absolute": "leads out", "absent": "leads out", "loop": "symbolic links"} {
		t.Run("SEC-A1 "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := tree.Stat(name); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("Stat() = %v, want %q", err, says)
			}
		})
	}
	t.Run("SEC-A1 links inside are followed, and one to nothing is missing", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"link.yaml", "dir/real.yaml"} {
			if info, err := tree.Stat(name); err != nil || info.Size() != 5 {
				t.Errorf("Stat(%q) = %v, %v", name, info, err)
			}
		}
		if _, err := tree.Stat("dangling"); err == nil {
			t.Error("a link to nothing is something")
		}
	})
}

// FuzzNames looks for a name of an archive that leads out of its tree.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{"a/b", "../x", "/x", "a/./b", "a//b", "a/..", `a\b`, "\xff", "./", "a\x00b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, written string) {
		name, err := nameOf(written)
		if err == nil && (strings.HasPrefix(name, "/") || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "/../") || len(name) > maxName) {
			t.Errorf("nameOf(%q) = %q", written, name)
		}
	})
}
