package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/files"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Options are those of one import.
type Options struct {
	DryRun             bool   // check everything, change nothing
	Start              bool   // automation of new applications starts at once
	Prune              bool   // delete what the input does not have
	StopOperation      bool   // end operations of applications that are there
	OverrideOnConflict bool   // try again what somebody else changed meanwhile
	IgnoreTracking     bool   // tracking marks of what is there stay
	SkipLabel          string // leave out objects with a label, key=value
	Enroll             bool   // print how to install agents of clusters that have none
	KustomizeServed    string // version of Kustomize that the hub builds with, such as v5.8
}

// A Report says what became of every document.
type Report struct {
	DryRun    bool     `json:"dryRun"`
	Items     []Item   `json:"items"`
	Proposals []string `json:"proposals,omitempty"`
	// Observed counts the new applications that wait for a confirmation.
	Observed int `json:"observed"`
}

// Refused returns the documents that the hub refused, with the codes of why.
func (r Report) Refused() (codes []string) {
	for _, it := range r.Items {
		if it.Result == refused {
			codes = append(codes, it.code)
		}
	}
	return codes
}

const (
	refused  = "refused"
	omitted  = "left out"
	deleted  = "deleted"
	maxBatch = 200     // documents of one request
	maxBytes = 4 << 20 // of one request
	attempts = 5
)

// An importer is one run.
type importer struct {
	api    *client.Client
	opts   Options
	items  []*Item
	stored map[string]apimodel.Application // applications that are there, by namespace/name
	sets   map[string]apimodel.ApplicationSet
}

// Run imports the files. The error is of what stops the import as a whole; what
// is wrong with one document is in the report.
func Run(ctx context.Context, api *client.Client, in files.Input, opts Options) (Report, error) {
	im := &importer{api: api, opts: opts, stored: map[string]apimodel.Application{}, sets: map[string]apimodel.ApplicationSet{}}
	if err := im.read(in); err != nil {
		return Report{}, err
	}
	if err := im.load(ctx); err != nil {
		return Report{}, err
	}
	for _, it := range im.items {
		im.prepare(it)
	}
	for _, step := range []func(context.Context) error{im.stopOperations, im.apply, im.enroll, im.prune} {
		if err := step(ctx); err != nil {
			return Report{}, err
		}
	}
	return im.report(), nil
}

func (im *importer) read(in files.Input) error {
	for _, part := range in.Parts {
		docs, err := read(part.Name, part.Text)
		if err != nil {
			return err
		}
		for _, d := range docs {
			im.items = append(im.items, im.item(d))
		}
	}
	if len(im.items) == 0 {
		return fault.With(fault.New(fault.Invalid, "there is no object in the input"), "", "give the output of `argocd admin export`, or other manifests of Argo CD")
	}
	slices.SortStableFunc(im.items, func(a, b *Item) int { return cmp.Compare(order(a), order(b)) })
	return nil
}

// item classifies a document.
func (im *importer) item(d document) *Item {
	it := &Item{Kind: d.kind(), Namespace: d.namespace(), Name: d.name(), doc: d}
	var why string
	it.class, why = classify(d)
	key, value, _ := strings.Cut(im.opts.SkipLabel, "=")
	if v, there := d.labels()[key]; im.opts.SkipLabel != "" && there && v == value {
		it.class, why = leftOut, "it has the label "+im.opts.SkipLabel
	}
	if it.class == leftOut {
		it.Result = omitted
		it.note(why)
	}
	return it
}

// order has what is left out come last.
func order(it *Item) class {
	if it.class == leftOut {
		return applicationSet + 1
	}
	return it.class
}

// load reads the applications and sets that the hub has.
func (im *importer) load(ctx context.Context) error {
	err := EachApplication(ctx, im.api, apimodel.ListApplicationsParams{}, func(x apimodel.Application) error {
		im.stored[id(x.Metadata.Namespace, x.Metadata.Name)] = x
		return nil
	})
	if err != nil {
		return err
	}
	return EachSet(ctx, im.api, func(x apimodel.ApplicationSet) error {
		im.sets[id(x.Metadata.Namespace, x.Metadata.Name)] = x
		return nil
	})
}

// EachApplication calls f with every application, page by page, by name.
func EachApplication(ctx context.Context, api *client.Client, params apimodel.ListApplicationsParams, f func(apimodel.Application) error) error {
	params.Limit = 500
	for {
		page, _, err := client.Call[apimodel.ApplicationList](api.ListApplications(ctx, params))
		if err != nil {
			return err
		}
		for _, x := range page.Items {
			if err := f(x); err != nil {
				return err
			}
		}
		if params.Cursor = page.Metadata.Continue; params.Cursor == "" {
			return nil
		}
	}
}

func id(namespace, name string) string { return cmp.Or(namespace, "argocd") + "/" + name }

// prepare makes of a document what is sent.
func (im *importer) prepare(it *Item) {
	if it.class == leftOut {
		return
	}
	im.noteOwner(it)
	it.clean()
	it.dropOwn()
	switch it.class {
	case application:
	case applicationSet:
		im.prepareSet(it)
		return
	default:
		return
	}
	now, there := im.stored[id(it.Namespace, it.Name)]
	switch {
	case there:
		it.annotate(Imported, now.Metadata.Annotations[Imported])
	case im.opts.Start:
		it.annotate(Imported, Confirmed)
	default:
		it.annotate(Imported, Observed)
	}
	if there && im.opts.IgnoreTracking {
		it.annotate(trackingID, now.Metadata.Annotations[trackingID])
		if label, ok := now.Metadata.Labels[instance]; ok {
			labels := it.doc.labels()
			labels[instance] = label
			it.doc.meta()["labels"] = asMap(labels)
		}
	}
}

