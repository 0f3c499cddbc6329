package charts

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// ChartLayer is the type of the layer that holds a chart's archive.
const ChartLayer = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

// A registry is an OCI registry below one address.
type registry struct {
	*Client
	conn *Connection
}

// chartIn is the repository of a chart below the address of a registry.
func (c *Connection) chartIn(ref hub.ChartRef) (*OCIRepository, error) {
	u, err := url.Parse(c.address)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address cannot be parsed")
	}
	return c.OCIRepository(strings.Trim(u.Path, "/")+"/"+ref.Name, whatOf(ref))
}

func (r *registry) choose(ctx context.Context, ref hub.ChartRef) (choice, error) {
	return r.conn.chooseTag(ctx, ref)
}

// chooseTag finds the version of a ref among the tags of its repository.
func (c *Connection) chooseTag(ctx context.Context, ref hub.ChartRef) (choice, error) {
	repo, err := c.chartIn(ref)
	if err != nil {
		return choice{}, err
	}
	version := ref.Version
	if !exact(version) {
		tags, err := repo.Tags(ctx)
		if err != nil {
			return choice{}, err
		}
		place, err := Newest(ref, tags)
		if err != nil {
			return choice{}, err
		}
		version = versionOf(tags[place])
	}
	desc, err := repo.Resolve(ctx, tagOf(version))
	if errors.Is(err, ErrNone) {
		return choice{}, noVersion(hub.ChartRef{Repository: ref.Repository, Name: ref.Name, Version: version})
	}
	if err != nil {
		return choice{}, err
	}
	manifest, err := repo.Manifest(ctx, desc)
	if err != nil {
		return choice{}, err
	}
	layer, err := chartLayer(manifest)
	if err != nil {
		return choice{}, fault.With(err, whatOf(ref), "")
	}
	return choice{version: version, address: ref.Repository + "/" + ref.Name, digest: layer.Digest.String(), layer: layer}, nil
}

// Newest returns the place of the tag that a ref selects. Tags write "_" for
// the "+" of a version.
func Newest(ref hub.ChartRef, tags []string) (int, error) {
	versions := make([]string, len(tags))
	for i, tag := range tags {
		versions[i] = versionOf(tag)
	}
	return pick(ref, versions)
}

func versionOf(tag string) string { return strings.ReplaceAll(tag, "_", "+") }

// tagOf is the tag of a version: tags have no plus sign.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "_") }

// chartLayer finds the layer with the chart.
func chartLayer(manifest Manifest) (Descriptor, error) {
	i := slices.IndexFunc(manifest.Layers, func(l Descriptor) bool { return l.MediaType == ChartLayer })
	if i < 0 || manifest.Layers[i].Digest.Validate() != nil || manifest.Layers[i].Digest.Algorithm() != "sha256" {
		return Descriptor{}, fault.With(fault.New(fault.Invalid, "it contains no chart"), "", "push it with helm push")
	}
	return manifest.Layers[i], nil
}

func (r *registry) fetch(ctx context.Context, ref hub.ChartRef, pick choice) ([]byte, error) {
	return r.conn.layer(ctx, ref, pick)
}

// layer reads the archive of a chart in a registry.
func (c *Connection) layer(ctx context.Context, ref hub.ChartRef, pick choice) ([]byte, error) {
	repo, err := c.chartIn(ref)
	if err != nil {
		return nil, err
	}
	body, err := repo.Blob(ctx, pick.layer, c.cfg.ArchiveBytes)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(body, c.cfg.ArchiveBytes+1))
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, explain(whatOf(ref), err)
	}
	return data, nil
}
