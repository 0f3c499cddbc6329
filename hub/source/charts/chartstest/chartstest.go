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
	"net/http/httputil"
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

	unmodified int

	entries  map[string][]entry
	archives map[string][]byte
	override map[string]http.HandlerFunc
	before   func(http.ResponseWriter, *http.Request) bool
}

// Authority is the certificate of the authority of all servers, as PEM.
func Authority() string {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
}

// All has every request handled by a function first, which reports whether it
// has answered.
func (s *Server) All(first func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = first
}

// Stall has the server answer no request until release is called. A value comes
// for each request.
func (s *Server) Stall() (requests <-chan struct{}, release func()) {
	arrived, released := make(chan struct{}, 1000), make(chan struct{})
	s.All(func(_ http.ResponseWriter, r *http.Request) bool {
		arrived <- struct{}{}
		select {
		case <-released:
		case <-r.Context().Done():
		}
		return false
	})
	return arrived, sync.OnceFunc(func() { close(released) })
}

// Break has the server answer every request with an error.
func (s *Server) Break() {
	s.All(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
}

type entry struct{ version, url, digest string }

func start(handler func(*Server) http.Handler) *Server {
	s := &Server{asked: map[string]int{}, entries: map[string][]entry{}, archives: map[string][]byte{}, override: map[string]http.HandlerFunc{}}
	served := handler(s)
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked[r.Method+" "+r.URL.Path]++
		user, password, own, before := s.user, s.password, s.override[r.URL.Path], s.before
		s.mu.Unlock()
		if before != nil && before(w, r) {
			return
		}
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

// NewFront starts a server in front of a registry without TLS, so that a test
// can change what it requires and answers.
func NewFront(host string) *Server {
	return start(func(*Server) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host = "http", host
				r.SetXForwarded()
			},
			ErrorLog: log.New(io.Discard, "", 0),
		}
	})
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

// NotModified is how often a conditional request was answered by "not modified".
func (s *Server) NotModified() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unmodified
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

// Republish replaces the archive of a version.
func (s *Server) Republish(name, version string, files map[string]string) (digest string) {
	s.mu.Lock()
	s.entries[name] = slices.DeleteFunc(s.entries[name], func(e entry) bool { return e.version == version })
	s.mu.Unlock()
	return s.Publish(name, version, files)
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
		s.mu.Lock()
		s.unmodified++
		s.mu.Unlock()
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
	archive := Pack(name, version, files)
	_, err := s.Registry().Push(ctx, below+"/"+name, strings.ReplaceAll(version, "+", "_"), Chart(archive))
	return Digest(archive), err
}

// Registry is the server as one that artifacts are pushed to.
func (s *Server) Registry() Registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Registry{Host: strings.TrimPrefix(s.URL, "https://"), Client: s.Client(), User: s.user, Password: s.password}
}

// OCI is the address of a repository of the server.
func (s *Server) OCI(name string) string {
	return strings.Replace(s.URL, "https://", "oci://", 1) + "/" + name
}

// A Registry is an OCI registry that artifacts are pushed to.
type Registry struct {
	Host           string
	Client         *http.Client
	Plain          bool // without TLS
	User, Password string
}

// An Artifact is what is pushed.
type Artifact struct {
	Config      string // its media type
	Layers      []Layer
	Annotations map[string]string
	MediaType   string // of the manifest; empty: that of an image
}

// A Layer is one part of an artifact.
type Layer struct {
	MediaType string
	Data      []byte
}

// Chart is the artifact that helm push makes of an archive.
func Chart(archive []byte) Artifact {
	return Artifact{Config: "application/vnd.cncf.helm.config.v1+json", Layers: []Layer{{"application/vnd.cncf.helm.chart.content.v1.tar+gzip", archive}}}
}

// Files is an artifact with files in one layer, as oras push or flux push make
// them.
func Files(files map[string]string) Artifact {
	return Artifact{Config: "application/vnd.oci.empty.v1+json", Layers: []Layer{{ocispec.MediaTypeImageLayerGzip, Tar(files)}}}
}

// Tar packs and compresses files.
func Tar(files map[string]string) []byte {
	var out bytes.Buffer
	gz := gzip.NewWriter(&out)
	tw := tar.NewWriter(gz)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		must(tw.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: int64(len(files[file]))}))
		_, err := io.WriteString(tw, files[file])
		must(err)
	}
	must(tw.Close())
	must(gz.Close())
	return out.Bytes()
}

// Repository opens a repository of the registry.
func (r Registry) Repository(name string) (*remote.Repository, error) {
	repo, err := remote.NewRepository(r.Host + "/" + name)
	if err != nil {
		return nil, fmt.Errorf("name the repository: %w", err)
	}
	repo.PlainHTTP = r.Plain
	repo.Client = &auth.Client{Client: r.Client, Credential: auth.StaticCredential(r.Host, auth.Credential{Username: r.User, Password: r.Password})}
	return repo, nil
}

// Push pushes an artifact under a tag, and returns the digest of its manifest.
func (r Registry) Push(ctx context.Context, name, tag string, a Artifact) (string, error) {
	repo, err := r.Repository(name)
	if err != nil {
		return "", err
	}
	push := func(mediaType string, data []byte) (ocispec.Descriptor, error) {
		desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
		if there, err := repo.Blobs().Exists(ctx, desc); there || err != nil {
			return desc, err
		}
		return desc, repo.Blobs().Push(ctx, desc, bytes.NewReader(data))
	}
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Annotations: a.Annotations}
	if a.MediaType != "" {
		m.MediaType = a.MediaType
	}
	for _, l := range a.Layers {
		desc, err := push(l.MediaType, l.Data)
		if err != nil {
			return "", fmt.Errorf("push a layer: %w", err)
		}
		m.Layers = append(m.Layers, desc)
	}
	if m.Config, err = push(a.Config, []byte("{}")); err != nil {
		return "", fmt.Errorf("push the configuration: %w", err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("write the manifest: %w", err)
	}
	return r.PushManifest(ctx, name, tag, m.MediaType, text)
}

// PushManifest pushes the text of a manifest under a tag.
func (r Registry) PushManifest(ctx context.Context, name, tag, mediaType string, text []byte) (string, error) {
	repo, err := r.Repository(name)
	if err != nil {
		return "", err
	}
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	if err := repo.Manifests().PushReference(ctx, desc, bytes.NewReader(text), tag); err != nil {
		return "", fmt.Errorf("push the manifest: %w", err)
	}
	return desc.Digest.String(), nil
}
