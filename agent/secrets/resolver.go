// Package secrets resolves references to secrets in manifests, with the
// identity of the cluster: placeholders in the form of argocd-vault-plugin, and
// files that were encrypted with SOPS. What may be resolved for whom is decided
// by the policy of the cluster's owner. Resolved values stay in memory, for the
// objects that are applied and for finding them in what leaves the cluster.
// Errors name references and fields, and never contain values.
package secrets

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"filippo.io/age"

	"github.com/capstan-cd/capstan/agent/secrets/sops"
	"github.com/capstan-cd/capstan/agent/secrets/vault"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A ReadSecret reads a Secret of the cluster; nil if it does not exist.
type ReadSecret func(ctx context.Context, namespace, name string) (*manifest.Object, error)

// Config is what a resolver needs.
type Config struct {
	Policy Policy
	Home   string          // the agent's namespace, whose Secrets no placeholder reads
	Keys   ReadSecret      // reads the Secrets of age keys, as the agent
	Clock  lifecycle.Clock // nil: the real one
}

// A Resolver resolves references. Several goroutines may use it.
type Resolver struct {
	Config
	vaults map[string]server // by name; the first one also as ""
	age    time.Duration     // of the oldest cached value that is used

	mu    sync.Mutex
	cache map[string]*cached
}

type server struct {
	client *vault.Client
	Vault
}

// maxCacheAge is how long a value is used without reading it again, so that an
// operation on many objects reads each secret once.
const maxCacheAge = 20 * time.Second

// New makes a resolver. It sends nothing.
func New(c Config) (*Resolver, error) {
	if err := c.Policy.Validate(); err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = lifecycle.System{}
	}
	r := &Resolver{Config: c, vaults: map[string]server{}, cache: map[string]*cached{}, age: min(maxCacheAge, c.Policy.Interval()/2)}
	for i, v := range c.Policy.Vault {
		client, err := vault.New(vault.Config{
			Address: v.Address, CAFile: v.CAFile, Namespace: v.Namespace, Mount: v.Mount, Role: v.Role, TokenFile: v.TokenFile, Clock: c.Clock,
		})
		if err != nil {
			return nil, err
		}
		r.vaults[v.Name] = server{client, v}
		if i == 0 {
			r.vaults[""] = server{client, v}
		}
	}
	return r, nil
}

// Interval is how often applied objects are resolved again.
func (r *Resolver) Interval() time.Duration { return r.Policy.Interval() }

// A Request is one object to resolve.
type Request struct {
	Object *manifest.Object
	Owner  Owner
	Tenant string     // whose other marks a Secret must not have; empty: unknown
	Read   ReadSecret // reads Secrets of the cluster for the application
	Since  time.Time  // no value that was read before is used; zero: recent ones are
}

// A Leaf is a resolved field.
type Leaf struct {
	Path   []string // keys, and names or indexes of items of lists
	Source string   // the reference; empty: SOPS
	Value  any
}

// A Result is a resolved object.
type Result struct {
	Object *manifest.Object
	Leaves []Leaf // empty: the object refers to no secret
}

// Hash is a keyed hash of all resolved values with their fields.
func (r Result) Hash(key []byte) string {
	m := hmac.New(sha256.New, key)
	for _, l := range r.Leaves {
		text, _ := manifest.AppendCanonical(nil, map[string]any{"path": strings.Join(l.Path, "\x00"), "value": l.Value})
		m.Write(text)
	}
	return base64.RawStdEncoding.EncodeToString(m.Sum(nil))
}

// Refers reports whether an object may refer to secrets: Resolve of any other
// object returns it as it is.
func Refers(o *manifest.Object) bool {
	if manifest.Encrypted(o) {
		return true
	}
	f, err := formOf(o)
	if err != nil {
		return true
	}
	found := false
	err = visit(o.Object, nil, func(_ []string, text string) error {
		found = found || f.has(text) || manifest.Ciphertext(text) || strings.Contains(decoded(text), opening) || f.has(decoded(text))
		return nil
	})
	return found || err != nil
}

