package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/secrets"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// resolveOption is the sync option by which an application, or one object,
// opts in to references to secrets. Without it their text is ordinary text.
const resolveOption = manifest.ResolveOption

// Secrets resolves references to secrets.
type Secrets interface {
	Resolve(ctx context.Context, q secrets.Request) (secrets.Result, error)
	// Interval is how often applied objects are resolved again.
	Interval() time.Duration
}

// noSecrets permits nothing.
type noSecrets struct{}

func (noSecrets) Interval() time.Duration { return time.Hour }

func (noSecrets) Resolve(_ context.Context, q secrets.Request) (secrets.Result, error) {
	if !secrets.Refers(q.Object) {
		return secrets.Result{Object: q.Object}, nil
	}
	return secrets.Result{}, fault.With(fault.New(fault.Denied, "this agent has no policy for secrets"), "", "the cluster's owner sets secrets in the values of the agent's chart")
}

// An applicable is a desired object as it is applied, with resolved references.
type applicable struct {
	*manifest.Object

	leaves []secrets.Leaf // that are secret: resolved, or marked by the object
}

// hidden reports whether the object has values that nobody may see.
func (o applicable) hidden(key manifest.Key) bool { return len(o.leaves) > 0 || key.Kind == "Secret" }

// explain is explain for an object that is being written.
func (s *sending) explain(err error, doing string) error {
	return explainAs(err, s.key, doing, len(s.leaves) > 0 || s.key.Kind == "Secret")
}

// resolvesAll reports whether the application opts in to references. The caller
// holds mu.
func (a *app) resolvesAll() bool {
	return hasOption(a.state.GetPolicy().GetSyncOptions(), resolveOption, "true")
}

// readDesired reads a desired object, and resolves its references if the
// application or the object opts in. No
// secret that was read before since is used; zero: recent ones are.
func (a *app) readDesired(ctx context.Context, d *desired, since time.Time) (applicable, error) {
	body, err := a.e.body(ctx, d.digest)
	if err != nil {
		return applicable{}, err
	}
	return a.resolveSecrets(ctx, d, body, since)
}

func (a *app) resolveSecrets(ctx context.Context, d *desired, body *manifest.Object, since time.Time) (applicable, error) {
	if inHub(d.key) { // the application that it describes resolves them where they are applied
		return applicable{Object: body}, nil
	}
	marked := secrets.Marked(body)
	if !hasOption(a.options(body), resolveOption, "true") {
		a.conceal(d.key, marked)
		return applicable{Object: body, leaves: marked}, encryptedWithoutOption(body, d.key)
	}
	a.mu.Lock()
	owner := secrets.Owner{Namespace: d.key.Namespace, Project: a.state.GetProject()}
	a.mu.Unlock()
	got, err := a.e.Secrets.Resolve(ctx, secrets.Request{
		Object: body, Owner: owner, Tenant: a.e.tenantSettings().Tenant, Read: a.readSecret, Since: since,
	})
	if err != nil {
		return applicable{}, fault.With(err, d.key.Describe(), "")
	}
	leaves := secrets.Together(got.Leaves, secrets.Marked(got.Object))
	a.conceal(d.key, leaves)
	return applicable{Object: got.Object, leaves: leaves}, nil
}

// conceal notes secret values of an object, which then are hidden in all that
// leaves the cluster.
func (a *app) conceal(key manifest.Key, leaves []secrets.Leaf) {
	if len(leaves) > 0 {
		a.e.values.of(a.id, true).Set(key, leaves)
	}
}

// encryptedWithoutOption refuses a Secret that SOPS has encrypted, which no API
// server accepts. Objects of other kinds may have such a block for an operator;
// only what was added to it is removed.
func encryptedWithoutOption(body *manifest.Object, key manifest.Key) error {
	if !manifest.Encrypted(body) {
		return nil
	}
	if manifest.IsSecret(body) {
		return fault.With(fault.New(fault.Invalid, "it is encrypted with SOPS, and the application does not resolve secrets"), key.Describe(),
			"set the sync option "+resolveOption+"=true")
	}
	if block, ok := body.Object[manifest.EncryptedBlock].(map[string]any); ok {
		delete(block, manifest.KeyOrder)
	}
	return nil
}

