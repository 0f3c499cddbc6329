package rendertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The functions below make hostile sources. They are made when they are needed
// and not stored. None of them can fail to be made: they are written to memory.

// Chart is the head of a chart that is well, with one template.
func Chart(more map[string]string) map[string]string {
	files := map[string]string{
		"Chart.yaml":       "apiVersion: v2\nname: c\nversion: 1.0.0\n",
		"templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n",
	}
	maps.Copy(files, more)
	return files
}

// AliasBomb is YAML of a few hundred bytes that expands to width^depth values.
func AliasBomb(width, depth int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "a0: &a0 [%s]\n", strings.TrimSuffix(strings.Repeat("x,", width), ","))
	for i := 1; i <= depth; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), width), ","))
	}
	return b.String()
}

// MergeBomb is an alias bomb of merge keys: each map includes the one before it
// many times.
func MergeBomb(width, depth int) string {
	var b strings.Builder
	b.WriteString("m0: &m0 {k: v}\n")
	for i := 1; i <= depth; i++ {
		fmt.Fprintf(&b, "m%d: &m%d\n  <<: [%s]\n  k%d: {%s}\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*m%d,", i-1), width), ","), i,
			strings.TrimSuffix(fields(width, fmt.Sprintf("*m%d", i-1)), ","))
	}
	return b.String()
}

func fields(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "f%d: %s,", i, value)
	}
	return b.String()
}

// Nested is a flow map that is nested deep.
func Nested(deep int) string { return strings.Repeat("{a: ", deep) + "1" + strings.Repeat("}", deep) }

// Manifest is a ConfigMap with more text at its end.
func Manifest(more string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n" + more
}

// An archive is a .tgz in the making.
type archive struct {
	out bytes.Buffer
}

// member appends one part of a gzip stream: parts that were compressed apart
// are read as one.
func member(write func(io.Writer)) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	write(z)
	_ = z.Close()
	return b.Bytes()
}

func (a *archive) add(write func(io.Writer)) { a.out.Write(member(write)) }

func (a *archive) file(name, text string) {
	a.add(func(w io.Writer) {
		t := tar.NewWriter(w)
		_ = t.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))})
		_, _ = io.WriteString(t, text)
		_ = t.Flush()
	})
}

func (a *archive) end() string {
	a.add(func(w io.Writer) { _, _ = w.Write(make([]byte, 1024)) })
	return a.out.String()
}

// Packed is a packed chart called name with these files. Equal files cost
// hardly more than one.
func Packed(name string, files map[string]string) string {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	t := tar.NewWriter(z)
	add := func(n, text string) {
		_ = t.WriteHeader(&tar.Header{Name: name + "/" + n, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))})
		_, _ = io.WriteString(t, text)
	}
	add("Chart.yaml", "apiVersion: v2\nname: "+name+"\nversion: 1.0.0\n")
	for _, n := range slices.Sorted(maps.Keys(files)) {
		add(n, files[n])
	}
	_ = t.Close()
	_ = z.Close()
	return b.String()
}

// PackedRaw is an archive with exactly these names, which need be no names of
// files in a chart. A name that begins with "link " is a symbolic link to its
// text, one with "hard " a hard link.
func PackedRaw(files map[string]string) string {
	a := &archive{}
	for n, text := range files {
		h := &tar.Header{Name: n, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}
		if link, ok := strings.CutPrefix(n, "link "); ok {
			h = &tar.Header{Name: link, Typeflag: tar.TypeSymlink, Linkname: text, Mode: 0o777}
		} else if link, ok := strings.CutPrefix(n, "hard "); ok {
			h = &tar.Header{Name: link, Typeflag: tar.TypeLink, Linkname: text, Mode: 0o644}
		}
		a.add(func(w io.Writer) {
			t := tar.NewWriter(w)
			_ = t.WriteHeader(h)
			if h.Typeflag == tar.TypeReg {
				_, _ = io.WriteString(t, text)
			}
			_ = t.Flush()
		})
	}
	return a.end()
}

// PackedZeros is a packed chart with one file of many bytes, all zero. Its size
// is a thousandth of them.
func PackedZeros(name string, size int64) string {
	const chunk = 64 << 20
	a := &archive{}
	a.file(name+"/Chart.yaml", "apiVersion: v2\nname: "+name+"\nversion: 1.0.0\n")
	a.add(func(w io.Writer) {
		_ = tar.NewWriter(w).WriteHeader(&tar.Header{Name: name + "/templates/zeros", Typeflag: tar.TypeReg, Mode: 0o644, Size: size, Format: tar.FormatGNU})
	})
	zeros := member(func(w io.Writer) { _, _ = w.Write(make([]byte, chunk)) })
	for range size / chunk {
		a.out.Write(zeros)
	}
	return a.end()
}

