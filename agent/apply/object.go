package apply

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/s2"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/tracking"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// An object is one managed object: its desired, applied and live state. Its
// application's mu guards all of it.
type object struct {
	key        manifest.Key
	gvk        schema.GroupVersionKind
	namespaced bool
	app        *app
	next       *object // view of another application; the engine's mu guards it

	target, accepted *desired
	record           *inventory.Record // nil: never applied by us, or the record was lost
	hook             string            // of a hook: the operation that created it
	doomed           bool              // its deletion was requested
	live             live
	grace            gracePeriod
	comparison       diff.Result // comparison of live with record
	expected         expectation
	failure          string // why the last write of it was refused
	rotated          string // why its secrets must be written again; empty: they need not
	missing          bool   // because its kind is not served

	inflight  int              // writes in flight; events are deferred until they end
	waiting   *manifest.Object // newest event since the write began
	lost      string           // uid whose deletion was seen since the write began
	fights    fights
	retries   int       // writes that failed in a row
	notBefore time.Time // of the next heal after a failure
	timed     time.Time // when a later check is scheduled; zero: none
	examined  time.Time // when it was last read or dry-run
	behind    bool      // since the last list, a version older than the known one was seen
}

// live is the last seen state of an object.
type live struct {
	known       bool // found is valid
	found       bool
	deleting    bool
	uid         string
	version     string // resource version
	content     string // hash of all except status and bookkeeping
	body        []byte // compressed JSON without managedFields
	others      []diff.Managed
	editor      string   // manager that wrote last, except our own
	writers     []string // managers of the fields that differ
	created     int64
	health      string
	message     string
	healthGrace time.Duration // its health grace period
	info        []*linkv1.Column
	links       []string
	instance    string         // of a hook: the operation and phase that created it
	tracked     string         // tracking id
	foreign     *tracking.Mark // mark of another owner; nil: there is none
	from        string         // installation id
	tenanted    bool           // it names our tenant
	argo        bool           // Argo CD has written some of it
	seenBy      []string       // managers whose fields were stored
	inherits    bool           // other tools have applied it as a whole
	applied     bool           // our manager has an entry
}

// An expectation is the result of a dry run of a desired object.
type expectation struct {
	digest  [32]byte
	uid     string
	content string
	equal   bool
	fields  []string
	problem string // why it would be refused
}

// sync is the sync state by a dry run, with the cause of a difference. Only an
// object that could not be compared is Unknown.
func (e expectation) sync() (state, detail string) {
	switch {
	case e.problem != "" && (e.equal || len(e.fields) == 0):
		return unknownSync, e.problem
	case e.equal:
		return synced, ""
	case e.problem != "":
		return outOfSync, differs(e.fields) + "; " + e.problem
	}
	return outOfSync, differs(e.fields)
}

func kindOf(key manifest.Key, version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: key.Group, Version: version, Kind: key.Kind}
}

// older reports whether an object is older than the known state.
func (l live) older(o *manifest.Object) bool {
	if l.uid == "" || l.uid != string(o.GetUID()) {
		return false
	}
	was, is := versionNumber(l.version), versionNumber(o.GetResourceVersion())
	return was != 0 && is != 0 && is < was
}