// secretResource is where Secrets are read.
func secretResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
}

// readSecret reads a Secret of the cluster, with the rights of the application.
func (a *app) readSecret(ctx context.Context, namespace, name string) (*manifest.Object, error) {
	key := manifest.Key{Kind: "Secret", Namespace: namespace, Name: name}
	if err := a.e.Guard.mayRead(key, true); err != nil {
		return nil, err
	}
	o, err := a.kube().get(ctx, endpoint{resource: secretResource(), namespace: namespace, name: name})
	return o, explain(err, key, "read")
}

// unresolved notes that an object could not be read or resolved.
func (t *task) unresolved(ctx context.Context, x *object, err error) error {
	t.app.refused(ctx, x, err)
	return err
}

// secretsOf describes the resolved fields of a written object for its record.
func (a *app) secretsOf(s *sending) *inventory.Secrets { return a.secretsIn(s.leaves) }

func (a *app) secretsIn(leaves []secrets.Leaf) *inventory.Secrets {
	if len(leaves) == 0 {
		return nil
	}
	out := &inventory.Secrets{Hash: secrets.Result{Leaves: leaves}.Hash(a.e.hashes.Key)}
	for _, l := range leaves {
		out.Paths = append(out.Paths, l.Path)
	}
	return out
}

// observeSecrets notes the live values of fields that were resolved before the
// agent was started. The caller holds mu.
func (x *object) observeSecrets(o *manifest.Object) {
	if x.record != nil && x.record.Secret != nil {
		x.app.e.values.of(x.app.id, true).Observe(x.key, o, x.record.Secret.Paths)
	}
}

// RunSecrets resolves applied objects again at the interval of the policy, and
// returns nil when ctx ends.
func (e *Engine) RunSecrets(ctx context.Context) error {
	ctx, done := lifecycle.Watch(ctx, "secrets", loopLimit)
	defer done()
	for lifecycle.Sleep(ctx, e.Clock, e.Secrets.Interval()) == nil {
		for _, a := range e.all() {
			lifecycle.Beat(ctx)
			_ = lifecycle.Safely(ctx, "secrets", func(ctx context.Context) error { a.refreshSecrets(ctx, false); return nil })
		}
	}
	return nil
}

// refreshSecrets resolves the applied objects of an application that refer to
// secrets, and finds those whose values have changed. With fresh, each secret is
// read again.
func (a *app) refreshSecrets(ctx context.Context, fresh bool) {
	var since time.Time
	if fresh {
		since = a.e.Clock.Now()
	}
	a.mu.Lock()
	var due []*object
	if a.state != nil && !a.closed && !a.deleting {
		all := a.resolvesAll()
		for _, key := range a.keys() {
			x := a.objects[key]
			if x.record != nil && x.hook == "" && !inHub(key) && (x.record.Secret != nil || x.record.Resolve != all) {
				due = append(due, x)
			}
		}
	}
	a.mu.Unlock()
	for _, x := range due {
		if ctx.Err() != nil {
			return
		}
		a.refreshSecret(ctx, x, since)
	}
}

// refreshSecret resolves one applied object again.
func (a *app) refreshSecret(ctx context.Context, x *object, since time.Time) {
	a.mu.Lock()
	d := x.appliedDesired()
	a.mu.Unlock()
	if d == nil {
		return
	}
	body, err := a.readDesired(ctx, d, since)
	if ctx.Err() != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.objects[x.key] != x || x.inflight > 0 || x.appliedDesired() != d {
		return
	}
	about := "secrets " + x.key.String()
	if err != nil {
		a.e.Log.WarnContext(ctx, "secrets not resolved again", logkey.Application, a.id, logkey.Object, x.key.String(), logkey.Error, err)
		a.warn(about, "the secrets of "+x.key.Describe()+" cannot be read again, and what was applied stays: "+withoutObject(err))
		return
	}
	a.unwarn(about)
	now, was := a.secretsIn(body.leaves), x.record.Secret
	state := x.healthState()
	x.rotated = rotation(was, now, body.leaves)
	if x.rotated == "" && x.record.Resolve != a.resolvesAll() {
		x.noteResolve(ctx)
	}
	if x.healthState() != state || x.rotated != "" {
		a.after(ctx, x, state)
	}
}