// Resolve returns a copy of an object in which every reference is resolved. An
// error means that nothing of the object may be applied.
func (r *Resolver) Resolve(ctx context.Context, q Request) (Result, error) {
	out := Result{Object: q.Object}
	if ignored, _ := manifest.RawAnnotation(q.Object, ignoreAnnotation); ignored == "true" {
		return out, nil
	}
	if manifest.Encrypted(q.Object) {
		if err := r.decrypt(ctx, q, &out); err != nil {
			return Result{}, err
		}
		// What is encrypted is a value, even if it looks like a placeholder.
		return out, nil
	}
	if !Refers(q.Object) {
		return out, nil
	}
	out.Object = q.Object.DeepCopy()
	if err := r.placeholders(ctx, q, &out); err != nil {
		return Result{}, err
	}
	slices.SortFunc(out.Leaves, func(a, b Leaf) int { return slices.Compare(a.Path, b.Path) })
	return out, nil
}

// decrypt decrypts an object of SOPS.
func (r *Resolver) decrypt(ctx context.Context, q Request, out *Result) error {
	keys, err := r.ageKeys(ctx, q.Owner)
	if err != nil {
		return err
	}
	o, leaves, err := sops.Decrypt(q.Object, keys, sops.Options{IgnoreMAC: r.Policy.SOPS.IgnoreMAC})
	if err != nil {
		return err
	}
	for _, l := range leaves {
		if err := r.mayStand(l.Path, false); err != nil {
			return err
		}
		out.Leaves = append(out.Leaves, Leaf{Path: named(o.Object, l.Path), Value: l.Value})
	}
	if err := manifest.Normalize(o); err != nil {
		return err
	}
	for i, l := range out.Leaves { // a Secret's stringData has become data
		if manifest.IsSecret(o) && l.Path[0] == "stringData" {
			out.Leaves[i].Path = append([]string{"data"}, l.Path[1:]...)
		}
	}
	out.Object = o
	slices.SortFunc(out.Leaves, func(a, b Leaf) int { return slices.Compare(a.Path, b.Path) })
	return nil
}

// ageKeys are the identities that an object may be decrypted with.
func (r *Resolver) ageKeys(ctx context.Context, o Owner) ([]age.Identity, error) {
	var all []age.Identity
	permitted := false
	for _, k := range r.Policy.SOPS.Age {
		if !fits(k.Namespaces, o.Namespace) || !fits(k.Projects, o.Project) {
			continue
		}
		permitted = true
		name := k.Key
		if name == "" {
			name = "age.agekey"
		}
		entries, err := r.entries(ctx, "age:"+k.Secret, time.Time{}, func(ctx context.Context) (map[string]any, error) {
			return secretEntries(ctx, r.Keys, r.Home, k.Secret)
		})
		if err != nil {
			return nil, fault.With(err, "", "create the Secret of the age key in the agent's namespace")
		}
		text, _ := entries[name].(string)
		keys, err := sops.ParseKeys([]byte(text))
		if err != nil {
			return nil, fault.With(err, fmt.Sprintf("Secret %s, key %s", k.Secret, name), "")
		}
		all = append(all, keys...)
	}
	if !permitted {
		return nil, fault.With(fault.New(fault.Denied, "the agent has no age key for objects of %s", o.describe()), "", policyFix)
	}
	return all, nil
}

// policyFix says who can change the policy.
const policyFix = "the cluster's owner can permit it with secrets in the values of the agent's chart"

func (o Owner) describe() string {
	if o.Namespace == "" {
		return "project " + o.Project + " without a namespace"
	}
	return "project " + o.Project + " in namespace " + o.Namespace
}

