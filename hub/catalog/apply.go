package catalog

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
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
	Outcome    transact.Outcome // empty: Err says why
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
	batch := c.notifying(batched)
	defer batched.flush(c.parts.Service.Notify)
	if len(objects) > 1 && !dryRun {
		defer c.parts.Pace.Arriving(by.Tenant)() // before the hints are given
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

// notifying returns a catalogue whose writes notify another.
func (c *Catalog) notifying(n transact.Notifier) *Catalog {
	p := c.parts
	s := *p.Service
	s.Notify = n
	p.Service, p.Tenancy = &s, p.Tenancy.Of(&s)
	return New(p)
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
			placed.Line = lines[i](validation.FieldPath(e.Cause)...)
		} else {
			placed.Line += validation.LinesAbove(e.Object, lines[i], rows)
			placed.Cause = strings.TrimPrefix(e.Cause, fmt.Sprintf("line %d: ", e.Line))
		}
		all[i].Err = &placed
	}
}

// applyOne is the write for one object.
func (c *Catalog) applyOne(ctx context.Context, by hub.Caller, o *manifest.Object, dryRun bool) (transact.Outcome, []string, error) {
	put := PutOptions{Create: true, Update: true, DryRun: dryRun}
	switch {
	case o.GetAPIVersion() == validation.ArgoVersion && o.GetKind() == validation.KindApplication:
		meta, spec, warnings, err := validation.ReadObject(o)
		if err == nil {
			put.Operation, err = validation.OperationOf(o)
		}
		if err != nil {
			return "", nil, err
		}
		_, outcome, more, err := c.PutApplication(ctx, by, hub.Application{Meta: meta, Spec: spec}, put)
		return outcome, append(warnings, more...), err
	case o.GetAPIVersion() == validation.ArgoVersion && o.GetKind() == validation.KindProject:
		meta, spec, warnings, err := validation.ReadObject(o)
		if err != nil {
			return "", nil, err
		}
		_, outcome, more, err := c.PutProject(ctx, by, hub.Project{Meta: meta, Spec: spec}, put)
		return outcome, append(warnings, more...), err
	case o.GetAPIVersion() == validation.ArgoVersion && o.GetKind() == validation.KindApplicationSet:
		meta, spec, warnings, err := validation.ReadObject(o)
		if err != nil {
			return "", nil, err
		}
		_, outcome, more, err := c.PutApplicationSet(ctx, by, hub.ApplicationSet{Meta: meta, Spec: spec}, put)
		return outcome, append(warnings, more...), err
	case o.GetAPIVersion() == "v1" && o.GetKind() == "Secret" && settings.IsSecret(o.GetName()):
		return c.ApplySettings(ctx, by, o, dryRun)
	case validation.IsReferred(o):
		return c.ApplySettings(ctx, by, o, dryRun)
	case o.GetAPIVersion() == "v1" && o.GetKind() == "Secret":
		return c.applySecret(ctx, by, o, dryRun)
	case o.GetAPIVersion() == "v1" && o.GetKind() == "ConfigMap" && o.GetName() == tenancy.KnownHostsMap:
		return c.ApplyKnownHosts(ctx, by, o, dryRun)
	case o.GetAPIVersion() == "v1" && o.GetKind() == "ConfigMap" && settings.IsMap(o.GetName()):
		return c.ApplySettings(ctx, by, o, dryRun)
	}
	return "", nil, validation.NotServed(o)
}

// applySecret takes the Secrets with which Argo CD declares repositories,
// credential templates and clusters (CRED-01, CRED-02, CLU-01). Their values
// appear in no error and no warning.
func (c *Catalog) applySecret(ctx context.Context, by hub.Caller, o *manifest.Object, dryRun bool) (transact.Outcome, []string, error) {
	object := manifest.KeyOf(o).Describe()
	values, err := validation.SecretValues(o)
	if err != nil {
		return "", nil, fault.With(err, object, "")
	}
	kind := o.GetLabels()[validation.SecretType]
	withheld := validation.Withheld(values)
	var outcome transact.Outcome
	var warnings []string
	switch kind {
	case "repository":
		outcome, warnings, err = c.applyRepository(ctx, by, values, len(withheld) > 0, dryRun)
	case "repo-creds":
		outcome, warnings, err = c.applyTemplate(ctx, by, values, len(withheld) > 0, dryRun)
	case "cluster":
		outcome, warnings, err = c.applyCluster(ctx, by, o, values, dryRun)
	case string(hub.WriteRepository), string(hub.WriteTemplate), string(hub.SCMCredential):
		outcome, warnings, err = c.applyDeferred(ctx, by, o, hub.DeferredKind(kind), values, len(withheld) > 0, dryRun)
	case "":
		err = fault.With(fault.New(fault.Invalid, "it has no label %s", validation.SecretType), "",
			"the hub takes Secrets of the types repository, repo-creds, repository-write, repo-write-creds, scm-creds and cluster; others belong into a repository")
	default:
		err = fault.New(fault.Invalid, "Secrets of the type %q are not served yet", validation.Shorten(kind))
	}
	return outcome, append(warnings, validation.WithheldWarning(withheld)...), fault.With(err, object, "")
}