// withoutObject is the sentence of an error whose object is named already.
func withoutObject(err error) string {
	if e, ok := fault.As(err); ok && e.Kind != fault.Internal {
		c := *e
		c.Object = ""
		return sentence(&c)
	}
	return sentence(err)
}

// appliedDesired is the manifest that was applied last; nil if it is not
// desired any more. The caller holds mu.
func (x *object) appliedDesired() *desired {
	for _, d := range [...]*desired{x.accepted, x.target} {
		if d != nil && x.record != nil && [32]byte(x.record.Owned.Digest) == d.digest {
			return d
		}
	}
	return nil
}

// noteResolve records that the application's option does not concern an object.
// The caller holds mu.
func (x *object) noteResolve(ctx context.Context) {
	r := *x.record
	r.Resolve = x.app.resolvesAll()
	if _, err := x.app.e.Inventory.Own(r); err != nil {
		x.app.e.Log.WarnContext(ctx, "record not made", logkey.Application, x.app.id, logkey.Object, x.key.String(), logkey.Error, err)
		return
	}
	x.record = &r
}

// rotationEnds notes that an object was written with its newest secrets. Nothing
// else of it may have changed, so the application says so itself. The caller
// holds mu.
func (x *object) rotationEnds() {
	if x.rotated != "" {
		x.rotated = ""
		x.app.scheduleReport()
	}
}

// rotation says why an object must be written again; empty: it need not.
func rotation(was, now *inventory.Secrets, leaves []secrets.Leaf) string {
	switch {
	case was == nil && now == nil, was != nil && now != nil && was.Hash == now.Hash:
		return ""
	case was == nil:
		return "its references to secrets are resolved now"
	case now == nil:
		return "its references to secrets are no longer resolved"
	}
	var sources []string
	for _, l := range leaves {
		if l.Source != "" && !slices.Contains(sources, l.Source) {
			sources = append(sources, l.Source)
		}
	}
	return "secrets were rotated: " + differs(sources)
}

// viewDesired reads the desired object of a view. If its references cannot be
// resolved it is shown with them.
func (a *app) viewDesired(ctx context.Context, s *LiveView) error {
	body, err := a.e.body(ctx, s.target.digest)
	if err != nil {
		return err
	}
	got, err := a.resolveSecrets(ctx, s.target, body, time.Time{})
	if err != nil {
		s.unresolved, got = err, applicable{Object: body}
	}
	s.Desired, s.leaves = got.Object, got.leaves
	a.mu.Lock()
	defer a.mu.Unlock()
	a.prepare(s.Desired, s.target.key)
	return nil
}

// ConcealView hides what was resolved in a view, which then may leave the
// cluster. key is that of the masks.
func (e *Engine) ConcealView(app string, v LiveView, key []byte) LiveView {
	var more [][]string
	for _, l := range v.leaves {
		more = append(more, l.Path)
	}
	// What one of them marks is secret in all: a dry run may end the mark, and not
	// change the value.
	for _, o := range [...]*manifest.Object{v.Desired, v.Live, v.Applied, v.Predicted} {
		if o != nil {
			more = append(more, manifest.MarkedFields(o)...)
		}
	}
	for _, o := range [...]**manifest.Object{&v.Desired, &v.Live, &v.Applied, &v.Normalized, &v.Predicted} {
		*o = e.Conceal(app, *o, key, more...)
	}
	values := e.values.of(app, false)
	v.Detail, v.Problem = values.Text(v.Detail), values.Text(v.Problem)
	v.Fields = slices.Clone(v.Fields)
	for i, f := range v.Fields {
		v.Fields[i] = values.Text(f)
	}
	return v
}

// Conceal returns an object of an application, or of something that it owns,
// without what was resolved: it may leave the cluster. key is that of the
// masks, paths are further fields to mask.
func (e *Engine) Conceal(app string, o *manifest.Object, key []byte, paths ...[]string) *manifest.Object {
	if o == nil {
		return nil
	}
	v := e.values.of(app, false)
	e.mu.RLock()
	a := e.apps[app]
	e.mu.RUnlock()
	if a != nil {
		a.mu.Lock()
		if x := a.objects[manifest.KeyOf(o)]; x != nil && x.record != nil && x.record.Secret != nil {
			paths = slices.Concat(paths, x.record.Secret.Paths)
		}
		a.mu.Unlock()
	}
	if v == nil && paths == nil {
		return o
	}
	return v.Mask(o, paths, key)
}