// placeholders replaces the placeholders of an object.
func (r *Resolver) placeholders(ctx context.Context, q Request, out *Result) error {
	f, err := formOf(q.Object)
	if err != nil {
		return err
	}
	secret := manifest.IsSecret(out.Object)
	replaced, err := rewrite(out.Object.Object, nil, func(path []string, text string) (any, error) {
		if manifest.Ciphertext(text) {
			return nil, fault.New(fault.Invalid, "%s is encrypted, and the object has no block %q", strings.Join(path, "."), manifest.EncryptedBlock)
		}
		encoded := ""
		if secret && len(path) == 2 && path[0] == "data" {
			encoded = decoded(text)
		}
		switch {
		case isOwnAnnotation(path):
			return text, nil
		case encoded != "" && f.has(encoded):
			v, source, err := r.text(ctx, q, f, path, encoded)
			if err != nil {
				return nil, err
			}
			plain, err := textOf(v)
			if err != nil {
				return nil, err
			}
			v = base64.StdEncoding.EncodeToString([]byte(plain))
			out.Leaves = append(out.Leaves, Leaf{Path: named(q.Object.Object, path), Source: source, Value: v})
			return v, nil
		case !f.has(text):
			return text, nil
		}
		v, source, err := r.text(ctx, q, f, path, text)
		if err != nil {
			return nil, err
		}
		if secret || onlyText(out.Object, path) {
			if v, err = textOf(v); err != nil {
				return nil, err
			}
		}
		out.Leaves = append(out.Leaves, Leaf{Path: named(q.Object.Object, path), Source: source, Value: v})
		return v, nil
	})
	if err != nil {
		return err
	}
	out.Object.Object, _ = replaced.(map[string]any)
	return nil
}

// isOwnAnnotation reports whether a field is an annotation that says how to
// resolve the others.
func isOwnAnnotation(path []string) bool {
	return len(path) == 3 && path[0] == "metadata" && path[1] == "annotations" && strings.HasPrefix(path[2], "avp.kubernetes.io/")
}

// onlyText reports whether a field can only be text.
func onlyText(o *manifest.Object, path []string) bool {
	return o.GetKind() == "ConfigMap" && path[0] == "data" || len(path) > 2 && slices.Contains([]string{"annotations", "labels"}, path[len(path)-2])
}

// text resolves the placeholders of one text, and says what it was made from.
func (r *Resolver) text(ctx context.Context, q Request, f form, path []string, text string) (v any, source string, err error) {
	parts, err := f.parts(text)
	if err != nil {
		return nil, "", inField(path, err)
	}
	var whole strings.Builder
	var sources []string
	for _, p := range parts {
		if p.ref == nil {
			whole.WriteString(p.literal)
			continue
		}
		if err := r.mayStand(path, p.ref.hashed()); err != nil {
			return nil, "", err
		}
		sources = append(sources, p.ref.String())
		v, err := r.value(ctx, q, *p.ref)
		if err != nil {
			return nil, "", inField(path, err)
		}
		if len(parts) == 1 {
			return native(v), sources[0], nil
		}
		plain, err := textOf(v)
		if err != nil {
			return nil, "", inField(path, err)
		}
		whole.WriteString(plain)
	}
	return whole.String(), strings.Join(sources, ", "), nil
}

// native converts a value of JSON to the types of manifests.
func native(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = native(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = native(e)
		}
		return out
	}
	return v
}

// mayStand refuses a secret in a field that names an object or is shown with
// it. A hash may stand in metadata of a template, where it restarts pods.
func (r *Resolver) mayStand(path []string, hash bool) error {
	at := slices.Index(path, "metadata")
	shown := at > 0 && at+1 < len(path) && slices.Contains([]string{"annotations", "labels", "name", "namespace", "generateName"}, path[at+1])
	if at != 0 && (!shown || hash) && !(len(path) == 1 && (path[0] == "kind" || path[0] == "apiVersion")) {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "a secret may not stand in %s, which is shown to everybody who sees the object", strings.Join(path, ".")), "",
		"move it to a Secret; the metadata of a template may have its hash: | sha256sum")
}

