package wave

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/selector"
)

// Options determine a plan besides its objects.
type Options struct {
	Operation   string    // id; hook instances derive from it
	Revision    string    // its first seven characters go into generated hook names
	Created     time.Time // when the operation was made; part of generated hook names
	Prune       bool      // objects to prune are deleted; otherwise only reported
	DryRun      bool      // nothing is changed
	Preflight   bool      // dry-run all objects first, even where it is not the default
	SkipHooks   bool      // strategy "apply" (SYNC-02)
	SyncOptions []string  // of the application and of the request, later ones have precedence
	Resources   []string  // selective sync: "group:kind:namespace/name" or "group:kind:name", "!" in front excludes; empty: all
	Namespace   string    // the destination's namespace
	// Most and MostPercent limit what one operation may prune without approval:
	// a number of objects, or a percentage of Owned. Zero: no limit.
	Most        int
	MostPercent int
	Owned       int // objects that the application has in the cluster
	// NamespaceMetadata says that labels or annotations of the destination's
	// namespace are managed (SYNC-27), so that it is applied even without
	// CreateNamespace=true.
	NamespaceMetadata bool
}

// A Plan is the tasks of one operation in order. Build makes it; equal inputs
// make equal plans.
type Plan struct {
	Operation string
	Prelude   []Item // namespaces to create before all else
	Steps     []Step
	OnFailure []Step // SyncFail hooks
	Skipped   []Item // objects to prune that are only reported; Keep says why
	Warnings  []string
	DryRun    bool
	Check     bool // the machine starts with a pre-flight
	// Approve is why the whole operation waits for a person before it changes
	// anything; empty: it does not.
	Approve  string
	deletion bool
}

// A Step is one wave of one phase. Its prunes go first, then its groups one
// after another; the items of a group run at the same time.
type Step struct {
	Phase  Phase
	Wave   int32
	Prunes [][]Item
	Groups [][]Item
}

// Durable reports whether the plan has states that must survive a restart:
// hooks, or several steps. Others are simply run again.
func (p Plan) Durable() bool {
	if p.DryRun || p.deletion {
		return !p.DryRun && (p.hooks() || p.asks())
	}
	return len(p.Steps) > 1 || len(p.OnFailure) > 0 || p.hooks() || p.asks()
}

// asks reports whether the plan needs an approval.
func (p Plan) asks() bool {
	if p.Approve != "" {
		return true
	}
	for _, s := range p.Steps {
		for _, g := range s.Prunes {
			if slices.ContainsFunc(g, func(it Item) bool { return it.Confirm }) {
				return true
			}
		}
	}
	return false
}

// Hooked reports whether the plan runs hooks.
func (p Plan) Hooked() bool { return p.hooks() }

func (p Plan) hooks() bool {
	for _, s := range p.Steps {
		if s.hooks() {
			return true
		}
	}
	return false
}

func (s Step) hooks() bool {
	for _, g := range s.Groups {
		if slices.ContainsFunc(g, func(it Item) bool { return it.Hook }) {
			return true
		}
	}
	return false
}

// Items returns all items of the plan in order, SyncFail hooks and skipped ones
// last.
func (p Plan) Items() []Item {
	out := slices.Clone(p.Prelude)
	for _, steps := range [...][]Step{p.Steps, p.OnFailure} {
		for _, s := range steps {
			out = append(out, slices.Concat(s.Prunes...)...)
			out = append(out, slices.Concat(s.Groups...)...)
		}
	}
	return append(out, p.Skipped...)
}

// Describe makes an Object from a manifest. namespace is the object's
// destination; empty for cluster-scoped kinds.
func Describe(index int, o *manifest.Object, namespace string) (Object, error) {
	out := Object{
		Index: index, Key: manifest.KeyOf(o), Version: manifest.Version(o), GenerateName: o.GetGenerateName(),
		DeletePolicies: manifest.DeletePolicies(o), Options: manifest.Options(o),
	}
	out.Key.Namespace, out.Wave = namespace, manifest.Wave(o)
	var err error
	if out.Hooks, err = manifest.Hooks(o); err != nil {
		return Object{}, err
	}
	if out.Key.Name == "" && len(out.Hooks) == 0 {
		out.Key.Name = manifest.StandIn(out.GenerateName)
	}
	if wait, ok := manifest.Annotation(o, "wait"); ok && wait == "false" {
		out.NoWait = true
	}
	if out.Key.Kind == "CustomResourceDefinition" {
		out.Defines = definedKinds(o)
	}
	return out, nil
}