// applyRepository registers a repository. With withheld values its stored
// credential stays.
func (c *Catalog) applyRepository(ctx context.Context, by hub.Caller, v map[string]string, withheld, dryRun bool) (transact.Outcome, []string, error) {
	r := hub.Repository{
		URL: validation.PopString(v, "url"), Type: hub.RepositoryKind(validation.PopString(v, "type")), Name: validation.PopString(v, "name"), Project: validation.PopString(v, "project"), Insecure: validation.PopString(v, "insecure") == "true",
	}
	// Argo CD's older word for the same switch, over SSH.
	if validation.PopString(v, "insecureIgnoreHostKey") == "true" {
		r.Insecure = true
	}
	r.PlainHTTP = validation.PopString(v, "insecureOCIForceHttp") == "true"
	if validation.PopString(v, "enableOCI") == "true" && !r.Type.Charts() {
		return "", nil, fault.New(fault.Invalid, "enableOCI is for repositories of the types helm and oci")
	}
	cred, err := validation.ReadCredential(v)
	if err == nil {
		r.GitOptions, err = validation.ReadGitOptions(v)
	}
	if err != nil {
		return "", nil, err
	}
	warnings := validation.NotStored(v)
	if cred != nil {
		r.Username = cred.Username
	}
	if withheld {
		cred = nil
	}
	_, outcome, more, err := c.PutRepository(ctx, by, r, cred, dryRun)
	return outcome, append(more, warnings...), err
}

// applyTemplate makes or changes a credential template. With withheld values it
// must be there, and stays as it is.
func (c *Catalog) applyTemplate(ctx context.Context, by hub.Caller, v map[string]string, withheld, dryRun bool) (transact.Outcome, []string, error) {
	t := hub.RepositoryTemplate{URL: validation.PopString(v, "url"), Type: hub.RepositoryKind(validation.PopString(v, "type")), Name: validation.PopString(v, "name")}
	delete(v, "enableOCI") // the prefix says whether it is one of a registry
	cred, err := validation.ReadCredential(v)
	if err != nil {
		return "", nil, err
	}
	t.Proxy, t.NoProxy = validation.PopString(v, "proxy"), validation.PopString(v, "noProxy")
	warnings := validation.NotStored(v)
	if withheld {
		return c.keepTemplate(ctx, by, t.URL)
	}
	if cred == nil && t.Proxy == "" {
		return "", nil, fault.With(fault.New(fault.Invalid, "it holds no credential"), "", "set username and password, sshPrivateKey, or the keys of a GitHub App")
	}
	if cred == nil {
		cred = &hub.Credential{}
	}
	t.Username = cred.Username
	_, outcome, err := c.PutRepositoryTemplate(ctx, by, t, cred, dryRun)
	return outcome, warnings, err
}

// keepTemplate leaves a credential template as it is stored.
func (c *Catalog) keepTemplate(ctx context.Context, by hub.Caller, given string) (transact.Outcome, []string, error) {
	url, err := repourl.Normalize(given)
	if err != nil {
		return "", nil, err
	}
	all, err := c.RepositoryTemplates(ctx, by)
	if err != nil {
		return "", nil, err
	}
	if slices.ContainsFunc(all, func(t hub.RepositoryTemplate) bool { return t.URL == url }) {
		return transact.Unchanged, nil, nil
	}
	return "", nil, fault.With(fault.New(fault.Invalid, "its credential was not exported, and none is stored"), "", "write its values into the file, and apply it again")
}

// applyCluster registers the name, server alias and labels of a cluster. The
// hub takes no credential for a cluster; its agent is enrolled instead.
func (c *Catalog) applyCluster(ctx context.Context, by hub.Caller, o *manifest.Object, v map[string]string, dryRun bool) (transact.Outcome, []string, error) {
	cl := hub.Cluster{Server: validation.TrimServer(validation.PopString(v, "server"))}
	if cl.Name = validation.PopString(v, "name"); cl.Name == "" {
		cl.Name = o.GetName()
	}
	cl.Labels = maps.Clone(o.GetLabels())
	delete(cl.Labels, validation.SecretType)
	cl.Annotations = maps.Clone(o.GetAnnotations())
	delete(cl.Annotations, manifest.LastApplied)
	var err error
	if cl.ClusterScope, err = validation.ReadScope(v); err != nil {
		return "", nil, err
	}
	var warnings []string
	if dropped := validation.ClusterConfigKeys(validation.PopString(v, "config")); len(dropped) > 0 {
		warnings = append(warnings, strings.Join(dropped, " and ")+" were not stored: the hub holds no credential of any cluster")
	}
	for _, key := range slices.Sorted(maps.Keys(v)) {
		warnings = append(warnings, fmt.Sprintf("the key %s was not stored: this release does not serve it", validation.Shorten(key)))
	}
	made, outcome, err := c.PutCluster(ctx, by, cl, dryRun)
	if err == nil && made.AgentID == "" {
		warnings = append(warnings, fmt.Sprintf("no agent speaks for it yet: run `capstan cluster enroll %s` and install the agent that it prints", cl.Name))
	}
	return outcome, warnings, err
}
