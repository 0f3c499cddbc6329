// Package exclude decides which kinds of objects are excluded: neither watched,
// nor shown, nor compared, nor applied. It contains the default lists and does
// no I/O. The hub shows them to users; agents use them.
package exclude

import "path"

// A Filter matches kinds. An empty list matches all; the core group is "".
type Filter struct {
	Groups []string // globs
	Kinds  []string // globs
}

// Matches reports whether the filter matches a kind.
func (f Filter) Matches(group, kind string) bool {
	return like(f.Groups, group) && like(f.Kinds, kind)
}

// A List decides about kinds: one that is included and not excluded is used.
type List struct {
	Excluded []Filter
	Included []Filter // empty: every kind
}

// Excludes reports whether a kind is excluded. Some always are.
func (l List) Excludes(group, kind string) bool {
	if matchAny(always(), group, kind) || matchAny(l.Excluded, group, kind) {
		return true
	}
	return len(l.Included) > 0 && !matchAny(l.Included, group, kind)
}

// Default is the list of a tenant without settings (CLU-14).
func Default() []Filter {
	return []Filter{
		{[]string{"", "discovery.k8s.io"}, []string{"Endpoints", "EndpointSlice"}},
		{[]string{"coordination.k8s.io"}, []string{"Lease"}},
		{[]string{"authentication.k8s.io", "authorization.k8s.io"}, []string{"*Review"}},
		{[]string{"certificates.k8s.io"}, []string{"CertificateSigningRequest"}},
		{[]string{"cert-manager.io"}, []string{"CertificateRequest"}},
		{[]string{"cilium.io"}, []string{"CiliumIdentity", "CiliumEndpoint", "CiliumEndpointSlice"}},
		{[]string{"kyverno.io", "reports.kyverno.io", "wgpolicyk8s.io"}, []string{
			"PolicyReport", "ClusterPolicyReport", "EphemeralReport", "ClusterEphemeralReport", "AdmissionReport", "ClusterAdmissionReport",
			"BackgroundScanReport", "ClusterBackgroundScanReport", "UpdateRequest",
		}},
	}
}

// always is excluded regardless of settings: kinds that are not declared in
// Git, and kinds that the API server does not store.
func always() []Filter {
	return []Filter{
		{Groups: []string{"events.k8s.io", "metrics.k8s.io"}},
		{[]string{""}, []string{"Event"}},
	}
}

func matchAny(list []Filter, group, kind string) bool {
	for _, f := range list {
		if f.Matches(group, kind) {
			return true
		}
	}
	return false
}

func like(globs []string, s string) bool {
	for _, g := range globs {
		if ok, err := path.Match(g, s); ok && err == nil {
			return true
		}
	}
	return len(globs) == 0
}