// stopOperations ends the operations of applications that the input has.
func (im *importer) stopOperations(ctx context.Context) error {
	if !im.opts.StopOperation {
		return nil
	}
	for _, it := range im.items {
		now, there := im.stored[id(it.Namespace, it.Name)]
		if it.class != application || !there || now.Status.OperationState.Phase != "Running" {
			continue
		}
		if im.opts.DryRun {
			it.note("its operation would be ended")
			continue
		}
		if _, err := client.Read(im.api.TerminateOperation(ctx, now.Metadata.Namespace, now.Metadata.Name)); err != nil {
			it.note("its operation was not ended: " + client.Text(err))
			continue
		}
		it.note("its operation was ended")
	}
	return nil
}

// apply sends the documents, class by class. Settings are sent one map at a
// time, because a refused key is left out alone.
func (im *importer) apply(ctx context.Context) error {
	var b batch
	for _, it := range im.items {
		switch it.class {
		case leftOut:
			continue
		case settingsMap:
			if err := im.sendSettings(ctx, it); err != nil {
				return err
			}
			continue
		}
		text, err := it.doc.json()
		if err != nil {
			return err
		}
		if !b.fits(it, len(text)) {
			if err := im.send(ctx, b.items); err != nil {
				return err
			}
			b = batch{}
		}
		b = batch{append(b.items, it), b.size + len(text)}
	}
	return im.send(ctx, b.items)
}

// A batch is what one request applies.
type batch struct {
	items []*Item
	size  int // bytes
}

// fits reports whether a document may be part of the batch.
func (b batch) fits(it *Item, size int) bool {
	return len(b.items) == 0 || len(b.items) < maxBatch && b.size+size <= maxBytes && b.items[0].class == it.class
}

// send applies some documents in one request.
func (im *importer) send(ctx context.Context, items []*Item) error {
	if len(items) == 0 {
		return nil
	}
	var list struct {
		APIVersion string           `json:"apiVersion"`
		Kind       string           `json:"kind"`
		Items      []map[string]any `json:"items"`
	}
	list.APIVersion, list.Kind = "v1", "List"
	for _, it := range items {
		list.Items = append(list.Items, it.doc.object)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		result, _, err := client.Call[apimodel.ApplyResult](im.api.Apply(ctx, apimodel.ApplyParams{DryRun: im.opts.DryRun}, client.Raw{ContentType: "application/json", Content: bytes.NewReader(text)}))
		if err != nil {
			return err
		}
		if len(result.Results) != len(items) {
			return fault.New(fault.Offline, "the hub answered %d results for %d documents", len(result.Results), len(items))
		}
		again := false
		for i, it := range items {
			r := result.Results[i]
			it.settle(r)
			again = again || r.Error.Code == "CAP-1409" && im.opts.OverrideOnConflict
		}
		if !again || try == attempts {
			return nil
		}
	}
}

// settle stores what became of a document.
func (it *Item) settle(r apimodel.ApplyResultItem) {
	it.Result, it.code = string(r.Result), ""
	for _, w := range r.Warnings {
		it.note(w)
	}
	if client.Given(r.Error) {
		it.Result, it.code = refused, r.Error.Code
		it.note(strings.TrimSuffix(r.Error.Message+"; "+r.Error.Fix, "; "))
	}
}

// refusedKey finds the key in the object of an error about settings.
var refusedKey = regexp.MustCompile(`, key (\S+)$`)

// sendSettings applies a ConfigMap or Secret of settings. A key that is refused
// is left out, and the rest is sent again.
func (im *importer) sendSettings(ctx context.Context, it *Item) error {
	for {
		if err := im.send(ctx, []*Item{it}); err != nil || it.Result != refused {
			return err
		}
		why := it.Notes[len(it.Notes)-1]
		object, cause, _ := strings.Cut(why, ": ")
		m := refusedKey.FindStringSubmatch(object)
		if m == nil || !it.holds(m[1]) {
			return nil
		}
		it.Notes = it.Notes[:len(it.Notes)-1]
		it.dropKey(m[1], cause)
	}
}

// enroll adds how to install the agents of clusters that have none.
func (im *importer) enroll(ctx context.Context) error {
	if im.opts.DryRun || !im.opts.Enroll {
		return nil
	}
	for _, it := range im.items {
		if it.class != declaration || it.doc.labels()[secretType] != "cluster" || it.Result == refused {
			continue
		}
		name := cmp.Or(textOf(mapOf(it.doc.object, "stringData"), "name"), it.decoded("name"), it.Name)
		cluster, _, err := client.Call[apimodel.Cluster](im.api.GetCluster(ctx, name))
		if err == nil && !cluster.LastSeen.IsZero() {
			continue
		}
		e, _, err := client.Call[apimodel.Enrolment](im.api.EnrollCluster(ctx, apimodel.EnrollClusterJSONRequestBody{Name: name}))
		if err != nil {
			it.note("its agent was not enrolled: " + client.Text(err))
			continue
		}
		it.Install = cmp.Or(e.Helm, e.Command)
	}
	return nil
}