// PackedEntries is a packed chart with many entries that hold nothing.
func PackedEntries(name string, entries int) string {
	const chunk = 10_000
	a := &archive{}
	a.file(name+"/Chart.yaml", "apiVersion: v2\nname: "+name+"\nversion: 1.0.0\n")
	many := member(func(w io.Writer) {
		t := tar.NewWriter(w)
		for i := range chunk {
			_ = t.WriteHeader(&tar.Header{Name: fmt.Sprintf("%s/files/%d", name, i), Typeflag: tar.TypeReg, Mode: 0o644})
		}
		_ = t.Flush()
	})
	for range entries / chunk {
		a.out.Write(many)
	}
	return a.end()
}

// PackedInPacked is a packed chart that needs width^depth charts: each holds
// the next one width times. It stays small as long as one of them fits into
// the window of the compression, 32 KiB.
func PackedInPacked(name string, width, depth int) string {
	inner := Packed(name, nil)
	for range depth {
		files := map[string]string{}
		for i := range width {
			files[fmt.Sprintf("charts/%s-%d.tgz", name, i)] = inner
		}
		inner = Packed(name, files)
	}
	return inner
}

// Overlays are kustomizations each of which includes the one before it twice,
// under other names, so that the last one has 2^depth objects.
func Overlays(depth int) map[string]string {
	files := map[string]string{
		"l0/kustomization.yaml": "resources: [a.yaml]\n",
		"l0/a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	}
	for i := 1; i <= depth; i++ {
		for _, side := range []string{"x", "y"} {
			files[fmt.Sprintf("l%d%s/kustomization.yaml", i, side)] = fmt.Sprintf("resources: [../l%d]\nnamePrefix: %s-\n", i-1, side)
		}
		files[fmt.Sprintf("l%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../l%dx, ../l%dy]\n", i, i)
	}
	files["kustomization.yaml"] = fmt.Sprintf("resources: [l%d]\n", depth)
	return files
}

// Chain is kustomizations each of which includes the one before it.
func Chain(depth int) map[string]string {
	files := map[string]string{"b0/kustomization.yaml": "resources: [a.yaml]\n", "b0/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"}
	for i := 1; i <= depth; i++ {
		files[fmt.Sprintf("b%d/kustomization.yaml", i)] = fmt.Sprintf("resources: [../b%d]\n", i-1)
	}
	files["kustomization.yaml"] = fmt.Sprintf("resources: [b%d]\n", depth)
	return files
}

// Many is a number of small files below a directory.
func Many(dir string, n int) map[string]string {
	files := make(map[string]string, n)
	for i := range n {
		files[fmt.Sprintf("%s/%03d/f%06d.txt", dir, i%500, i)] = "x"
	}
	return files
}

// HostilePaths are spellings of paths that lead, or seem to lead, out of a
// tree, and others that no tool should choke on.
func HostilePaths() []string {
	return []string{
		"..", "../", "../..", "../x", "a/../../x", "./../x", "/etc/passwd", "//etc/passwd", "///", "/../etc/passwd", "/proc/self/environ",
		`..\..\etc\passwd`, `\\host\share`, `C:\x`, "%2e%2e/etc/passwd", "..%2fetc%2fpasswd", "%252e%252e/", "..;/etc", "․․/etc/passwd", "‥/etc", "．．/etc/passwd",
		"a\x00b", "a\x00/../../etc/passwd", "a\nb", "a\rb", "\u202eetc", "\xff\xfe", strings.Repeat("a/", 3000), strings.Repeat("../", 500) + "etc/passwd", strings.Repeat("x", 70_000),
		".git", ".git/config", ".GIT/config", "a/.git/HEAD", "~/.ssh/id_rsa", "~root/x", "$HOME/x", "${HOME}/x", "$(id)", "`id`", "; id", "| id", "&& id",
		"-", "--help", "-oProxyCommand=x", "--", "file:///etc/passwd", "file:/etc/passwd", "file://localhost/etc/passwd", "http://127.0.0.1/x", "http://169.254.169.254/latest/meta-data",
		"http://[::1]/x", "git::https://example.com/x", "git::file:///etc", "ext::sh -c id", "ssh://git@example.com/x", "git@example.com:x/y", "s3::https://x/y", "oci://x/y",
		"data:text/plain,x", "javascript:x", "HTTP://EXAMPLE.COM/x", "github.com/a/b//c?ref=x", "secrets://x", "sops://x", "vault+x://y", " ../x", "../x ", "\t../x", "con", "nul", "a/./b/.//c", "",
	}
}
