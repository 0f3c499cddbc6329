// Package oci is the source of OCI artifacts: manifests, charts or anything else
// that is packed in one layer of an artifact of a registry. The revision of an
// artifact is the digest of its manifest. hub/source/archives stores what it
// downloads.
package oci

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/shared/fault"
)

// DefaultMediaTypes are those of the one layer that an artifact may have
// (SRC-04).
func DefaultMediaTypes() []string {
	return []string{"application/vnd.oci.image.layer.v1.tar", "application/vnd.oci.image.layer.v1.tar+gzip", charts.ChartLayer}
}

// An Origin finds and reads artifacts.
type Origin struct {
	client *charts.Client
	types  []string
	most   int64
}

var _ archives.Origin = (*Origin)(nil)

// New makes the origin of artifacts. Their layer has one of the media types;
// none: DefaultMediaTypes. Most is how large it may be, packed, in bytes.
func New(client *charts.Client, mediaTypes []string, most int64) *Origin {
	if len(mediaTypes) == 0 {
		mediaTypes = DefaultMediaTypes()
	}
	return &Origin{client, mediaTypes, most}
}

// Open prepares calls to a repository.
func (o *Origin) Open(p archives.Place, _ bool) (archives.Session, error) {
	conn, err := o.client.Open(p.Repository.URL, p.Access)
	if err != nil {
		return nil, err
	}
	return &session{Origin: o, place: p, conn: conn}, nil
}

type session struct {
	*Origin
	place archives.Place
	conn  *charts.Connection
}

func (s *session) Close() { s.conn.Close() }

// Check contacts the registry.
func (s *session) Check(ctx context.Context) error { return s.conn.Ping(ctx) }

// artifact is the repository of an artifact. A chart is one below the address.
func (s *session) artifact(chart string) (*charts.OCIRepository, error) {
	u, err := url.Parse(s.place.Repository.URL)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address cannot be parsed")
	}
	name := strings.Trim(u.Path, "/")
	if chart != "" {
		name += "/" + chart
	}
	return s.conn.OCIRepository(name, "the artifact "+strings.TrimSuffix(s.place.Repository.URL+"/"+chart, "/"))
}

// List returns the tags of the artifact.
func (s *session) List(ctx context.Context, chart string) (hub.Listing, error) {
	repo, err := s.artifact(chart)
	if err != nil {
		return hub.Listing{}, err
	}
	tags, err := repo.Tags(ctx)
	return hub.Listing{Tags: tags}, err
}

// Choose finds the digest that a target selects: a digest or a tag itself, or
// the highest version of a range among the tags.
func (s *session) Choose(ctx context.Context, t hub.Target) (archives.Choice, error) {
	repo, err := s.artifact(t.Chart)
	if err != nil {
		return archives.Choice{}, err
	}
	reference := t.Revision
	if ranged(reference) {
		tags, err := repo.Tags(ctx)
		if err != nil {
			return archives.Choice{}, err
		}
		if reference, err = newest(s.place.Repository.URL, t, tags); err != nil {
			return archives.Choice{}, err
		}
	}
	desc, err := repo.Resolve(ctx, strings.ReplaceAll(reference, "+", "_"))
	if err != nil {
		return archives.Choice{}, err
	}
	digest := desc.Digest.String()
	return archives.Choice{Target: t, Commit: digest, Digest: digest, Origin: desc}, nil
}

// ranged reports whether a revision selects among tags, and is none itself.
func ranged(revision string) bool {
	if revision == "" {
		return true
	}
	if charts.Exact(revision) {
		return false
	}
	_, err := semver.NewConstraint(revision)
	return err == nil
}

// latest is the tag that an artifact without versions is taken by, where the
// source names no revision.
const latest = "latest"

// newest is the tag that a range selects.
func newest(repository string, t hub.Target, tags []string) (string, error) {
	place, err := charts.Newest(hub.ChartRef{Repository: repository, Name: t.Chart, Version: t.Revision}, tags)
	switch {
	case err == nil:
		return tags[place], nil
	case t.Revision == "" && slices.Contains(tags, latest):
		return latest, nil
	case errors.Is(err, charts.ErrNone):
		return "", fault.With(fault.Wrap(fault.Invalid, charts.ErrNone, "no tag of it is a version in the range %q", archives.Clip(t.Revision)), "",
			"correct the revision; a range leaves out pre-releases unless it names one")
	}
	return "", err
}

// Download reads the one layer of an artifact.
func (s *session) Download(ctx context.Context, c archives.Choice, into *archives.Download) error {
	desc, ok := c.Origin.(charts.Descriptor)
	if !ok {
		return errors.New("the choice is none of this origin")
	}
	repo, err := s.artifact(c.Target.Chart)
	if err != nil {
		return err
	}
	manifest, err := repo.Manifest(ctx, desc)
	if err != nil {
		return err
	}
	layer, err := s.layer(manifest)
	if err != nil {
		return err
	}
	body, err := repo.Blob(ctx, layer, s.most)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // nothing was written
	packed := layer.MediaType == charts.ChartLayer
	if err := into.Unpack(body, packed); err != nil {
		return err
	}
	info := hub.CommitInfo{Artifact: infoOf(manifest.Annotations)}
	info.Message, info.Author = info.Artifact.Description, info.Artifact.Authors
	if packed {
		if info.Chart, err = into.Chart(); err != nil {
			return err
		}
	}
	into.Is(c.Digest, info)
	return nil
}

// layer is the one layer with content (SRC-04).
func (s *session) layer(m charts.Manifest) (charts.Descriptor, error) {
	if len(m.Layers) != 1 {
		return charts.Descriptor{}, fault.With(fault.New(fault.Invalid, "the artifact has %d layers, and must have one", len(m.Layers)), "", "pack its files into one layer")
	}
	layer := m.Layers[0]
	if !slices.Contains(s.types, layer.MediaType) {
		return charts.Descriptor{}, fault.With(fault.New(fault.Invalid, "its layer has the media type %q, and one of these is accepted: %s", archives.Clip(layer.MediaType), strings.Join(s.types, ", ")), "",
			"push it with another media type, or let the operator add this one to sources.ociLayerMediaTypes")
	}
	return layer, nil
}

// infoOf reads the standard annotations (SRC-05).
func infoOf(annotations map[string]string) *hub.ArtifactInfo {
	of := func(name string) string { return archives.Clip(annotations["org.opencontainers.image."+name]) }
	return &hub.ArtifactInfo{
		Title: of("title"), Description: of("description"), Version: of("version"), Revision: of("revision"),
		URL: of("url"), Source: of("source"), Authors: of("authors"), Created: of("created"),
	}
}
