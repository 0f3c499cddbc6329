package catalog

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Group and kinds of Argo CD's objects.
const (
	ArgoVersion     = "argoproj.io/v1alpha1"
	KindApplication = "Application"
	KindProject     = "AppProject"
	secretType      = "argocd.argoproj.io/secret-type"
)

// Limits of one apply.
const (
	MaxApplyBytes = 10 << 20
	maxDocuments  = 2000
)

// An Applied is what became of one document.
type Applied struct {
	Index      int // from 1, in the order of the text; the items of a list count each
	APIVersion string
	Kind       string
	Namespace  string
	Name       string
	Outcome    Outcome // empty: Err says why
	Warnings   []string
	Err        error
}

// Apply makes or changes the objects of a stream of YAML documents, or of a
// JSON text. Each object is a transaction of its own; one that is refused
// does not stop the others. A text that cannot be read changes nothing.
func (c *Catalog) Apply(ctx context.Context, by hub.Caller, text []byte, isJSON, dryRun bool) ([]Applied, error) {
	limits := manifest.Limits{MaxBytes: MaxApplyBytes, MaxDocs: maxDocuments, Strict: true, JSON: isJSON}
	objects, err := manifest.Parse("the request body", text, limits)
	if err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		return nil, fault.With(fault.New(fault.Invalid, "there is no object in it"), "the request body", "send Application or AppProject objects as YAML or JSON")
	}
	// The pipeline starts when all is accepted: started with the first object,
	// it would process small batches and delay the rest.
	batched := &batchedNotifier{}
	batch := *c
	batch.Notify = batched
	defer batched.flush(c.Notify)
	if len(objects) > 1 && !dryRun {
		defer c.Pace.Arriving(by.Tenant)() // before the hints are given
	}
	out := make([]Applied, len(objects))
	for i, o := range objects {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		a := Applied{Index: i + 1, APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
		a.Outcome, a.Warnings, a.Err = batch.applyOne(ctx, by, o, dryRun)
		if a.Err != nil {
			a.Outcome = ""
		}
		out[i] = a
	}
	if !isJSON {
		locate(out, text, limits)
	}
	return out, nil
}

// locate adds the lines of the text to the refusals. The text is read again for
// it: most have none, and do without the memory.
func locate(all []Applied, text []byte, limits manifest.Limits) {
	if !slices.ContainsFunc(all, func(a Applied) bool { return a.Err != nil }) {
		return
	}
	lines := manifest.Lines(text, limits)
	if len(lines) != len(all) {
		return
	}
	rows := bytes.Split(text, []byte("\n"))
	for i, a := range all {
		e, ok := fault.As(a.Err)
		if !ok {
			continue
		}
		placed := *e
		if e.Line == 0 {
			placed.Line = lines[i](fieldPath(e.Cause)...)
		} else {
			placed.Line += above(e.Object, lines[i], rows)
			placed.Cause = strings.TrimPrefix(e.Cause, fmt.Sprintf("line %d: ", e.Line))
		}
		all[i].Err = &placed
	}
}

// above counts the lines above the value of a setting that an error is about.
func above(object string, line func(path ...string) int, rows [][]byte) int {
	_, key, found := strings.Cut(object, ", key ")
	if !found {
		return line() - 1
	}
	at := line("data", key)
	if at == line("data") {
		at = line("stringData", key)
	}
	if at > 0 && at <= len(rows) && blockScalar.Match(rows[at-1]) {
		return at // the value begins on the line after its key
	}
	return at - 1
}

var blockScalar = regexp.MustCompile(`:\s*[|>][-+0-9]*\s*(#.*)?\r?$`)

var fieldText = regexp.MustCompile(`\b(?:spec|metadata|data|stringData)(?:\.[A-Za-z][\w-]*|\[\d+\])+`)

// fieldPath is the path of the first field that a refusal names, in steps.
func fieldPath(cause string) []string {
	field := strings.NewReplacer("[", ".", "]", "").Replace(fieldText.FindString(cause))
	if field == "" {
		return nil
	}
	return strings.Split(field, ".")
}

// applyOne is the write for one object.
func (c *Catalog) applyOne(ctx context.Context, by hub.Caller, o *manifest.Object, dryRun bool) (Outcome, []string, error) {
	put := PutOptions{Create: true, Update: true, DryRun: dryRun}
	switch {
	case o.GetAPIVersion() == ArgoVersion && o.GetKind() == KindApplication:
		meta, spec, warnings, err := read(o)
		if err == nil {
			put.Operation, err = operationOf(o)
		}
		if err != nil {
			return "", nil, err
		}
		_, outcome, more, err := c.PutApplication(ctx, by, hub.Application{Meta: meta, Spec: spec}, put)
		return outcome, append(warnings, more...), err
	case o.GetAPIVersion() == ArgoVersion && o.GetKind() == KindProject:
		meta, spec, warnings, err := read(o)
		if err != nil {
			return "", nil, err
		}
		_, outcome, more, err := c.PutProject(ctx, by, hub.Project{Meta: meta, Spec: spec}, put)
		return outcome, append(warnings, more...), err
	case o.GetAPIVersion() == "v1" && o.GetKind() == "Secret" && settings.IsSecret(o.GetName()):
		return c.applySettingsMap(ctx, by, o, dryRun)
	case o.GetAPIVersion() == "v1" && o.GetKind() == "Secret":
		return c.applySecret(ctx, by, o, dryRun)
	case o.GetAPIVersion() == "v1" && o.GetKind() == "ConfigMap" && o.GetName() == knownHostsMap:
		return c.applyKnownHosts(ctx, by, o, dryRun)
	case o.GetAPIVersion() == "v1" && o.GetKind() == "ConfigMap" && settings.IsMap(o.GetName()):
		return c.applySettingsMap(ctx, by, o, dryRun)
	}
	return "", nil, notServed(o)
}

