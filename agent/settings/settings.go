// Package settings provides the tenant's settings for this agent to other
// packages. It has no connection to hub or cluster: the daemon sets the newest
// settings of the desired log. Packages read the current value each time, or
// wait for the next one. A value never changes; without settings the defaults
// apply.
package settings

import (
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/exclude"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// Current is the current value. Many goroutines may use it.
type Current struct {
	mu      sync.Mutex
	value   *Value
	changed chan struct{}
}

// New makes a Current of settings; nil: the defaults.
func New(s *linkv1.Settings) *Current {
	return &Current{value: newValue(s), changed: make(chan struct{})}
}

// Get returns the current value.
func (c *Current) Get() *Value {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value
}

// Changed closes when the current value is replaced.
func (c *Current) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// Set replaces the settings, nil for the defaults, and reports whether anything
// but their version differs.
func (c *Current) Set(s *linkv1.Settings) bool {
	next := newValue(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	same := proto.Equal(withoutVersion(c.value.raw), withoutVersion(next.raw))
	c.value = next
	if same {
		return false
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return true
}

func withoutVersion(s *linkv1.Settings) *linkv1.Settings {
	out := proto.CloneOf(s)
	out.Version = 0
	return out
}

// A Value is one state of the settings. It never changes, and callers must not
// change what it returns.
type Value struct {
	raw      *linkv1.Settings
	all      exclude.List // kinds that applications cannot contain
	children exclude.List // kinds that are not shown below objects
}

func newValue(s *linkv1.Settings) *Value {
	if s == nil {
		s = &linkv1.Settings{}
	}
	v := &Value{raw: s}
	v.children.Included = filters(s.GetInclusions())
	v.children.Excluded = filters(s.GetExclusions())
	v.all = v.children
	if !s.GetExclusionsGiven() {
		v.all.Excluded = exclude.Default()
	}
	return v
}

func filters(in []*linkv1.KindFilter) (out []exclude.Filter) {
	for _, f := range in {
		out = append(out, exclude.Filter{Groups: f.GetGroups(), Kinds: f.GetKinds()})
	}
	return out
}

// Version is that of the tenant's settings; 0: there are none.
func (v *Value) Version() uint64 { return v.raw.GetVersion() }

// Excluded reports whether a kind is excluded: not watched, shown, compared or
// applied.
func (v *Value) Excluded(group, kind string) bool { return v.all.Excludes(group, kind) }

// ExcludedChild reports whether a kind that managed objects own is not shown.
// The built-in exclusions do not apply to them, because they are cheap.
func (v *Value) ExcludedChild(group, kind string) bool { return v.children.Excludes(group, kind) }

// customization finds the first one for a kind with a value: that of the exact
// kind, then patterns in order.
func (v *Value) customization(group, kind string, has func(*linkv1.Customization) bool) *linkv1.Customization {
	var found *linkv1.Customization
	for _, c := range v.raw.GetCustomizations() {
		switch {
		case !has(c) || !matches(c, group, kind):
		case c.GetGroup() == group && c.GetKind() == kind:
			return c
		case found == nil:
			found = c
		}
	}
	return found
}

func matches(c *linkv1.Customization, group, kind string) bool {
	g, err := path.Match(c.GetGroup(), group)
	if err != nil || !g {
		return false
	}
	k, err := path.Match(c.GetKind(), kind)
	return err == nil && k
}

// A HealthScript computes the health of a kind.
type HealthScript struct {
	Lua      string
	OpenLibs bool // it may use the standard libraries of Lua
}

// HealthScript returns the tenant's script for a kind.
func (v *Value) HealthScript(group, kind string) (HealthScript, bool) {
	c := v.customization(group, kind, func(c *linkv1.Customization) bool { return c.GetHealthLua() != "" })
	if c == nil {
		return HealthScript{}, false
	}
	libs := v.customization(group, kind, func(c *linkv1.Customization) bool { return c.GetUseOpenLibs() })
	return HealthScript{Lua: c.GetHealthLua(), OpenLibs: libs != nil}, true
}

// Actions returns the tenant's actions for a kind; nil: it has none.
func (v *Value) Actions(group, kind string) *linkv1.Actions {
	return v.customization(group, kind, func(c *linkv1.Customization) bool { return c.GetActions() != nil }).GetActions()
}

// IgnoreDifferences returns the tenant's rules for all kinds, in the form of
// those of an application.
func (v *Value) IgnoreDifferences() []*linkv1.IgnoreRule {
	return v.rules((*linkv1.Customization).GetIgnoreDifferences)
}

// IgnoreResourceUpdates returns the rules about changes that cause no
// comparison; none if they are disabled.
func (v *Value) IgnoreResourceUpdates() []*linkv1.IgnoreRule {
	if v.raw.GetIgnoreResourceUpdatesDisabled() {
		return nil
	}
	out := v.rules((*linkv1.Customization).GetIgnoreResourceUpdates)
	if !v.raw.GetCompare().GetDifferencesOnUpdates() {
		out = append(out, v.IgnoreDifferences()...)
	}
	return out
}

func (v *Value) rules(of func(*linkv1.Customization) *linkv1.IgnoreFields) (out []*linkv1.IgnoreRule) {
	for _, c := range v.raw.GetCustomizations() {
		if f := of(c); f != nil {
			out = append(out, &linkv1.IgnoreRule{
				Group: c.GetGroup(), Kind: c.GetKind(), JsonPointers: f.GetJsonPointers(), Jq: f.GetJq(), Managers: f.GetManagers(),
			})
		}
	}
	return out
}

// KnownTypeFields returns the fields of a custom kind that have a known type.
func (v *Value) KnownTypeFields(group, kind string) []*linkv1.KnownTypeField {
	return v.customization(group, kind, func(c *linkv1.Customization) bool { return len(c.GetKnownTypeFields()) > 0 }).GetKnownTypeFields()
}

// CompareOptions are the compare options of the tenant.
type CompareOptions struct {
	IgnoreAggregatedRoles bool
	IgnoreStatus          string // all, crd or none
	DifferencesOnUpdates  bool   // updates of ignored fields alone count as changes
}

// CompareOptions returns how live and desired state are compared.
func (v *Value) CompareOptions() CompareOptions {
	c := v.raw.GetCompare()
	out := CompareOptions{IgnoreAggregatedRoles: c.GetIgnoreAggregatedRoles(), IgnoreStatus: c.GetIgnoreStatus(), DifferencesOnUpdates: c.GetDifferencesOnUpdates()}
	if out.IgnoreStatus == "" {
		out.IgnoreStatus = "all"
	}
	return out
}

// The tracking methods (TRK-01).
const (
	TrackByAnnotation = "annotation"
	TrackByBoth       = "annotation+label"
	TrackByLabel      = "label"
)

// Marks are Argo CD's marks that are written in addition to our own, for tools
// that read them; empty: none.
func (v *Value) Marks() string {
	if v.raw.GetTrackingMethod() == "" {
		return ""
	}
	return v.TrackingMethod()
}

// TrackingMethod is how objects are marked with their application.
func (v *Value) TrackingMethod() string {
	if m := v.raw.GetTrackingMethod(); slices.Contains([]string{TrackByBoth, TrackByLabel}, m) {
		return m
	}
	return TrackByAnnotation
}

// InstanceLabelKey is the label that names an application, if labels are used.
func (v *Value) InstanceLabelKey() string {
	if key := v.raw.GetInstanceLabelKey(); key != "" {
		return key
	}
	return "app.kubernetes.io/instance"
}

// WaveDelay is the pause between two waves; the argument is the default for a
// tenant without one.
func (v *Value) WaveDelay(otherwise time.Duration) time.Duration {
	if v.raw.WaveDelaySeconds == nil {
		return otherwise
	}
	return time.Duration(v.raw.GetWaveDelaySeconds()) * time.Second
}

// Impersonate reports whether the agent acts for applications as the service
// accounts that their projects name.
func (v *Value) Impersonate() bool { return v.raw.GetImpersonate() }

// ImpersonateOptional reports whether the agent acts as itself for an
// application without service account.
func (v *Value) ImpersonateOptional() bool { return v.raw.GetImpersonateOptional() }

// RespectRBAC reports how kinds that the agent may not list are left out:
// normal or strict; empty: they are not.
func (v *Value) RespectRBAC() string { return v.raw.GetRespectRbac() }

// EventReasons are those of the Kubernetes events to write; "all": every one;
// empty: none.
func (v *Value) EventReasons() []string { return v.raw.GetEventReasons() }

// InstallationID distinguishes installations that share a cluster; empty: none.
func (v *Value) InstallationID() string { return v.raw.GetInstallationId() }

// CustomLabels are the labels that are shown with objects.
func (v *Value) CustomLabels() []string { return v.raw.GetCustomLabels() }

// SensitiveAnnotations are those whose values are masked.
func (v *Value) SensitiveAnnotations() []string { return v.raw.GetSensitiveAnnotations() }
