package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/capstan-cd/capstan/shared/version"
)

// user is who everything runs as. It owns nothing in the image.
const user = 65532

// mains are the packages of the binaries, by image.
func mains() map[string]string {
	return map[string]string{
		"capstan-hub": "./hub/cmd/capstan-hub", "capstan-agent": "./agent/cmd/capstan-agent", "capstan": "./cli/cmd/capstan",
	}
}

// builder builds images of one checkout.
type builder struct {
	source, out, authorities string
	created                  time.Time
	say                      func(format string, args ...any)
}

// image builds one image for all platforms, writes its layout and gives its
// digest.
func (b builder) image(ctx context.Context, name string, platforms []string) (v1.Hash, error) {
	if mains()[name] == "" {
		return v1.Hash{}, errors.New("there is no such image; there are capstan-hub, capstan-agent and capstan")
	}
	base, err := b.base()
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, text := range platforms {
		platform, err := v1.ParsePlatform(text)
		if err != nil || platform.OS != "linux" || platform.Architecture == "" {
			return v1.Hash{}, fmt.Errorf("platform %q is not written like linux/amd64", text)
		}
		img, err := b.build(ctx, name, *platform, base)
		if err != nil {
			return v1.Hash{}, fmt.Errorf("for %s: %w", text, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	dir := filepath.Join(b.out, name)
	if err := os.RemoveAll(dir); err != nil {
		return v1.Hash{}, fmt.Errorf("take the old layout away: %w", err)
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("write the layout: %w", err)
	}
	// The name by which tools such as skopeo and oras find it in a layout.
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version.Number})
	if err := path.AppendIndex(index, named); err != nil {
		return v1.Hash{}, fmt.Errorf("write the layout: %w", err)
	}
	return index.Digest()
}

// build makes the image of one platform, and writes its list of modules.
func (b builder) build(ctx context.Context, name string, platform v1.Platform, base v1.Layer) (v1.Image, error) {
	dir, err := os.MkdirTemp("", "capstan-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, name)
	if err := b.compile(ctx, binary, mains()[name], platform); err != nil {
		return nil, err
	}
	list, revision, err := bill(binary, name, b.created)
	if err != nil {
		return nil, err
	}
	file := fmt.Sprintf("%s-%s-%s.spdx.json", name, platform.OS, platform.Architecture)
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(b.out, file), list, 0o644); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	program, err := b.layer([]entry{{name: "usr/", dir: true}, {name: "usr/local/", dir: true}, {name: "usr/local/bin/", dir: true},
		{name: "usr/local/bin/" + name, mode: 0o755, content: content}})
	if err != nil {
		return nil, err
	}
	return b.assemble(name, revision, platform, base, program)
}

func (b builder) assemble(name, revision string, platform v1.Platform, layers ...v1.Layer) (v1.Image, error) {
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		return nil, fmt.Errorf("put the layers together: %w", err)
	}
	labels := map[string]string{
		"org.opencontainers.image.title": name, "org.opencontainers.image.version": version.Number,
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/capstan-cd/capstan",
		"org.opencontainers.image.created": b.created.Format(time.RFC3339),
	}
	if revision != "" {
		labels["org.opencontainers.image.revision"] = revision
	}
	config := &v1.ConfigFile{
		Architecture: platform.Architecture, OS: platform.OS, Variant: platform.Variant, Created: v1.Time{Time: b.created},
		Config: v1.Config{
			User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/usr/local/bin/" + name}, WorkingDir: "/",
			Env: []string{"PATH=/usr/local/bin", "HOME=/tmp"}, Labels: labels,
		},
	}
	old, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config.RootFS = old.RootFS
	return mutate.ConfigFile(img, config)
}

// compile builds a static binary.
func (b builder) compile(ctx context.Context, out, pkg string, p v1.Platform) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=auto", "-ldflags=-s -w -buildid=", "-o", out, pkg)
	cmd.Dir = b.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Architecture)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// base is what every image has besides its binary.
func (b builder) base() (v1.Layer, error) {
	authorities, err := os.ReadFile(b.authorities)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authorities (Debian has them in the package ca-certificates): %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s holds no certificate in PEM", b.authorities)
	}
	return b.layer([]entry{
		{name: "etc/", dir: true}, {name: "etc/ssl/", dir: true}, {name: "etc/ssl/certs/", dir: true},
		{name: "etc/group", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:\ncapstan:x:%d:\n", user)},
		{name: "etc/passwd", mode: 0o644, content: fmt.Appendf(nil, "root:x:0:0:root:/:/none\ncapstan:x:%[1]d:%[1]d:capstan:/tmp:/none\n", user)},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, content: authorities},
		{name: "tmp/", dir: true, mode: 0o1777},
	})
}

// entry is one file or folder of a layer, owned by root.
type entry struct {
	name    string
	dir     bool
	mode    int64
	content []byte
}

// layer packs files in their order with the time of the build.
func (b builder) layer(entries []entry) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: e.mode, Size: int64(len(e.content)), ModTime: b.created, Format: tar.FormatPAX}
		if e.dir {
			h.Typeflag = tar.TypeDir
			if h.Mode == 0 {
				h.Mode = 0o755
			}
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	text := packed.Bytes()
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer))
}