// notServed is the answer to kinds that no part of this release takes.
func notServed(o *manifest.Object) error {
	object := manifest.KeyOf(o).Describe()
	fix := "leave it out of this apply"
	switch {
	case o.GetAPIVersion() == ArgoVersion && o.GetKind() == "ApplicationSet":
		fix = "write the Applications that it would make"
	case !strings.HasPrefix(o.GetAPIVersion(), "argoproj.io/"):
		fix = "objects for a cluster belong into a repository that an Application names"
	}
	return fault.With(fault.New(fault.Invalid, "%s %s is not served here", o.GetAPIVersion(), o.GetKind()), object, fix)
}

// read takes metadata and spec of one of Argo CD's objects. What the hub or
// a cluster writes is left out.
func read(o *manifest.Object) (hub.Meta, json.RawMessage, []string, error) {
	object := manifest.KeyOf(o).Describe()
	meta := hub.Meta{
		Namespace: o.GetNamespace(), Name: o.GetName(), Finalizers: o.GetFinalizers(),
		Labels: o.GetLabels(), Annotations: maps.Clone(o.GetAnnotations()),
	}
	delete(meta.Annotations, manifest.LastApplied)
	if len(meta.Annotations) == 0 {
		meta.Annotations = nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(o.Object)) {
		switch key {
		case "apiVersion", "kind", "metadata", "spec", "status":
		case "operation":
			if o.GetKind() != KindApplication {
				return meta, nil, nil, fault.With(fault.New(fault.Invalid, "it has a field operation, which Applications alone can have"), object, "leave it out")
			}
		default:
			warnings = append(warnings, fmt.Sprintf("the field %s is dropped: there is none of that name", short(key)))
		}
	}
	spec, ok := o.Object["spec"]
	if !ok {
		return meta, nil, nil, fault.With(fault.New(fault.Invalid, "it has no spec"), object, "")
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return meta, nil, nil, fault.With(fault.New(fault.Invalid, "its spec cannot be written as JSON"), object, "")
	}
	return meta, raw, warnings, nil
}

// operationOf is the field operation of an Application.
func operationOf(o *manifest.Object) (json.RawMessage, error) {
	v, there := o.Object["operation"]
	if !there {
		return nil, nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "its field operation cannot be written as JSON"), manifest.KeyOf(o).Describe(), "")
	}
	return raw, nil
}

// applySecret takes the Secrets with which Argo CD declares repositories,
// credential templates and clusters (CRED-01, CRED-02, CLU-01). Their values
// appear in no error and no warning.
func (c *Catalog) applySecret(ctx context.Context, by hub.Caller, o *manifest.Object, dryRun bool) (Outcome, []string, error) {
	object := manifest.KeyOf(o).Describe()
	values, err := secretValues(o)
	if err != nil {
		return "", nil, fault.With(err, object, "")
	}
	kind := o.GetLabels()[secretType]
	var outcome Outcome
	var warnings []string
	switch kind {
	case "repository":
		outcome, warnings, err = c.applyRepository(ctx, by, values, dryRun)
	case "repo-creds":
		outcome, warnings, err = c.applyTemplate(ctx, by, values, dryRun)
	case "cluster":
		outcome, warnings, err = c.applyCluster(ctx, by, o, values, dryRun)
	case "":
		err = fault.With(fault.New(fault.Invalid, "it has no label %s", secretType), "",
			"the hub takes Secrets of the types repository, repo-creds and cluster; others belong into a repository")
	default:
		err = fault.New(fault.Invalid, "Secrets of the type %q are not served yet", short(kind))
	}
	return outcome, warnings, fault.With(err, object, "")
}

