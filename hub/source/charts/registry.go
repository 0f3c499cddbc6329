package charts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Bounds of what a registry may answer.
const (
	maxTags     = 20_000
	maxManifest = 1 << 20 // bytes
	maxLayers   = 1000
)

var errTooManyTags = fault.New(fault.Exceeded, "it has more than %d tags", maxTags)

// An OCIRepository is one repository of a registry: what tags and manifests are
// in.
type OCIRepository struct {
	conn *Connection
	repo *remote.Repository
	what string // for messages
}

// A Descriptor names a blob or manifest by its digest.
type Descriptor = ocispec.Descriptor

// A Manifest is what is used of the manifest of an artifact.
type Manifest struct {
	MediaType   string            `json:"mediaType"`
	Config      Descriptor        `json:"config"`
	Layers      []Descriptor      `json:"layers"`
	Manifests   []json.RawMessage `json:"manifests"` // of an index, which is none of one artifact
	Annotations map[string]string `json:"annotations"`
}

// OCIRepository is the repository with a name in the registry of the connection. What
// is how messages call it.
func (c *Connection) OCIRepository(name, what string) (*OCIRepository, error) {
	full := c.host + "/" + strings.Trim(name, "/")
	repo, err := remote.NewRepository(full)
	if err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "%q is not the name of a repository in a registry", short(full)), "", "registries accept small letters, digits, -, _ and .")
	}
	repo.PlainHTTP = c.access.PlainHTTP
	repo.Client = c.authorized()
	return &OCIRepository{c, repo, what}, nil
}

// authorized is a client that proves who asks, to the registry's own host and to
// the server that it names for tokens.
func (c *Connection) authorized() *auth.Client {
	cred := c.access.Credential
	return &auth.Client{
		Client: c.http, Cache: auth.NewCache(),
		Credential: auth.StaticCredential(c.host, auth.Credential{Username: cred.Username, Password: cred.Password, AccessToken: cred.BearerToken}),
	}
}

// Ping contacts the registry, and says whether it accepts the credential.
func (c *Connection) Ping(ctx context.Context) error {
	registry, err := remote.NewRegistry(c.host)
	if err != nil {
		return fault.New(fault.Invalid, "%q is not the address of a registry", short(c.address))
	}
	registry.PlainHTTP, registry.Client = c.access.PlainHTTP, c.authorized()
	if err := registry.Ping(ctx); err != nil {
		return c.explainRegistry("the registry "+c.address, err)
	}
	return nil
}

func (s *OCIRepository) observe(kind string, began time.Time, err error) {
	s.conn.cfg.Observe(kind, s.conn.address, err, s.conn.cfg.Now().Sub(began))
}

// Tags lists the tags.
func (s *OCIRepository) Tags(ctx context.Context) (tags []string, err error) {
	defer func(began time.Time) { s.observe("get-tags", began, err) }(s.conn.cfg.Now())
	err = s.repo.Tags(ctx, "", func(page []string) error {
		if tags = append(tags, page...); len(tags) > maxTags {
			return errTooManyTags
		}
		return nil
	})
	if err != nil {
		return nil, s.conn.explainRegistry(s.what, err)
	}
	return tags, nil
}

// Resolve returns what a tag or a digest stands for. ErrNone is in the chain of
// the error if there is no such.
func (s *OCIRepository) Resolve(ctx context.Context, reference string) (desc Descriptor, err error) {
	defer func(began time.Time) { s.observe("resolve-revision", began, err) }(s.conn.cfg.Now())
	desc, err = s.repo.Resolve(ctx, reference)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return desc, fault.With(fault.Wrap(fault.Invalid, ErrNone, "%s has no tag or digest %q", s.what, short(reference)), "", "correct the revision")
	case errors.Is(err, errdef.ErrInvalidReference):
		return desc, fault.With(fault.Wrap(fault.Invalid, ErrNone, "%q is neither a tag nor a digest of %s", short(reference), s.what), "", "correct the revision")
	case err != nil:
		return desc, s.conn.explainRegistry(s.what, err)
	}
	return desc, nil
}

