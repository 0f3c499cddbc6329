package importer

import (
	"context"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

const setKind = "ApplicationSet"

// EachSet calls f with every ApplicationSet, page by page, by namespace and name.
func EachSet(ctx context.Context, api *client.Client, f func(apimodel.ApplicationSet) error) error {
	params := apimodel.ListApplicationSetsParams{Limit: 500}
	for {
		page, _, err := client.Call[apimodel.ApplicationSetList](api.ListApplicationSets(ctx, params))
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

// noteOwner says what becomes of the owner of an application. One that the input
// has as well, or the hub, takes it over when it generates it again.
func (im *importer) noteOwner(it *Item) {
	owners, _ := it.doc.meta()["ownerReferences"].([]any)
	if len(owners) == 0 {
		return
	}
	owner, _ := owners[0].(map[string]any)
	what := textOf(owner, "kind") + " " + textOf(owner, "name")
	if textOf(owner, "kind") == setKind && im.hasSet(it.Namespace, textOf(owner, "name"), textOf(owner, "uid")) {
		it.note("it belongs to " + what + ", which takes it over as it is")
		return
	}
	it.note("it was made by " + what + ", and is an Application of its own now")
}

// hasSet reports whether the input has a set, or else the hub. An owner
// reference with the uid of another set means that one.
func (im *importer) hasSet(namespace, name, uid string) bool {
	for _, it := range im.items {
		if it.class != applicationSet || id(it.Namespace, it.Name) != id(namespace, name) {
			continue
		}
		own := textOf(it.doc.meta(), "uid")
		return own == "" || uid == "" || own == uid
	}
	_, there := im.sets[id(namespace, name)]
	return there
}

// prepareSet has a set that is new be observed: so are the applications that it
// makes.
func (im *importer) prepareSet(it *Item) {
	now, there := im.sets[id(it.Namespace, it.Name)]
	switch {
	case there:
		it.annotate(Imported, now.Metadata.Annotations[Imported])
	case im.opts.Start:
		it.annotate(Imported, Confirmed)
	default:
		it.annotate(Imported, Observed)
	}
}

// pruneSets deletes sets that the input does not have, without their
// applications.
func (im *importer) pruneSets(ctx context.Context) error {
	return EachSet(ctx, im.api, func(x apimodel.ApplicationSet) error {
		m := x.Metadata
		if im.has(setKind, func(it *Item) bool { return id(it.Namespace, it.Name) == id(m.Namespace, m.Name) }) {
			return nil
		}
		im.remove(setKind, m.Namespace, m.Name, func() error {
			no := false
			_, err := client.Read(im.api.DeleteApplicationSet(ctx, m.Namespace, m.Name, apimodel.DeleteApplicationSetParams{Cascade: &no}))
			return err
		})
		return nil
	})
}

// generatedBy reports whether a set of the input generates an application. Such
// a one is not pruned: its set decides.
func (im *importer) generatedBy(x apimodel.Application) bool {
	set := x.Status.Capstan.ApplicationSet
	return set.Name != "" && im.has(setKind, func(it *Item) bool { return id(it.Namespace, it.Name) == id(set.Namespace, set.Name) })
}
