package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// ca is one certificate authority, so that a test depends on no machine's.
const ca = `-----BEGIN CERTIFICATE-----
MIIBtjCCAVugAwIBAgITBmyf1XSXNmY/Owua2eiedgPySjAKBggqhkjOPQQDAjA5
MQswCQYDVQQGEwJVUzEPMA0GA1UEChMGQW1hem9uMRkwFwYDVQQDExBBbWF6b24g
Um9vdCBDQSAzMB4XDTE1MDUyNjAwMDAwMFoXDTQwMDUyNjAwMDAwMFowOTELMAkG
A1UEBhMCVVMxDzANBgNVBAoTBkFtYXpvbjEZMBcGA1UEAxMQQW1hem9uIFJvb3Qg
Q0EgMzBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABCmXp8ZBf8ANm+gBG1bG8lKl
ui2yEujSLtf6ycXYqm0fc4E7O5hrOXwzpcVOho6AF2hiRVd9RFgdszflZwjrZt6j
QjBAMA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgGGMB0GA1UdDgQWBBSr
ttvXBp43rDCGB5Fwx5zEGbF4wDAKBggqhkjOPQQDAgNJADBGAiEA4IWSoxe3jfkr
BqWTrBqYaGFy+uGh0PsceGCmQ5nFuMQCIQCcAu/xlJyzlvnrxir4tiz+OpAUFteM
YyRIHN8wfdVoOw==
-----END CERTIFICATE-----
`

// build runs the tool as make does, for the smallest image.
func build(t *testing.T, out, epoch string) string {
	t.Helper()
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authorities, []byte(ca), 0o600); err != nil {
		t.Fatal(err)
	}
	err := run(t.Context(), []string{"-source", "../../..", "-out", out, "-ca", authorities, "-images", "capstan", "-platforms", "linux/amd64"}, epoch)
	if err != nil {
		t.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(out, "capstan"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return m.Manifests[0].Digest.String()
}

func TestImage(t *testing.T) {
	out := t.TempDir()
	digest := build(t, out, "1700000000")
	img := open(t, filepath.Join(out, "capstan"))

	t.Run("11.8 the layout is whole", func(t *testing.T) {
		if err := validate.Image(img); err != nil {
			t.Error(err)
		}
		if kind, err := img.MediaType(); err != nil || kind != types.OCIManifestSchema1 {
			t.Errorf("media type %v, %v", kind, err)
		}
	})
	t.Run("11.8 nobody in it is root, and it holds the binary and little else", func(t *testing.T) {
		c, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c.Config.User != "65532:65532" || c.Config.Entrypoint[0] != "/usr/local/bin/capstan" || c.Created.Unix() != 1700000000 || c.Architecture != "amd64" {
			t.Errorf("config %+v", c)
		}
		if c.Config.Labels["org.opencontainers.image.title"] != "capstan" {
			t.Errorf("labels %v", c.Config.Labels)
		}
		files := content(t, img)
		for name, want := range map[string]int64{"usr/local/bin/capstan": 0o755, "etc/passwd": 0o644, "etc/ssl/certs/ca-certificates.crt": 0o644, "tmp/": 0o1777} {
			if h, ok := files[name]; !ok || h.Mode != want || h.Uid != 0 || h.ModTime.Unix() != 1700000000 {
				t.Errorf("%s: %+v", name, h)
			}
		}
		for name, h := range files {
			if h.Typeflag == tar.TypeReg && h.Mode&0o6022 != 0 {
				t.Errorf("%s can be changed, or gives rights: %o", name, h.Mode)
			}
		}
		if len(files) > 12 {
			t.Errorf("%d entries", len(files))
		}
	})
	t.Run("11.8 two builds are equal", func(t *testing.T) {
		other := t.TempDir()
		if got := build(t, other, "1700000000"); got != digest {
			t.Errorf("%s, then %s", digest, got)
		}
		const list = "capstan-linux-amd64.spdx.json"
		if !bytes.Equal(read(t, filepath.Join(out, list)), read(t, filepath.Join(other, list))) {
			t.Error("the lists of modules differ")
		}
	})
	t.Run("11.8 the list of modules names what is linked", func(t *testing.T) {
		var d document
		if err := json.Unmarshal(read(t, filepath.Join(out, "capstan-linux-amd64.spdx.json")), &d); err != nil {
			t.Fatal(err)
		}
		found := false
		ids := map[string]bool{"SPDXRef-DOCUMENT": true}
		for _, p := range d.Packages {
			found = found || (p.Name == "github.com/spf13/cobra" && p.Version != "" && len(p.Checksums) == 1)
			ids[p.ID] = true
		}
		if !found || d.SPDXVersion != "SPDX-2.3" || len(d.Packages) < 5 {
			t.Errorf("%d packages, cobra %v, %s", len(d.Packages), found, d.SPDXVersion)
		}
		for _, r := range d.Relationships {
			if !ids[r.From] || !ids[r.To] {
				t.Errorf("a relationship of nothing: %+v", r)
			}
		}
	})
	t.Run("a second build replaces the first", func(t *testing.T) {
		if got := build(t, out, "1800000000"); got == digest {
			t.Error("another time is not seen")
		}
		open(t, filepath.Join(out, "capstan"))
	})
}

func TestImageRefuses(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(none, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args  []string
		epoch string
		says  string
	}{
		"time":        {nil, "yesterday", "SOURCE_DATE_EPOCH"},
		"image":       {[]string{"-images", "capstan-console"}, "", "there is no such image"},
		"platform":    {[]string{"-images", "capstan", "-platforms", "windows/amd64"}, "", "linux/amd64"},
		"authorities": {[]string{"-ca", none}, "", "no certificate in PEM"},
		"no file":     {[]string{"-ca", none + "-none"}, "", "ca-certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := run(t.Context(), append([]string{"-out", t.TempDir()}, c.args...), c.epoch)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
		})
	}
}

// open reads the one image of a layout.
func open(t *testing.T, dir string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 {
		t.Fatalf("%v: %+v", err, top)
	}
	platforms, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := platforms.IndexManifest()
	if err != nil || len(m.Manifests) != 1 || m.Manifests[0].Platform.String() != "linux/amd64" {
		t.Fatalf("%v: %+v", err, m)
	}
	img, err := platforms.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// content lists the files of all layers.
func content(t *testing.T, img v1.Image) map[string]*tar.Header {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*tar.Header{}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for files := tar.NewReader(r); ; {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			out[h.Name] = h
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	return out
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