func definedKinds(o *manifest.Object) []Kind {
	spec, _ := o.Object["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	group, _ := spec["group"].(string)
	kind, _ := names["kind"].(string)
	if kind == "" {
		return nil
	}
	return []Kind{{Group: group, Kind: kind}}
}

// Build plans a sync: objects are applied or run as hooks, prunes are deleted.
func Build(objects, prunes []Object, o Options) (Plan, error) {
	selectors, err := selector.Parse(o.Resources)
	if err != nil {
		return Plan{}, err
	}
	b := &builder{options: o, pick: func(k manifest.Key) bool { return selector.Selects(selectors, k) }, plan: Plan{Operation: o.Operation, DryRun: o.DryRun}}
	b.addObjects(objects)
	b.addPrunes(prunes)
	b.bubble()
	b.prelude()
	b.markMadeHere()
	b.plan.Steps, b.plan.OnFailure = b.steps()
	b.plan.Check = o.DryRun || o.Preflight || len(b.plan.Steps) > 1 || len(b.plan.OnFailure) > 0 || b.plan.hooks() || b.plan.asks() || b.forceful()
	return b.plan, nil
}

type builder struct {
	options Options
	pick    func(manifest.Key) bool
	items   []Item
	plan    Plan
}

// addObjects converts objects to items: one each, and for hooks one for each of
// their phases. Of objects with the same key the last one is used.
func (b *builder) addObjects(objects []Object) {
	last := make(map[manifest.Key]int, len(objects))
	for i, o := range objects {
		if len(o.Hooks) == 0 {
			if _, twice := last[o.Key]; twice {
				b.plan.Warnings = append(b.plan.Warnings, o.Key.Describe()+" is given more than once; the last one counts")
			}
			last[o.Key] = i
		}
	}
	names := make(map[manifest.Key]int)
	for i, o := range objects {
		switch {
		case len(o.Hooks) > 0:
			b.addHook(o, names)
		case last[o.Key] == i && b.pick(o.Key):
			b.items = append(b.items, b.item(o, Sync))
		}
	}
}

// addHook adds the instances of one hook. Selective syncs run none (HOOK-15).
func (b *builder) addHook(o Object, names map[manifest.Key]int) {
	if b.options.SkipHooks || len(b.options.Resources) > 0 {
		return
	}
	for _, phase := range [...]Phase{PreSync, Sync, PostSync, SyncFail} {
		if slices.Contains(o.Hooks, string(phase)) {
			b.items = append(b.items, b.hook(o, phase, names))
		}
	}
}

func (b *builder) hook(o Object, phase Phase, names map[manifest.Key]int) Item {
	it := b.item(o, phase)
	it.Hook, it.HookTypes, it.DeletePolicies = true, o.Hooks, o.DeletePolicies
	it.Instance = b.options.Operation + "/" + string(phase)
	if len(it.DeletePolicies) == 0 {
		it.DeletePolicies = []string{manifest.BeforeHookCreation}
	}
	if o.Key.Name == "" {
		it.Key.Name = b.generated(o.GenerateName, phase)
		if names[it.Key]++; names[it.Key] > 1 {
			it.Key.Name += fmt.Sprintf("-%d", names[it.Key])
		}
	}
	return it
}

// generated makes the name of a hook from its generateName, the revision, the
// phase and the operation's time (HOOK-05), so that a resumed operation finds
// its own hook again.
func (b *builder) generated(prefix string, phase Phase) string {
	rev := b.options.Revision[:min(7, len(b.options.Revision))]
	tail := fmt.Sprintf("%s-%s-%d", rev, strings.ToLower(string(phase)), b.options.Created.Unix())
	const longest = 60 // leaves room for a number; pods of a Job need a label of 63
	return prefix[:max(0, min(len(prefix), longest-len(tail)))] + tail
}

func (b *builder) item(o Object, phase Phase) Item {
	options := slices.Concat(b.options.SyncOptions, o.Options)
	wait, _ := manifest.Option(options, "capstan.dev/wait")
	return Item{
		Index: o.Index, Key: o.Key, Version: o.Version, Phase: phase, Wave: o.Wave, NoWait: o.NoWait || wait == "false",
		Options: options, defines: o.Defines, rank: manifest.KindOrder(o.Key.Kind),
	}
}

// addPrunes places the deletions: mirrored waves (ENG-07), or a wave after
// all others with PruneLast (SYNC-19).
func (b *builder) addPrunes(prunes []Object) {
	var now []Item
	wanted := make(map[manifest.Key]bool, len(b.items))
	for _, it := range b.items {
		wanted[it.Key] = true
	}
	for _, o := range prunes {
		if wanted[o.Key] || !b.pick(o.Key) { // an operation never prunes what it applies
			continue
		}
		it := b.item(o, Sync)
		it.Prune = true
		if it.Keep, it.Confirm = b.reasonToKeep(it, "Prune"); it.Keep == "" && !b.options.Prune {
			it.Keep = "no longer in the manifests, and this operation does not prune"
		}
		if it.Keep != "" {
			b.plan.Skipped = append(b.plan.Skipped, it)
			continue
		}
		now = append(now, it)
	}
	b.bound(len(now))
	mirror(now)
	b.placeLast(now)
	b.items = append(b.items, now...)
}

// placeLast gives prunes with PruneLast a wave after all others.
func (b *builder) placeLast(prunes []Item) {
	last := int32(0)
	for _, it := range slices.Concat(b.items, prunes) {
		if it.Phase == Sync {
			last = max(last, it.Wave)
		}
	}
	for i := range prunes {
		if on(prunes[i].Options, "PruneLast") {
			prunes[i].Wave = last + 1
		}
	}
}

// reasonToKeep returns why an object must not be deleted, empty if it may, and
// whether a person has to approve it first.
func (b *builder) reasonToKeep(it Item, option string) (why string, confirm bool) {
	switch v, _ := manifest.Option(it.Options, option); strings.ToLower(v) {
	case "false":
		return "kept: its sync option " + option + "=false, or Helm's resource policy, forbids deleting it", false
	case "confirm":
		return "", true
	}
	return "", false
}

// bound blocks an operation that would prune more than is allowed without
// approval, as a whole and before it has changed anything.
func (b *builder) bound(prunes int) {
	o := b.options
	switch {
	case prunes == 0:
	case o.Most > 0 && prunes > o.Most:
		b.plan.Approve = fmt.Sprintf("it would delete %d of %d objects, and more than %d need approval", prunes, o.Owned, o.Most)
	case o.MostPercent > 0 && prunes*100 > o.MostPercent*max(o.Owned, prunes):
		b.plan.Approve = fmt.Sprintf("it would delete %d of %d objects, and more than %d %% need approval", prunes, o.Owned, o.MostPercent)
	}
}

// mirror reverses the waves of deletions: the last created object is deleted
// first.
func mirror(prunes []Item) {
	distinct := make(map[int32]bool)
	for _, it := range prunes {
		distinct[it.Wave] = true
	}
	waves := slices.Sorted(maps.Keys(distinct))
	for i := range prunes {
		at, _ := slices.BinarySearch(waves, prunes[i].Wave)
		prunes[i].Wave = waves[len(waves)-1-at]
	}
}

// bubble moves a Namespace or CRD that an earlier item needs to where that
// item is (ENG-05).
func (b *builder) bubble() {
	for i := range b.items {
		need := &b.items[i]
		if need.Prune || need.Hook || !need.hosts() {
			continue
		}
		for _, it := range b.items {
			if !it.Prune && it.Phase != SyncFail && needs(it, *need) {
				need.moveBefore(it)
			}
		}
	}
}

// hosts reports whether other items may need this one to exist: it is a
// Namespace, or defines kinds.
func (it *Item) hosts() bool { return it.Key.Kind == "Namespace" || len(it.defines) > 0 }

// moveBefore moves an item to where one is that needs it, unless it is earlier.
func (it *Item) moveBefore(other Item) {
	if order(other.Phase, other.Wave, it.Phase, it.Wave) < 0 {
		it.Phase, it.Wave = other.Phase, other.Wave
	}
	if other.Phase == it.Phase && other.Wave == it.Wave {
		it.rank = min(it.rank, other.rank-1)
	}
}

// needs reports whether it cannot exist before need does.
func needs(it, need Item) bool {
	if it.Key == need.Key {
		return false
	}
	if need.Key.Kind == "Namespace" && need.Key.Group == "" && it.Key.Namespace == need.Key.Name {
		return true
	}
	return slices.Contains(need.defines, Kind{it.Key.Group, it.Key.Kind})
}

// prelude adds the namespace for CreateNamespace. A Namespace among the
// manifests has precedence (SYNC-26, SYNC-27).
func (b *builder) prelude() {
	ns := b.options.Namespace
	if ns == "" || !(on(b.options.SyncOptions, "CreateNamespace") || b.options.NamespaceMetadata) {
		return
	}
	key := manifest.Key{Kind: "Namespace", Name: ns}
	if slices.ContainsFunc(b.items, func(it Item) bool { return it.Key == key && !it.Prune }) {
		return
	}
	b.items = slices.DeleteFunc(b.items, func(it Item) bool { return it.Key == key }) // never create and prune the same one
	b.plan.Prelude = []Item{{Index: -1, Key: key, Version: "v1", Phase: PreSync, Namespace: true, Options: b.options.SyncOptions}}
}

// markMadeHere finds the items whose namespace or kind may not exist before
// the operation has run.
func (b *builder) markMadeHere() {
	makers := slices.DeleteFunc(slices.Concat(b.plan.Prelude, b.items), func(it Item) bool {
		return it.Prune || !it.hosts()
	})
	for i := range b.items {
		it := &b.items[i]
		it.MadeHere = !it.Prune && slices.ContainsFunc(makers, func(m Item) bool { return needs(*it, m) })
	}
}

// steps cuts the items into waves and kind groups.
func (b *builder) steps() (steps, onFailure []Step) {
	slices.SortStableFunc(b.items, compareItems)
	for _, it := range b.items {
		list := &steps
		if it.Phase == SyncFail {
			list = &onFailure
		}
		if n := len(*list); n == 0 || (*list)[n-1].Phase != it.Phase || (*list)[n-1].Wave != it.Wave {
			*list = append(*list, Step{Phase: it.Phase, Wave: it.Wave})
		}
		step := &(*list)[len(*list)-1]
		if it.Prune {
			step.Prunes = group(step.Prunes, it)
		} else {
			step.Groups = group(step.Groups, it)
		}
	}
	for _, s := range steps {
		slices.Reverse(s.Prunes) // dependencies of others are deleted last
	}
	return steps, onFailure
}

func group(groups [][]Item, it Item) [][]Item {
	if n := len(groups); n > 0 {
		last := groups[n-1][0]
		if last.rank == it.rank && last.Key.Kind == it.Key.Kind && last.Key.Group == it.Key.Group {
			groups[n-1] = append(groups[n-1], it)
			return groups
		}
	}
	return append(groups, []Item{it})
}

// compareItems is the total order of ENG-03.
func compareItems(a, b Item) int {
	return cmp.Or(order(a.Phase, a.Wave, b.Phase, b.Wave), cmp.Compare(a.rank, b.rank),
		cmp.Compare(a.Key.Kind, b.Key.Kind), cmp.Compare(a.Key.Group, b.Key.Group),
		cmp.Compare(a.Key.Namespace, b.Key.Namespace), cmp.Compare(a.Key.Name, b.Key.Name))
}

// order compares two places in an operation.
func order(p Phase, w int32, q Phase, x int32) int {
	return cmp.Or(cmp.Compare(phaseOrder(p), phaseOrder(q)), cmp.Compare(w, x))
}

func phaseOrder(p Phase) int {
	phases := [...]Phase{PreSync, Sync, PostSync, PreDelete, Delete, PostDelete, SyncFail}
	return slices.Index(phases[:], p)
}

// forceful reports whether some object is replaced or forced.
func (b *builder) forceful() bool {
	return slices.ContainsFunc(b.items, func(it Item) bool { return on(it.Options, "Replace") || on(it.Options, "Force") })
}

func on(options []string, name string) bool {
	v, _ := manifest.Option(options, name)
	return strings.EqualFold(v, "true")
}
