package daemon

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// ActsAs is the user as whom requests for an application are sent.
func (c cluster) ActsAs(app string) (string, error) { return c.a.engine.ActsAs(app) }

// MayReadLogs is what the cluster's owner permits.
func (c cluster) MayReadLogs(namespace string) error { return c.a.guard.ReadsLogs(namespace) }

// Concealer takes what was resolved out of a text. nil: there is nothing to take out.
func (c cluster) Concealer(app string) func(string) string {
	if !c.a.engine.Resolved(app) {
		return nil
	}
	return func(text string) string { return c.a.engine.ConcealText(app, text) }
}

// ownersPolicy is what the cluster's owner permits of sessions in pods.
type ownersPolicy struct{ apply.Guard }

// Limits are those of sessions of commands.
func (p ownersPolicy) Limits() (most, idle time.Duration) { return p.Effective().Exec.Limits() }

// Describe is the policy, with all defaults.
func (p ownersPolicy) Describe() (rules any, broken string) {
	r := p.Effective()
	return r, r.Broken
}

// mode is how the agent was installed.
func (a *agent) mode() string { return cmp.Or(a.Mode, ModeCluster) }

// Pods returns the pods that an object of an application is or owns.
func (c cluster) Pods(app string, of manifest.Key) []manifest.Key {
	var out []manifest.Key
	uid := ""
	switch {
	case of == (manifest.Key{}):
		out = c.a.engine.ManagedPods(app)
	case of.Group == "" && of.Kind == "Pod":
		return []manifest.Key{of}
	default:
		if uid = c.a.engine.UID(app, of); uid == "" {
			uid = c.a.tree.UID(app, of.Group, of.Kind, of.Namespace, of.Name)
		}
		if uid == "" {
			return nil
		}
	}
	for _, r := range c.a.tree.Pods(app, uid) {
		out = append(out, manifest.Key{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	}
	slices.SortFunc(out, manifest.Key.Compare)
	return slices.Compact(out)
}

// Patch changes a live object. What was resolved, and what the
// object marked as secret, is taken out of the answer.
func (c cluster) Patch(ctx context.Context, app string, key manifest.Key, version, kind string, body []byte, dryRun bool) (*manifest.Object, error) {
	o, marked, err := c.a.engine.Patch(ctx, apply.PatchRequest{
		Application: app, Kind: schema.GroupVersionKind{Group: key.Group, Version: version, Kind: key.Kind}, Key: key, Type: kind, Patch: body, DryRun: dryRun,
	})
	if err != nil {
		return nil, c.a.engine.ConcealError(app, err)
	}
	return c.a.engine.Conceal(app, o, c.a.secret.Keys().Mask, marked...), nil
}
