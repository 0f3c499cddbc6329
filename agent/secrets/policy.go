package secrets

import (
	"encoding/json"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// A Policy says which secrets the agent may resolve, and for whom. The
// cluster's owner writes it; the hub cannot change it. The zero policy permits
// nothing.
type Policy struct {
	// Refresh is how often applied objects are resolved again; 0: every 5 min.
	Refresh    Duration   `json:"refresh"`
	Vault      []Vault    `json:"vault"`
	Kubernetes Kubernetes `json:"kubernetes"`
	SOPS       SOPS       `json:"sops"`
}

// Vault is a server with a KV engine.
type Vault struct {
	Name      string   `json:"name"`      // by which placeholders may name it; the first one needs none
	Address   string   `json:"address"`   // such as https://vault.example.com:8200
	CAFile    string   `json:"caFile"`    // PEM; empty: the system's authorities
	Namespace string   `json:"namespace"` // of Vault Enterprise or OpenBao; empty: none
	Mount     string   `json:"mount"`     // of the Kubernetes auth method; empty: kubernetes
	Role      string   `json:"role"`
	TokenFile string   `json:"tokenFile"` // the service account's token; empty: the pod's own
	KVVersion int      `json:"kvVersion"` // 1 or 2; 0: 2
	Permit    []Permit `json:"permit"`
}

// Kubernetes permits Secrets of the cluster, by NAMESPACE/NAME.
type Kubernetes struct {
	Permit []Permit `json:"permit"`
}

// SOPS are the keys of encrypted files.
type SOPS struct {
	IgnoreMAC bool     `json:"ignoreMac"` // accept objects that were changed after their encryption
	Age       []AgeKey `json:"age"`
}

// An AgeKey is an entry of a Secret in the agent's namespace, with age
// identities.
type AgeKey struct {
	Secret     string   `json:"secret"`
	Key        string   `json:"key"`        // empty: age.agekey
	Namespaces []string `json:"namespaces"` // of objects, as globs; empty: all
	Projects   []string `json:"projects"`   // as globs; empty: all
}

// A Permit lets objects of some namespaces and projects have secrets of some
// paths. Each is a glob; {namespace} and {project} in a path stand for those of
// the object. Empty namespaces or projects mean all.
type Permit struct {
	Paths      []string `json:"paths"`
	Namespaces []string `json:"namespaces"`
	Projects   []string `json:"projects"`
}

// Duration is a time.Duration that is written as text.
type Duration time.Duration

// UnmarshalJSON reads text such as "5m".
func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return fault.New(fault.Invalid, "a duration is text such as 5m")
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fault.New(fault.Invalid, "%q is no duration; write one such as 5m", s)
	}
	*d = Duration(v)
	return nil
}

const (
	defaultRefresh = 5 * time.Minute
	minRefresh     = time.Second
)

// Interval is how often applied objects are resolved again.
func (p Policy) Interval() time.Duration {
	if p.Refresh == 0 {
		return defaultRefresh
	}
	return time.Duration(p.Refresh)
}

// kubernetesStore is the name by which placeholders name Secrets of the cluster.
const kubernetesStore = "kubernetes"

// Validate reports what is wrong with a policy.
func (p Policy) Validate() error {
	if p.Refresh != 0 && time.Duration(p.Refresh) < minRefresh {
		return fault.New(fault.Invalid, "refresh is %s, and at least %s", time.Duration(p.Refresh), minRefresh)
	}
	var names []string
	for i, v := range p.Vault {
		if err := v.validate(); err != nil {
			return fault.Wrap(fault.Invalid, err, "entry %d of vault: %s", i+1, fault.Sentence(err))
		}
		if slices.Contains(names, v.Name) {
			return fault.New(fault.Invalid, "two entries of vault have the name %q", v.Name)
		}
		names = append(names, v.Name)
	}
	if err := validatePermits(p.Kubernetes.Permit, true); err != nil {
		return fault.Wrap(fault.Invalid, err, "kubernetes: %s", fault.Sentence(err))
	}
	for i, k := range p.SOPS.Age {
		if k.Secret == "" {
			return fault.New(fault.Invalid, "entry %d of sops.age names no Secret", i+1)
		}
		if err := checkGlobs(k.Namespaces, k.Projects); err != nil {
			return fault.Wrap(fault.Invalid, err, "entry %d of sops.age: %s", i+1, fault.Sentence(err))
		}
	}
	return nil
}