// versionNumber reads a resource version, an increasing number in all known API
// servers; 0 for anything else.
func versionNumber(v string) uint64 {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// observe stores a live object and compares it with its record. The caller
// holds the application's mu.
func (x *object) observe(o *manifest.Object) {
	a := x.app
	if x.live.uid != "" && x.live.uid != string(o.GetUID()) {
		a.e.Tree.Unroot(x.live.uid)
		x.grace = gracePeriod{}
	}
	x.live = a.e.reduceLive(o, a.ignore.Managers(x.key))
	x.settleHealth(a.e.Clock.Now())
	x.live.inherits = inherits(o)
	x.observeSecrets(o)
	x.compareLive(o)
	x.live.writers = x.comparison.Writers(o, a.e.Manager)
	x.live.foreign = x.stranger(o)
	a.e.Tree.Root(x.live.uid, a.id)
}

// compareLive compares a live object with what was applied.
func (x *object) compareLive(o *manifest.Object) {
	x.comparison = diff.Result{}
	if x.record == nil {
		return
	}
	v, err := x.app.e.hashes.CompareWith(x.record.Owned, o, x.app.ignore, x.live.others)
	if err != nil {
		v = diff.Result{Void: "the object cannot be compared: " + sentence(err)}
	}
	x.comparison = v
}

// reduceLive reduces an object to what is stored of it.
func (e *Engine) reduceLive(o *manifest.Object, managers []string) live {
	l := live{
		known: true, found: true, deleting: o.GetDeletionTimestamp() != nil,
		uid: string(o.GetUID()), version: o.GetResourceVersion(),
		created: o.GetCreationTimestamp().Unix(), info: e.Columns(o), links: e.Links(o),
	}
	l.health, l.message = e.assessHealth(o)
	if held := o.GetFinalizers(); l.deleting && len(held) > 0 {
		l.message = "being deleted, held by finalizer " + strings.Join(held, ", ")
	}
	l.healthGrace = holdOf(o)
	l.instance, _ = manifest.RawAnnotation(o, instanceAnnotation)
	l.tracked, _ = manifest.RawAnnotation(o, trackingAnnotation)
	l.from, _ = manifest.RawAnnotation(o, tracking.Installation)
	tenant, _ := manifest.RawAnnotation(o, tracking.Tenant)
	l.tenanted = tenant == e.tenantSettings().Tenant
	l.argo, l.seenBy = tracking.ByArgo(o), managers
	if len(managers) > 0 {
		l.others = diff.ManagedBy(o, managers)
	}
	if l.editor, l.applied = editor(o, e.Manager); inHub(manifest.KeyOf(o)) {
		l.applied = l.tracked != "" // the hub knows its owner
	}
	slim := withoutFields(o.Object)
	if text, err := manifest.AppendCanonical(nil, slim); err == nil {
		l.body = s2.Encode(nil, text)
	}
	l.content = contentOf(slim)
	return l
}

// read returns the stored body; nil if there is none.
func (l live) read() *manifest.Object {
	if len(l.body) == 0 {
		return nil
	}
	text, err := s2.Decode(nil, l.body)
	if err != nil {
		return nil
	}
	o, err := manifest.FromCanonical(text)
	if err != nil {
		return nil
	}
	return o
}

// withoutFields returns an object without its managedFields; the object itself
// is not changed.
func withoutFields(object map[string]any) map[string]any {
	meta, ok := object["metadata"].(map[string]any)
	if !ok {
		return object
	}
	out := make(map[string]any, len(object))
	for k, v := range object {
		out[k] = v
	}
	slim := make(map[string]any, len(meta))
	for k, v := range meta {
		if k != "managedFields" {
			slim[k] = v
		}
	}
	out["metadata"] = slim
	return out
}

// editor returns the manager that wrote an object last, except our own applies
// and writers of its status, and whether our own applies have an entry.
func editor(o *manifest.Object, own string) (name string, applied bool) {
	meta, _ := o.Object["metadata"].(map[string]any)
	entries, _ := meta["managedFields"].([]any)
	newest := ""
	for _, e := range entries {
		m, _ := e.(map[string]any)
		manager, _ := m["manager"].(string)
		operation, _ := m["operation"].(string)
		if manager == own {
			applied = true
			if operation == "Apply" {
				continue
			}
		}
		if sub, _ := m["subresource"].(string); sub == "status" {
			continue
		}
		if at, _ := m["time"].(string); at >= newest {
			newest, name = at, manager
		}
	}
	return name, applied
}

// sync returns the sync state of an object, and a short description of the
// difference. An empty state means not known yet. The caller holds the
// application's mu.
func (x *object) sync() (state, detail string) {
	switch {
	case x.target == nil:
		return outOfSync, "no longer in the manifests"
	case x.unseen() != nil:
		return unknownSync, sentence(x.unseen())
	case !x.live.known:
		_, broken := x.app.e.kindState(x)
		switch {
		case fault.KindOf(broken) == fault.Missing:
			return outOfSync, "its kind is not served by the cluster" // CMPR-12
		case broken != nil:
			return unknownSync, sentence(broken)
		}
		return "", ""
	case !x.live.found:
		return outOfSync, "missing"
	case x.adopted():
		return outOfSync, "adopted from application " + nameOf(x.record.From) + "; the next sync writes it"
	case x.current(x.target):
		switch {
		case !x.comparison.Equal:
			return outOfSync, differs(x.comparison.Fields)
		case x.rotated != "":
			return outOfSync, x.rotated
		}
		return synced, ""
	case x.expects(x.target):
		return x.expected.sync()
	}
	return outOfSync, "changed in the manifests"
}

// unserved is the reason why the known live state is invalid: the desired
// version is not served. The caller holds the application's mu.
func (x *object) unserved() error {
	if !x.live.known || !x.live.found {
		return nil
	}
	if _, broken := x.app.e.kindState(x); fault.KindOf(broken) == fault.Missing {
		return broken
	}
	return nil
}

// unseen is the reason why nothing about the live object may be concluded: its
// kind is left out, or not served. The caller holds the application's mu.
func (x *object) unseen() error {
	if _, broken := x.app.e.kindState(x); leftOut(broken) {
		return broken
	}
	return x.unserved()
}

// The sync states of the protocol.
const (
	synced      = "Synced"
	outOfSync   = "OutOfSync"
	unknownSync = "Unknown"
)

// current reports whether a desired object is the one that was applied last,
// and the verdict is valid.
func (x *object) current(d *desired) bool {
	return d != nil && x.record != nil && !x.adopted() && x.record.Owned.Digest == diff.Hash(d.digest) && x.comparison.Void == ""
}

// adopted reports whether another application has released the object to this one,
// which has not written it yet.
func (x *object) adopted() bool { return x.record != nil && x.record.From != "" }

// nameOf converts the name of an application in tracking ids to its name for
// users.
func nameOf(tracked string) string {
	_, name := tracking.ID{App: tracked}.Application()
	return name
}

// expects reports whether a dry run of a desired object is still valid.
func (x *object) expects(d *desired) bool {
	return d != nil && x.expected.digest == d.digest && x.expected.uid == x.live.uid && x.expected.content == x.live.content
}

// differs lists the first fields that differ.
func differs(fields []string) string {
	const most = 4
	if len(fields) <= most {
		return strings.Join(fields, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(fields[:most], ", "), len(fields)-most)
}

// wellness is the health of an object for its application.
func (x *object) wellness() (state, message string) {
	if x.app.itself(x.key) {
		return "", "" // its health is that of its parts
	}
	if why := x.unseen(); why != nil {
		return health.Unknown, sentence(why)
	}
	if x.live.known && !x.live.found {
		return health.Missing, ""
	}
	if _, broken := x.app.e.kindState(x); !x.live.known && fault.KindOf(broken) == fault.Missing {
		return health.Missing, sentence(broken)
	}
	return x.live.health, x.live.message
}

// report is an object's report to the hub. The caller holds the application's
// mu.
func (x *object) report(a *app) *linkv1.Resource {
	r := &linkv1.Resource{
		AppId: a.id, Uid: x.live.uid, Group: x.key.Group, Version: x.gvk.Version, Kind: x.key.Kind,
		Namespace: x.key.Namespace, Name: x.key.Name, Managed: true,
		CreatedUnix: x.live.created, Info: x.live.info, Links: x.live.links,
	}
	r.Health, r.Message = x.wellness()
	if x.hook != "" {
		r.Hook = true
		return r
	}
	r.Sync, r.Diff = x.sync()
	if x.failure != "" && r.Sync != synced {
		r.Message = x.failure
	} else if why := a.e.Guard.writes(x.key, x.namespaced); why != nil && r.Sync == outOfSync {
		r.Message = sentence(why)
	}
	r.ConfirmDeletion = x.asksBefore(a.state.GetPolicy().GetSyncOptions())
	if x.target != nil {
		r.Wave = x.target.wave
	} else if x.record != nil {
		r.RequiresPrune, r.Wave = true, x.record.Wave
	}
	return r
}

// asksBefore reports whether a person must approve before the object is deleted:
// its own options say so, or those of its application.
func (x *object) asksBefore(options []string) bool {
	if x.record != nil {
		options = append(slices.Clone(options), x.record.Options...)
	}
	return hasOption(options, "Prune", "confirm") || hasOption(options, "Delete", "confirm")
}

// hasOption reports whether one of an object's recorded sync options is set.
func hasOption(options []string, name, value string) bool {
	v, ok := manifest.Option(options, name)
	return ok && strings.EqualFold(v, value)
}

// keys returns the objects of an application in order.
func (a *app) keys() []manifest.Key {
	out := make([]manifest.Key, 0, len(a.objects))
	for k := range a.objects {
		out = append(out, k)
	}
	slices.SortFunc(out, manifest.Key.Compare)
	return out
}