func inField(path []string, err error) error {
	e, ok := fault.As(err)
	if !ok {
		return fmt.Errorf("field %s: %w", strings.Join(path, "."), err)
	}
	c := *e
	c.Cause = strings.Join(path, ".") + ": " + c.Cause
	return &c
}

// value reads what a placeholder stands for.
func (r *Resolver) value(ctx context.Context, q Request, ref reference) (any, error) {
	entries, err := r.secret(ctx, q, ref)
	if err != nil {
		return nil, err
	}
	v, ok := entries[ref.key]
	if !ok || v == nil {
		return nil, fault.With(fault.New(fault.Missing, "the secret %s has no key %q", ref.path, ref.key), "", "add the key, or correct the placeholder")
	}
	return ref.modify(v)
}

// secret reads the entries of a secret that the policy permits.
func (r *Resolver) secret(ctx context.Context, q Request, ref reference) (map[string]any, error) {
	if ref.store == kubernetesStore {
		return r.clusterSecret(ctx, q, ref)
	}
	s, ok := r.vaults[ref.store]
	if !ok {
		if ref.store == "" {
			return nil, fault.With(fault.New(fault.Denied, "the agent has no Vault"), "", policyFix)
		}
		return nil, fault.With(fault.New(fault.Denied, "the agent has no secret store %q", ref.store), "", policyFix)
	}
	if err := checkVaultPath(ref.path); err != nil {
		return nil, err
	}
	if !permits(s.Permit, ref.path, q.Owner) {
		return nil, refusedPath(ref.path, q.Owner)
	}
	kv := ref.kv
	if kv == 0 {
		kv = s.KVVersion
	}
	if kv == 0 {
		kv = 2
	}
	return r.entries(ctx, fmt.Sprintf("vault:%s:%d:%d:%s", s.Name, kv, ref.version, ref.path), q.Since, func(ctx context.Context) (map[string]any, error) {
		return s.client.Read(ctx, ref.path, ref.version, kv)
	})
}

func refusedPath(path string, o Owner) error {
	return fault.With(fault.New(fault.Denied, "the cluster's owner does not permit the secret %s to objects of %s", path, o.describe()), "", policyFix)
}

// clusterSecret reads a Secret of the cluster. Without a namespace it is that of
// the object.
func (r *Resolver) clusterSecret(ctx context.Context, q Request, ref reference) (map[string]any, error) {
	if err := checkPath(ref.path); err != nil {
		return nil, err
	}
	if ref.version > 0 {
		return nil, fault.New(fault.Invalid, "a Secret of the cluster has no versions")
	}
	namespace, name, ok := strings.Cut(ref.path, "/")
	if !ok {
		namespace, name = q.Owner.Namespace, ref.path
	}
	if namespace == "" || strings.Contains(name, "/") {
		return nil, fault.New(fault.Invalid, "a Secret of the cluster is named by NAMESPACE/NAME")
	}
	if namespace == r.Home || !permits(r.Policy.Kubernetes.Permit, namespace+"/"+name, q.Owner) {
		return nil, refusedPath(namespace+"/"+name, q.Owner)
	}
	// Not cached: who may read it differs between applications.
	return readable(ctx, q, namespace, name)
}

// readable reads a Secret that belongs to no other tenant and is no credential
// of Kubernetes itself.
func readable(ctx context.Context, q Request, namespace, name string) (map[string]any, error) {
	o, err := q.Read(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, missingSecret(namespace, name)
	}
	kind, _ := o.Object["type"].(string)
	if kind == "kubernetes.io/service-account-token" || kind == "bootstrap.kubernetes.io/token" {
		return nil, fault.New(fault.Denied, "Secret %s/%s is a credential of Kubernetes (%s), which no placeholder may read", namespace, name, kind)
	}
	if of, ok := manifest.RawAnnotation(o, tenantAnnotation); ok && q.Tenant != "" && of != q.Tenant {
		return nil, fault.New(fault.Denied, "Secret %s/%s belongs to another tenant", namespace, name)
	}
	return decodeEntries(o), nil
}