func (v Vault) validate() error {
	u, err := url.Parse(v.Address)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || strings.Trim(u.Path, "/") != "":
		return fault.New(fault.Invalid, "address %q is not an address such as https://vault.example.com:8200", v.Address)
	case u.Scheme != "https" && !(u.Scheme == "http" && loopback(u.Hostname())):
		return fault.New(fault.Invalid, "address %q is not https, and only a server on this machine may be without TLS", v.Address)
	case v.Role == "":
		return fault.New(fault.Invalid, "it names no role of Vault's Kubernetes auth method")
	case v.KVVersion < 0 || v.KVVersion > 2:
		return fault.New(fault.Invalid, "kvVersion is %d, and may be 1 or 2", v.KVVersion)
	case v.Name == kubernetesStore || strings.ContainsAny(v.Name, ":/#|<> "):
		return fault.New(fault.Invalid, "%q cannot be its name", v.Name)
	}
	if v.Mount != "" {
		if err := checkPath(v.Mount); err != nil {
			return err
		}
	}
	return validatePermits(v.Permit, false)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func validatePermits(all []Permit, kubernetes bool) error {
	for i, p := range all {
		if len(p.Paths) == 0 {
			return fault.New(fault.Invalid, "entry %d of permit has no paths", i+1)
		}
		if err := checkGlobs(p.Paths, p.Namespaces, p.Projects); err != nil {
			return err
		}
		for _, path := range p.Paths {
			if kubernetes && strings.Count(path, "/") != 1 {
				return fault.New(fault.Invalid, "path %q of permit is not of the form NAMESPACE/NAME", path)
			}
		}
	}
	return nil
}

func checkGlobs(lists ...[]string) error {
	for _, l := range lists {
		for _, g := range l {
			if err := glob.Check(expand(g, "x", "x")); err != nil {
				return err
			}
		}
	}
	return nil
}

// An Owner is the object for which a secret is resolved.
type Owner struct {
	Namespace string // that the object is in; empty: it is cluster-scoped
	Project   string
}

// permits reports whether some entry permits a path.
func permits(all []Permit, path string, o Owner) bool {
	return slices.ContainsFunc(all, func(p Permit) bool {
		return fits(p.Namespaces, o.Namespace) && fits(p.Projects, o.Project) && slices.ContainsFunc(p.Paths, func(pattern string) bool {
			if strings.Contains(pattern, "{namespace}") && !plainName(o.Namespace) || strings.Contains(pattern, "{project}") && !plainName(o.Project) {
				return false
			}
			return glob.MatchPath(expand(pattern, o.Namespace, o.Project), path)
		})
	})
}

// expand replaces the variables of a path.
func expand(pattern, namespace, project string) string {
	return strings.NewReplacer("{namespace}", namespace, "{project}", project).Replace(pattern)
}

// plainName reports whether a name stands for itself in a glob.
func plainName(s string) bool {
	return s != "" && !strings.ContainsAny(s, `*?[]{}\/!`)
}

// fits reports whether a name matches one of the globs; empty: all names do. An
// object without a namespace fits only an empty list.
func fits(globs []string, name string) bool {
	return len(globs) == 0 || name != "" && slices.ContainsFunc(globs, func(g string) bool { return glob.Match(g, name) })
}

// checkPath refuses a path that is not a plain list of names: nothing of it may
// lead elsewhere.
func checkPath(path string) error {
	if path == "" || len(path) > 1024 {
		return fault.New(fault.Invalid, "a path of a secret has 1 to 1024 characters")
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.TrimSpace(segment) != segment {
			return fault.New(fault.Invalid, "the path %q has an empty segment, or one that leads elsewhere", path)
		}
	}
	for _, c := range path {
		if c < 0x21 && c != ' ' || c == 0x7f || strings.ContainsRune(`%?#\`, c) {
			return fault.New(fault.Invalid, "the path %q has a character that is not permitted", path)
		}
	}
	return nil
}

// system are mounts of Vault that hold no secrets of users.
var system = [...]string{"sys", "auth", "identity", "cubbyhole"}

// checkVaultPath is checkPath for a secret of Vault.
func checkVaultPath(path string) error {
	if err := checkPath(path); err != nil {
		return err
	}
	first, _, more := strings.Cut(path, "/")
	if slices.Contains(system[:], strings.ToLower(first)) || !more {
		return fault.New(fault.Denied, "the path %q is not that of a secret", path)
	}
	return nil
}