// secretValues returns stringData over data, decoded.
func secretValues(o *manifest.Object) (map[string]string, error) {
	out := map[string]string{}
	for _, field := range []string{"data", "stringData"} {
		v, there := o.Object[field]
		if !there || v == nil {
			continue
		}
		m, ok := v.(map[string]any)
		if !ok {
			return nil, fault.New(fault.Invalid, "%s is no map of texts", field)
		}
		for k, v := range m {
			s, ok := v.(string)
			if !ok {
				return nil, fault.With(fault.New(fault.Invalid, "%s.%s is no text", field, short(k)), "", "put the value in quotes")
			}
			if field == "data" {
				b, err := base64.StdEncoding.DecodeString(s)
				if err != nil {
					return nil, fault.With(fault.New(fault.Invalid, "data.%s is not base64", short(k)), "", "write it under stringData")
				}
				s = string(b)
			}
			out[k] = s
		}
	}
	return out, nil
}

// popString removes a key and gives its value.
func popString(m map[string]string, key string) string {
	v := m[key]
	delete(m, key)
	return v
}

func (c *Catalog) applyRepository(ctx context.Context, by hub.Caller, v map[string]string, dryRun bool) (Outcome, []string, error) {
	r := hub.Repository{
		URL: popString(v, "url"), Type: hub.RepositoryKind(popString(v, "type")), Name: popString(v, "name"), Project: popString(v, "project"), Insecure: popString(v, "insecure") == "true",
	}
	// Argo CD's older word for the same switch, over SSH.
	if popString(v, "insecureIgnoreHostKey") == "true" {
		r.Insecure = true
	}
	cred, warnings := credential(v)
	if cred != nil {
		r.Username = cred.Username
	}
	_, outcome, more, err := c.PutRepository(ctx, by, r, cred, dryRun)
	return outcome, append(more, warnings...), err
}

func (c *Catalog) applyTemplate(ctx context.Context, by hub.Caller, v map[string]string, dryRun bool) (Outcome, []string, error) {
	t := hub.RepositoryTemplate{URL: popString(v, "url"), Type: hub.RepositoryKind(popString(v, "type")), Name: popString(v, "name")}
	cred, warnings := credential(v)
	if cred == nil {
		return "", nil, fault.With(fault.New(fault.Invalid, "it holds no credential"), "", "set username and password, or sshPrivateKey")
	}
	t.Username = cred.Username
	_, outcome, err := c.PutRepositoryTemplate(ctx, by, t, cred, dryRun)
	return outcome, warnings, err
}

// credential takes user name and password, or a token, or a private key; other
// keys are named in warnings, never their values.
func credential(v map[string]string) (*hub.Credential, []string) {
	cred := hub.Credential{Username: popString(v, "username"), Password: popString(v, "password"), BearerToken: popString(v, "bearerToken"), SSHPrivateKey: popString(v, "sshPrivateKey"),
		TLSClientCert: popString(v, "tlsClientCertData"), TLSClientKey: popString(v, "tlsClientCertKey")}
	delete(v, "forceHttpBasicAuth") // it is always sent at once (CRED-05)
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		warnings = append(warnings, fmt.Sprintf("the key %s was not stored: this release does not serve it", short(key)))
	}
	if cred == (hub.Credential{}) {
		return nil, warnings
	}
	return &cred, warnings
}

// applyCluster registers the name, server alias and labels of a cluster. The
// hub takes no credential for a cluster; its agent is enrolled instead.
func (c *Catalog) applyCluster(ctx context.Context, by hub.Caller, o *manifest.Object, v map[string]string, dryRun bool) (Outcome, []string, error) {
	cl := hub.Cluster{Server: trimServer(popString(v, "server"))}
	if cl.Name = popString(v, "name"); cl.Name == "" {
		cl.Name = o.GetName()
	}
	cl.Labels = maps.Clone(o.GetLabels())
	delete(cl.Labels, secretType)
	cl.Annotations = maps.Clone(o.GetAnnotations())
	delete(cl.Annotations, manifest.LastApplied)
	if err := unscoped(v); err != nil {
		return "", nil, err
	}
	var warnings []string
	if dropped := clusterSecrets(popString(v, "config")); len(dropped) > 0 {
		warnings = append(warnings, strings.Join(dropped, " and ")+" were not stored: the hub holds no credential of any cluster")
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		warnings = append(warnings, fmt.Sprintf("the key %s was not stored: this release does not serve it", short(key)))
	}
	made, outcome, err := c.PutCluster(ctx, by, cl, dryRun)
	if err == nil && made.AgentID == "" {
		warnings = append(warnings, fmt.Sprintf("no agent speaks for it yet: run `capstan cluster enroll %s` and install the agent that it prints", cl.Name))
	}
	return outcome, warnings, err
}

// unscoped refuses a cluster of which Argo CD would manage some namespaces
// alone: the hub does not bound an agent, its chart does.
func unscoped(v map[string]string) error {
	if strings.Trim(v["namespaces"], ", ") == "" {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "its key namespaces restricts the cluster to some namespaces, which the hub does not enforce"), "",
		"install the agent with rights on these namespaces alone, and leave the keys namespaces and clusterResources out")
}

// clusterSecrets names the keys of a cluster's config.
func clusterSecrets(config string) []string {
	if config == "" {
		return nil
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal([]byte(config), &keys) != nil {
		return []string{"config"}
	}
	return slices.Sorted(maps.Keys(keys))
}
