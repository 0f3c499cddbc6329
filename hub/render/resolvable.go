package render

import (
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// unresolvable refuses what has to be resolved by an agent that cannot: it
// would apply placeholders as text. Nothing is sent to its cluster until it was
// upgraded. Without objects, the options of the application are looked at.
func unresolvable(j *job, objects []Object) error {
	c := j.refresh.Cluster
	if c == nil || c.Features == nil || slices.Contains(c.Features, manifest.ResolveFeature) {
		return nil
	}
	which := ""
	if on, _ := j.spec.SyncPolicy.Option(manifest.ResolveOption); on != "true" {
		if which = firstResolved(objects); which == "" {
			return nil
		}
	}
	return fault.With(fault.New(fault.Offline, "the agent of cluster %s does not resolve secrets yet, and would apply placeholders as text", c.Name),
		which, "upgrade the agent; it is refreshed again automatically")
}

// firstResolved names the first object that asks for it by an annotation.
func firstResolved(objects []Object) string {
	for _, o := range objects {
		if !strings.Contains(string(o.JSON), manifest.ResolveOption) {
			continue
		}
		parsed, err := manifest.FromCanonical(o.JSON)
		if err != nil {
			continue // it cannot be applied either
		}
		if on, _ := manifest.Option(manifest.Options(parsed), manifest.ResolveOption); on == "true" {
			return o.Ref.Kind + " " + o.Ref.Name
		}
	}
	return ""
}
