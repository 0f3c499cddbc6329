package helm

import (
	"bytes"
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// assumedVersion is the version of a cluster that has not reported one yet.
const assumedVersion = "v1.35.0"

// capabilities is .Capabilities of templates. The hub returns each value when a
// template reads it, and records the read: only these values bind the result to
// the cluster.
type capabilities struct {
	KubeVersion *kubeVersion
	APIVersions any // *apiVersions, or the whole list where a template wants more than Has
	HelmVersion any
}

// newCapabilities checks how the chart's templates use the list of APIs.
func newCapabilities(ctx context.Context, files render.Files, s hub.HelmSource, c *loaded) (*capabilities, error) {
	versions := &apiVersions{ctx: ctx, files: files}
	if len(s.APIVersions) > 0 {
		versions.fixed = append(slices.Clone(chartutil.DefaultVersionSet), s.APIVersions...)
	}
	caps := &capabilities{
		KubeVersion: &kubeVersion{ctx: ctx, files: files, fixed: s.KubeVersion},
		APIVersions: versions, HelmVersion: chartutil.DefaultCapabilities.HelmVersion,
	}
	if usesWholeList(c.Chart) {
		all, err := versions.all()
		if err != nil {
			return nil, err
		}
		caps.APIVersions = all
	}
	return caps, nil
}

// usesWholeList reports whether any text of the chart mentions APIVersions other
// than to call Has.
func usesWholeList(c *chart.Chart) bool {
	mention := regexp.MustCompile(`\bAPIVersions\b(\.\w+)?`)
	for _, f := range append(slices.Clone(c.Raw), c.Templates...) {
		for _, m := range mention.FindAllSubmatch(f.Data, -1) {
			if !bytes.Equal(m[1], []byte(".Has")) {
				return true
			}
		}
	}
	return slices.ContainsFunc(c.Dependencies(), usesWholeList)
}

// suits checks the kubeVersion constraint of the chart itself.
func (c *capabilities) suits(ch *chart.Chart, dir string) error {
	if ch.Metadata.KubeVersion == "" {
		return nil
	}
	have, err := c.KubeVersion.Version()
	if err != nil {
		return err
	}
	if !chartutil.IsCompatibleRange(ch.Metadata.KubeVersion, have) {
		return fault.With(fault.New(fault.Invalid, "the chart wants Kubernetes %s, and the destination has %s", ch.Metadata.KubeVersion, have),
			path.Join(dir, "Chart.yaml"), "")
	}
	return nil
}

// A kubeVersion is requested when one of its parts is used. The context is
// that of the render.
type kubeVersion struct {
	ctx   context.Context //nolint:containedctx // templates call without one
	files render.Files
	fixed string // set by the source (HELM-14)
}

func (v *kubeVersion) get() (*chartutil.KubeVersion, error) {
	text, where := v.fixed, "helm.kubeVersion"
	if text == "" {
		var err error
		if text, err = v.files.Fact(v.ctx, render.FactKubeVersion); err != nil {
			return nil, err
		}
		where = "the cluster's version"
	}
	if text == "" {
		text = assumedVersion
	}
	parsed, err := chartutil.ParseKubeVersion(text)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "%s %q is not a Kubernetes version", where, text)
	}
	return parsed, nil
}

// Version is the whole version, such as "v1.35.4".
func (v *kubeVersion) Version() (string, error) {
	return v.part(func(k *chartutil.KubeVersion) string { return k.Version })
}

// GitVersion is an older name of Version.
func (v *kubeVersion) GitVersion() (string, error) { return v.Version() }

// Major is the first number.
func (v *kubeVersion) Major() (string, error) {
	return v.part(func(k *chartutil.KubeVersion) string { return k.Major })
}

// Minor is the second number.
func (v *kubeVersion) Minor() (string, error) {
	return v.part(func(k *chartutil.KubeVersion) string { return k.Minor })
}

// String is the printed form.
func (v *kubeVersion) String() string {
	s, err := v.Version()
	if err != nil {
		return ""
	}
	return s
}

func (v *kubeVersion) part(of func(*chartutil.KubeVersion) string) (string, error) {
	k, err := v.get()
	if err != nil {
		return "", err
	}
	return of(k), nil
}

// apiVersions answers one question at a time.
type apiVersions struct {
	ctx   context.Context //nolint:containedctx // templates call without one
	files render.Files
	fixed []string // given by the source (HELM-14)
}

// Has reports whether the destination serves an API ("apps/v1") or a kind
// ("apps/v1/Deployment").
func (v *apiVersions) Has(name string) (bool, error) {
	if v.fixed != nil {
		return slices.Contains(v.fixed, name), nil
	}
	answer, err := v.files.Fact(v.ctx, render.FactAPIVersion+name)
	if err != nil {
		return false, err
	}
	if answer == "" {
		return chartutil.DefaultVersionSet.Has(name), nil
	}
	return answer == "true", nil
}

func (v *apiVersions) all() (chartutil.VersionSet, error) {
	if v.fixed != nil {
		return v.fixed, nil
	}
	text, err := v.files.Fact(v.ctx, render.FactAPIVersions)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return chartutil.DefaultVersionSet, nil
	}
	return strings.Split(text, "\n"), nil
}
