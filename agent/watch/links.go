package watch

import (
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// Limits of what is reported about one object.
const (
	maxLinks = 20
	maxLink  = 2048 // bytes
)

// The annotations link.capstan.dev/NAME and link.argocd.argoproj.io/NAME
// contain "URL" or "title|URL".
const (
	ownLink  = "link.capstan.dev/"
	argoLink = "link.argocd.argoproj.io/"
)

// Links returns the URLs of an object for users, each as "URL" or "title|URL":
// those of its annotations, and those of an Ingress or a load balancer, unless
// the annotation ignore-default-links is true. Only http and https are
// returned.
func Links(o *manifest.Object) []string {
	out := annotated(o)
	if ignored, _ := manifest.Annotation(o, "ignore-default-links"); ignored != "true" {
		switch gvk := o.GroupVersionKind(); {
		case gvk.Kind == "Ingress" && (gvk.Group == "networking.k8s.io" || gvk.Group == "extensions"):
			out = append(out, ingressLinks(o)...)
		case gvk.Kind == "Service" && gvk.Group == "":
			out = append(out, serviceLinks(o)...)
		}
	}
	var kept []string
	for _, l := range out {
		if !slices.Contains(kept, l) && len(kept) < maxLinks {
			kept = append(kept, strings.Clone(l))
		}
	}
	return kept
}

// annotated returns the links of annotations, in order of their names.
func annotated(o *manifest.Object) []string {
	named := map[string]string{}
	meta, _ := o.Object["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	for _, prefix := range [...]string{argoLink, ownLink} { // ours wins
		for key, raw := range annotations {
			value, _ := raw.(string)
			if name, ok := strings.CutPrefix(key, prefix); ok && name != "" {
				named[name] = value
			}
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		title, address, titled := strings.Cut(named[name], "|")
		if !titled {
			title, address = name, named[name]
		}
		title, address = strings.TrimSpace(title), strings.TrimSpace(address)
		if link := title + "|" + address; reachable(address) && len(link) <= maxLink {
			out = append(out, link)
		}
	}
	return out
}

// reachable reports whether a browser may open a URL.
func reachable(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// ingressLinks are derived from the rules of an Ingress. A rule without a host
// uses the addresses of the load balancer.
func ingressLinks(o *manifest.Object) []string {
	secured := tlsHosts(o)
	var out []string
	for _, rule := range maplist(o, "spec", "rules") {
		host, _, _ := unstructured.NestedString(rule, "host")
		hosts := []string{host}
		if host == "" {
			hosts = balancers(o)
		}
		scheme := "http"
		if secured[host] || secured[""] {
			scheme = "https"
		}
		for _, h := range hosts {
			for _, path := range paths(rule) {
				out = appendAddress(out, scheme, h, "", path)
			}
		}
	}
	return out
}

// tlsHosts returns the hosts that an Ingress serves with TLS; an empty one
// stands for all.
func tlsHosts(o *manifest.Object) map[string]bool {
	secured := map[string]bool{}
	for _, t := range maplist(o, "spec", "tls") {
		hosts, _, _ := unstructured.NestedStringSlice(t, "hosts")
		if len(hosts) == 0 {
			secured[""] = true
		}
		for _, h := range hosts {
			secured[h] = true
		}
	}
	return secured
}

// paths are those of one rule of an Ingress, without the wildcards of old
// rules.
func paths(rule map[string]any) []string {
	list, _, _ := unstructured.NestedSlice(rule, "http", "paths")
	var out []string
	for _, p := range list {
		m, _ := p.(map[string]any)
		path, _ := m["path"].(string)
		out = append(out, strings.TrimRight(strings.TrimSuffix(path, "*"), "/"))
	}
	if len(out) == 0 {
		out = append(out, "")
	}
	return out
}

// serviceLinks are the addresses of a load balancer with those of its ports
// that speak HTTP.
func serviceLinks(o *manifest.Object) []string {
	if kind, _, _ := unstructured.NestedString(o.Object, "spec", "type"); kind != "LoadBalancer" {
		return nil
	}
	var out []string
	for _, host := range balancers(o) {
		for _, p := range maplist(o, "spec", "ports") {
			port, _, _ := unstructured.NestedInt64(p, "port")
			name, _ := p["name"].(string)
			protocol, _ := p["appProtocol"].(string)
			switch {
			case port == 443 || name == "https" || protocol == "https" || strings.HasPrefix(name, "https-"):
				out = appendAddress(out, "https", host, portOf(port, 443), "")
			case port == 80 || name == "http" || protocol == "http" || strings.HasPrefix(name, "http-"):
				out = appendAddress(out, "http", host, portOf(port, 80), "")
			}
		}
	}
	return out
}

func portOf(port, usual int64) string {
	if port == usual {
		return ""
	}
	return strconv.FormatInt(port, 10)
}

// balancers are the addresses that a load balancer got.
func balancers(o *manifest.Object) []string {
	var out []string
	for _, i := range maplist(o, "status", "loadBalancer", "ingress") {
		address, _ := i["hostname"].(string)
		if address == "" {
			address, _ = i["ip"].(string)
		}
		if address != "" {
			out = append(out, address)
		}
	}
	return out
}

// appendAddress adds an address if it is valid; a host with a wildcard is not.
func appendAddress(out []string, scheme, host, port, path string) []string {
	if host == "" || strings.Contains(host, "*") {
		return out
	}
	if port != "" {
		host = net.JoinHostPort(host, port)
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	link := scheme + "://" + host + path
	if !reachable(link) || len(link) > maxLink {
		return out
	}
	return append(out, link)
}

// maplist reads a list of objects without copying it.
func maplist(o *manifest.Object, path ...string) []map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	list, _ := v.([]any)
	var out []map[string]any
	for _, e := range list {
		if m, ok := e.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}