// ConcealText returns a text about an application, such as a line of a log,
// without what was resolved.
func (e *Engine) ConcealText(app, text string) string { return e.values.of(app, false).Text(text) }

// ConcealError returns an error about an object of an application, or of
// something that it owns, without what was resolved: a server quotes what it
// refuses.
func (e *Engine) ConcealError(app string, err error) error {
	v := e.values.of(app, false)
	f, ok := fault.As(err)
	if v == nil || !ok {
		return err
	}
	c := *f
	c.Cause = v.Text(f.Cause)
	if f.Err != nil {
		c.Err = errors.New(v.Text(f.Err.Error()))
	}
	return &c
}

// Resolved reports whether an application has values that were resolved.
func (e *Engine) Resolved(app string) bool { return e.values.of(app, false) != nil }

// Outgoing returns a report about an object without what was resolved.
func (e *Engine) Outgoing(r *linkv1.Resource) *linkv1.Resource {
	return e.values.resource(r)
}

func (a *app) secretValues() *secrets.Values { return a.e.values.of(a.id, false) }

// secretValues are the resolved values of all applications.
type secretValues struct {
	mu   sync.RWMutex
	apps map[string]*secrets.Values
}

// of returns the values of an application; nil: it has none. With create, they
// are created.
func (s *secretValues) of(app string, create bool) *secrets.Values {
	s.mu.RLock()
	v := s.apps[app]
	s.mu.RUnlock()
	if v != nil || !create {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.apps == nil {
		s.apps = map[string]*secrets.Values{}
	}
	if s.apps[app] == nil {
		s.apps[app] = &secrets.Values{}
	}
	return s.apps[app]
}

// forget drops the values of an application.
func (s *secretValues) forget(app string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.apps, app)
}

func (s *secretValues) resource(r *linkv1.Resource) *linkv1.Resource {
	v := s.of(r.GetAppId(), false)
	if v == nil {
		return r
	}
	out := proto.CloneOf(r)
	out.Message, out.Diff = v.Text(r.GetMessage()), v.Text(r.GetDiff())
	for _, c := range out.GetInfo() {
		c.Value = v.Text(c.GetValue())
	}
	for i, l := range out.GetLinks() {
		out.Links[i] = v.Text(l)
	}
	return out
}

// redacted are reports without resolved values.
type redacted struct {
	Reports

	values *secretValues
}

// Resource reports an object.
func (r redacted) Resource(x *linkv1.Resource) { r.Reports.Resource(r.values.resource(x)) }

// Removed reports that an object is no longer managed.
func (r redacted) Removed(x *linkv1.Resource) { r.Reports.Removed(r.values.resource(x)) }

// App reports an application.
func (r redacted) App(x *linkv1.AppReport) {
	v := r.values.of(x.GetAppId(), false)
	if v == nil {
		r.Reports.App(x)
		return
	}
	out := proto.CloneOf(x)
	out.Error, out.HealthCause = v.Text(x.GetError()), v.Text(x.GetHealthCause())
	for i, w := range out.GetWarnings() {
		out.Warnings[i] = v.Text(w)
	}
	for _, n := range out.GetNotes() {
		n.Message = v.Text(n.GetMessage())
	}
	r.Reports.App(out)
}

// Operation reports the progress or result of an operation.
func (r redacted) Operation(x *linkv1.OperationReport) {
	v := r.values.of(x.GetAppId(), false)
	if v == nil {
		r.Reports.Operation(x)
		return
	}
	out := proto.CloneOf(x)
	out.Message = v.Text(x.GetMessage())
	for _, o := range out.GetResults() {
		o.Message = v.Text(o.GetMessage())
	}
	r.Reports.Operation(out)
}

// String keeps resolved values out of a log that prints an object.
func (o applicable) String() string {
	if o.Object == nil {
		return "no object"
	}
	return fmt.Sprintf("%s with %d resolved fields", strings.TrimSpace(o.GetKind()+" "+o.GetName()), len(o.leaves))
}
