package charts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// chartLayer is the type of the layer that holds a chart's archive.
const chartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// Bounds of what a registry may answer.
const (
	maxTags     = 20_000
	maxManifest = 1 << 20 // bytes
)

var errTooManyTags = fault.New(fault.Exceeded, "it has more than %d tags", maxTags)

// A registry is an OCI registry below one address.
type registry struct {
	*Client
	conn *connection
}

func (r *registry) repository(ref hub.ChartRef) (*remote.Repository, error) {
	name := strings.TrimPrefix(strings.TrimSuffix(ref.Repository, "/"), "oci://") + "/" + ref.Name
	repo, err := remote.NewRepository(name)
	if err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "%q is not the name of a repository in a registry", short(name)), "", "registries accept small letters, digits, -, _ and .")
	}
	cred := r.conn.access.Credential
	repo.Client = &auth.Client{
		Client: r.conn.http, Cache: auth.NewCache(),
		Credential: auth.StaticCredential(r.conn.host, auth.Credential{Username: cred.Username, Password: cred.Password, AccessToken: cred.BearerToken}),
	}
	return repo, nil
}

func (r *registry) choose(ctx context.Context, ref hub.ChartRef) (choice, error) {
	repo, err := r.repository(ref)
	if err != nil {
		return choice{}, err
	}
	version := ref.Version
	if !exact(version) {
		began := r.cfg.Now()
		version, err = newest(ctx, repo, ref)
		r.cfg.Observe("get-tags", ref.Repository, err, r.cfg.Now().Sub(began))
		if err != nil {
			return choice{}, err
		}
	}
	began := r.cfg.Now()
	desc, err := repo.Resolve(ctx, tagOf(version))
	r.cfg.Observe("resolve-revision", ref.Repository, err, r.cfg.Now().Sub(began))
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return choice{}, noVersion(hub.ChartRef{Repository: ref.Repository, Name: ref.Name, Version: version})
	case err != nil:
		return choice{}, r.explain(ref, err)
	}
	layer, err := layerOf(ctx, repo, desc)
	if err != nil {
		return choice{}, r.explain(ref, err)
	}
	return choice{version: version, address: ref.Repository + "/" + ref.Name, digest: layer.Digest.String()}, nil
}

// newest finds the version of a range among a repository's tags.
func newest(ctx context.Context, repo *remote.Repository, ref hub.ChartRef) (string, error) {
	var versions []string
	err := repo.Tags(ctx, "", func(tags []string) error {
		for _, tag := range tags {
			versions = append(versions, strings.ReplaceAll(tag, "_", "+"))
		}
		if len(versions) > maxTags {
			return errTooManyTags
		}
		return nil
	})
	if err != nil {
		return "", explainRegistry(ref, err)
	}
	place, err := pick(ref, versions)
	if err != nil {
		return "", err
	}
	return versions[place], nil
}

// tagOf is the tag of a version: tags have no plus sign.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "_") }

// layerOf finds the layer with the chart.
func layerOf(ctx context.Context, repo *remote.Repository, desc ocispec.Descriptor) (ocispec.Descriptor, error) {
	if desc.Size > maxManifest {
		return desc, fault.New(fault.Exceeded, "its manifest has more than %d bytes", maxManifest)
	}
	body, err := repo.Manifests().Fetch(ctx, desc)
	if err != nil {
		return desc, fmt.Errorf("fetch the manifest: %w", err)
	}
	defer func() { _ = body.Close() }() // nothing was written
	text, err := readAtMost(ctx, "the manifest", body, maxManifest)
	if err != nil {
		return desc, err
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(text, &manifest); err != nil {
		return desc, fault.New(fault.Invalid, "its manifest cannot be read")
	}
	i := slices.IndexFunc(manifest.Layers, func(l ocispec.Descriptor) bool { return l.MediaType == chartLayer })
	if i < 0 || manifest.Layers[i].Digest.Validate() != nil || manifest.Layers[i].Digest.Algorithm() != "sha256" {
		return desc, fault.With(fault.New(fault.Invalid, "it contains no chart"), "", "push it with helm push")
	}
	return manifest.Layers[i], nil
}

func (r *registry) fetch(ctx context.Context, ref hub.ChartRef, pick choice) (data []byte, err error) {
	began := r.cfg.Now()
	defer func() { r.cfg.Observe("extract", ref.Repository, err, r.cfg.Now().Sub(began)) }()
	repo, err := r.repository(ref)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("the chart %s %s of %s", ref.Name, pick.version, ref.Repository)
	desc, err := repo.Blobs().Resolve(ctx, pick.digest)
	if err != nil {
		return nil, r.explain(ref, err)
	}
	if desc.Size > r.cfg.ArchiveBytes {
		return nil, fault.New(fault.Exceeded, "%s has more than %d bytes", what, r.cfg.ArchiveBytes)
	}
	body, err := repo.Blobs().Fetch(ctx, desc)
	if err != nil {
		return nil, r.explain(ref, err)
	}
	defer func() { _ = body.Close() }() // nothing was written
	return readAtMost(ctx, what, body, r.cfg.ArchiveBytes)
}

func (r *registry) explain(ref hub.ChartRef, err error) error { return explainRegistry(ref, err) }

// explainRegistry returns why a registry did not serve something, without text
// of the registry.
func explainRegistry(ref hub.ChartRef, err error) error {
	what := fmt.Sprintf("the chart %s of %s", ref.Name, ref.Repository)
	var status *errcode.ErrorResponse
	switch {
	case errors.As(err, &status):
		return answered(what, status.StatusCode)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return answered(what, 401)
	case errors.Is(err, errdef.ErrNotFound):
		return answered(what, 404)
	}
	return explain(what, err)
}