// tenantAnnotation names the tenant whose application has applied an object.
const tenantAnnotation = "capstan.dev/tenant"

func missingSecret(namespace, name string) error {
	return fault.With(fault.New(fault.Missing, "there is no Secret %s/%s", namespace, name), "", "create it, or correct the placeholder")
}

func secretEntries(ctx context.Context, read ReadSecret, namespace, name string) (map[string]any, error) {
	o, err := read(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, missingSecret(namespace, name)
	}
	return decodeEntries(o), nil
}

func decodeEntries(o *manifest.Object) map[string]any {
	data, _ := o.Object["data"].(map[string]any)
	out := make(map[string]any, len(data))
	for k, v := range data {
		text, _ := v.(string)
		raw, err := base64.StdEncoding.DecodeString(text)
		if err == nil {
			out[k] = string(raw)
		}
	}
	return out
}

// cached is one secret that was read. Its lock is held while it is read, so
// that many objects cause one request.
type cached struct {
	mu      sync.Mutex
	entries map[string]any
	at      time.Time // zero: it was never read
}

// maxCached bounds the cache; beyond it, a new one is started.
const maxCached = 4096

// entries returns a secret that was read since a time, or recently for a zero
// one, or reads it.
func (r *Resolver) entries(ctx context.Context, id string, since time.Time, read func(context.Context) (map[string]any, error)) (map[string]any, error) {
	asked := r.Clock.Now()
	r.mu.Lock()
	c := r.cache[id]
	if c == nil {
		if len(r.cache) >= maxCached {
			r.cache = map[string]*cached{}
		}
		c = &cached{}
		r.cache[id] = c
	}
	r.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if since.IsZero() {
		since = asked.Add(-r.age)
	}
	if !c.at.IsZero() && c.at.After(since) {
		return c.entries, nil
	}
	entries, err := read(ctx)
	if err != nil {
		return nil, err
	}
	c.entries, c.at = entries, r.Clock.Now()
	return entries, nil
}

// decoded is the plain text of base64; empty if it is none.
func decoded(text string) string {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	return string(raw)
}

// visit calls f for every text of a value.
func visit(v any, path []string, f func(path []string, text string) error) error {
	_, err := rewrite(v, path, func(path []string, text string) (any, error) { return text, f(path, text) })
	return err
}

// rewrite replaces every text of a value in place. A key of a map that looks
// like a placeholder is an error, because it could not be masked.
func rewrite(v any, path []string, f func(path []string, text string) (any, error)) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			if strings.Contains(k, opening) {
				return nil, fault.New(fault.Invalid, "a key of %s is a placeholder, and only values may have some", strings.Join(path, "."))
			}
			out, err := rewrite(v[k], step(path, k), f)
			if err != nil {
				return nil, err
			}
			v[k] = out
		}
		return v, nil
	case []any:
		for i := range v {
			out, err := rewrite(v[i], step(path, strconv.Itoa(i)), f)
			if err != nil {
				return nil, err
			}
			v[i] = out
		}
		return v, nil
	case string:
		return f(path, v)
	}
	return v, nil
}

func step(path []string, s string) []string { return append(path[:len(path):len(path)], s) }

// named replaces the indexes in a path by the names of the items, which stay
// when a list is ordered otherwise.
func named(root map[string]any, path []string) []string {
	out := make([]string, len(path))
	var v any = root
	for i, s := range path {
		out[i] = s
		switch at := v.(type) {
		case map[string]any:
			v = at[s]
		case []any:
			n, err := strconv.Atoi(s)
			if err != nil || n >= len(at) {
				return out
			}
			v = at[n]
			if m, ok := v.(map[string]any); ok {
				if name, ok := m["name"].(string); ok && !strings.Contains(name, opening) {
					out[i] = itemPrefix + name
				}
			}
		}
	}
	return out
}

// itemPrefix marks the name of an item in a path.
const itemPrefix = "name="