// Manifest reads a manifest and checks its digest.
func (s *OCIRepository) Manifest(ctx context.Context, desc Descriptor) (Manifest, error) {
	var m Manifest
	if desc.Size > maxManifest {
		return m, fault.New(fault.Exceeded, "the manifest of %s has more than %d bytes", s.what, maxManifest)
	}
	body, err := s.repo.Manifests().Fetch(ctx, desc)
	if err != nil {
		return m, s.conn.explainRegistry(s.what, err)
	}
	defer func() { _ = body.Close() }() // nothing was written
	text, err := content.ReadAll(body, desc)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return m, s.conn.explainRegistry("the manifest of "+s.what, err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fault.New(fault.Invalid, "the manifest of %s cannot be read", s.what)
	}
	switch {
	case len(m.Manifests) > 0:
		return m, fault.With(fault.New(fault.Invalid, "%s is an index of %d manifests, and no artifact", s.what, len(m.Manifests)), "", "push one artifact under a tag of its own")
	case len(m.Layers) > maxLayers:
		return m, fault.New(fault.Exceeded, "%s has more than %d layers", s.what, maxLayers)
	case m.MediaType != "" && desc.MediaType != "" && m.MediaType != desc.MediaType:
		return m, fault.New(fault.Invalid, "the registry serves the manifest of %s as another type than it says", s.what)
	}
	return m, nil
}

// Blob opens a blob of at most so many bytes. Reading it ends with an error if
// its bytes are not those of its digest.
func (s *OCIRepository) Blob(ctx context.Context, desc Descriptor, most int64) (io.ReadCloser, error) {
	if desc.Digest.Validate() != nil || desc.Digest.Algorithm() != "sha256" {
		return nil, fault.New(fault.Invalid, "a layer of %s has no usable digest", s.what)
	}
	if desc.Size > most {
		return nil, fault.With(fault.New(fault.Exceeded, "%s has a layer of %d bytes, and at most %d are read", s.what, desc.Size, most), "", "keep large files out of the artifact")
	}
	began := s.conn.cfg.Now()
	body, err := s.repo.Blobs().Fetch(ctx, desc)
	if err != nil {
		s.observe("extract", began, err)
		return nil, s.conn.explainRegistry(s.what, err)
	}
	return &blob{Reader: content.NewVerifyReader(body, desc), body: body, of: s, ctx: ctx, began: began}, nil
}

// A blob checks that it was read whole.
type blob struct {
	io.Reader
	body   io.Closer
	of     *OCIRepository
	ctx    context.Context //nolint:containedctx // of the one request that it is the answer to
	began  time.Time
	failed error
}

func (b *blob) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		verify, is := b.Reader.(*content.VerifyReader)
		if is {
			if bad := verify.Verify(); bad != nil {
				b.failed = fault.With(fault.New(fault.Invalid, "a layer of %s has other bytes than its digest says", b.of.what), "", "push it again")
				return n, b.failed
			}
		}
		return n, io.EOF
	}
	if err != nil {
		if b.ctx.Err() != nil {
			err = b.ctx.Err()
		}
		b.failed = b.of.conn.explainRegistry(b.of.what, err)
		return n, b.failed
	}
	return n, nil
}

func (b *blob) Close() error {
	b.of.observe("extract", b.began, b.failed)
	return b.body.Close()
}

// explainRegistry returns why a registry did not serve something, without text of
// the registry.
func (c *Connection) explainRegistry(what string, err error) error {
	var status *errcode.ErrorResponse
	switch {
	case errors.As(err, &status):
		return c.answered(what, status.StatusCode)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return c.answered(what, http.StatusUnauthorized)
	case errors.Is(err, errdef.ErrNotFound):
		return c.answered(what, http.StatusNotFound)
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData), errors.Is(err, content.ErrInvalidDescriptorSize):
		return fault.With(fault.New(fault.Invalid, "%s has other bytes than its digest says", what), "", "push it again")
	}
	return explain(what, err)
}

// whatOf is how messages call a chart of a registry.
func whatOf(ref hub.ChartRef) string {
	return fmt.Sprintf("the chart %s of %s", ref.Name, ref.Repository)
}
