// Package chartstest serves charts to tests: a chart repository over HTTP, as
// helm repo index would lay it out, and an OCI registry. Both listen on
// loopback, may require a password, and count requests.
package chartstest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// Pack returns the archive of a chart with the files; Chart.yaml is made.
func Pack(name, version string, files map[string]string) []byte {
	all := maps.Clone(files)
	if all == nil {
		all = map[string]string{}
	}
	if all["Chart.yaml"] == "" {
		all["Chart.yaml"] = fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version)
	}
	var out bytes.Buffer
	gz := gzip.NewWriter(&out)
	tw := tar.NewWriter(gz)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		must(tw.WriteHeader(&tar.Header{Name: name + "/" + file, Mode: 0o644, Size: int64(len(all[file]))}))
		_, err := io.WriteString(tw, all[file])
		must(err)
	}
	must(tw.Close())
	must(gz.Close())
	return out.Bytes()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Digest is "sha256:" and the digest of an archive.
func Digest(archive []byte) string {
	sum := sha256.Sum256(archive)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// A Server serves charts over TLS.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	user     string
	password string
	asked    map[string]int
	entries  map[string][]entry
	archives map[string][]byte
	override map[string]http.HandlerFunc
}

type entry struct{ version, url, digest string }

func start(handler func(*Server) http.Handler) *Server {
	s := &Server{asked: map[string]int{}, entries: map[string][]entry{}, archives: map[string][]byte{}, override: map[string]http.HandlerFunc{}}
	served := handler(s)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.Method+" "+r.URL.Path]++
		user, password, own := s.user, s.password, s.override[r.URL.Path]
		s.mu.Unlock()
		gotUser, gotPassword, _ := r.BasicAuth()
		switch {
		case user != "" && (gotUser != user || gotPassword != password):
			w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
			w.WriteHeader(http.StatusUnauthorized)
		case own != nil:
			own(w, r)
		default:
			served.ServeHTTP(w, r)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	return s
}

// NewRepository starts an empty chart repository.
func NewRepository() *Server {
	return start(func(s *Server) http.Handler { return http.HandlerFunc(s.file) })
}

// NewRegistry starts an empty OCI registry.
func NewRegistry() *Server {
	return start(func(*Server) http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) })
}

// Authority is the certificate of the server's authority, as PEM.
func (s *Server) Authority() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// Protect makes the server require a user name and password.
func (s *Server) Protect(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user, s.password = user, password
}

// Answer has the server answer a path in another way.
func (s *Server) Answer(path string, with http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.override[path] = with
}

// Asked is how often a path was requested by GET.
func (s *Server) Asked(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked["GET "+path]
}

// Requests is how many requests the server got.
func (s *Server) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, times := range s.asked {
		n += times
	}
	return n
}

// Publish adds a version of a chart to a chart repository, and returns the
// digest of its archive.
func (s *Server) Publish(name, version string, files map[string]string) string {
	archive := Pack(name, version, files)
	s.mu.Lock()
	defer s.mu.Unlock()
	file := fmt.Sprintf("charts/%s-%s.tgz", name, version)
	s.archives["/"+file] = archive
	s.entries[name] = append(s.entries[name], entry{version, file, Digest(archive)})
	return Digest(archive)
}

// file serves the index, with an ETag, and the archives.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	body, there := s.archives[r.URL.Path]
	if r.URL.Path == "/index.yaml" {
		body, there = s.index(), true
	}
	s.mu.Unlock()
	etag := `"` + Digest(body) + `"`
	switch {
	case !there:
		http.NotFound(w, r)
	case r.Header.Get("If-None-Match") == etag:
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("ETag", etag)
		_, _ = w.Write(body)
	}
}

// index writes what helm repo index writes.
func (s *Server) index() []byte {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nentries:\n")
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		fmt.Fprintf(&b, "  %s:\n", name)
		for _, e := range s.entries[name] {
			fmt.Fprintf(&b, "  - apiVersion: v2\n    created: \"2026-01-02T03:04:05Z\"\n    description: |-\n      Two lines,\n      of which one ends with a colon:\n"+
				"    digest: %s\n    name: %s\n    urls:\n    - %s\n    version: %s\n", strings.TrimPrefix(e.digest, "sha256:"), name, e.url, e.version)
		}
	}
	b.WriteString("generated: \"2026-01-02T03:04:05Z\"\n")
	return []byte(b.String())
}

// Push pushes a chart to a registry as helm push does: below a path, under its
// name, tagged with its version.
func (s *Server) Push(ctx context.Context, below, name, version string, files map[string]string) (string, error) {
	repo, err := remote.NewRepository(strings.TrimPrefix(s.URL, "https://") + "/" + below + "/" + name)
	if err != nil {
		return "", fmt.Errorf("name the repository: %w", err)
	}
	s.mu.Lock()
	cred := auth.Credential{Username: s.user, Password: s.password}
	s.mu.Unlock()
	repo.Client = &auth.Client{Client: s.Client(), Credential: auth.StaticCredential(strings.TrimPrefix(s.URL, "https://"), cred)}
	archive, config := Pack(name, version, files), []byte("{}")
	push := func(mediaType string, data []byte) (ocispec.Descriptor, error) {
		desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		return desc, repo.Blobs().Push(ctx, desc, bytes.NewReader(data))
	}
	layer, err := push("application/vnd.cncf.helm.chart.content.v1.tar+gzip", archive)
	if err != nil {
		return "", fmt.Errorf("push the archive: %w", err)
	}
	conf, err := push("application/vnd.cncf.helm.config.v1+json", config)
	if err != nil {
		return "", fmt.Errorf("push the configuration: %w", err)
	}
	text, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: conf, Layers: []ocispec.Descriptor{layer},
	})
	if err != nil {
		return "", fmt.Errorf("write the manifest: %w", err)
	}
	desc := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromBytes(text), Size: int64(len(text))}
	if err := repo.Manifests().PushReference(ctx, desc, bytes.NewReader(text), strings.ReplaceAll(version, "+", "_")); err != nil {
		return "", fmt.Errorf("push the manifest: %w", err)
	}
	return Digest(archive), nil
}
