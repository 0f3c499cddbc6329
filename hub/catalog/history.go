package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The history of an application is never deleted. A spec.revisionHistoryLimit
// is how much of it is shown and available for a rollback: its newest entries,
// or nothing with 0 (APP-08).

// oldest is the number of the oldest entry that counts; none says that no
// entry does.
func (r *reader) oldest(ctx context.Context, a hub.Application) (id int64, none bool, err error) {
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil || spec.RevisionHistoryLimit == nil {
		return 0, false, err
	}
	limit := *spec.RevisionHistoryLimit
	if limit <= 0 {
		return 0, true, nil
	}
	newest, err := r.HistoryPage(ctx, a.ID, 0, 1)
	if err != nil || len(newest) == 0 {
		return 0, false, err
	}
	return max(0, newest[0].ID-limit) + 1, false, nil
}

// historyPage is HistoryPage within the application's limit.
func (r *reader) historyPage(ctx context.Context, a hub.Application, before int64, limit int) ([]hub.HistoryEntry, error) {
	oldest, none, err := r.oldest(ctx, a)
	if err != nil || none {
		return nil, err
	}
	page, err := r.HistoryPage(ctx, a.ID, before, limit)
	for i, e := range page {
		if e.ID < oldest {
			return page[:i], err
		}
	}
	return page, err
}

// remembered refuses an entry that the application's limit leaves out.
func (r *reader) remembered(ctx context.Context, a hub.Application, entry int64) error {
	oldest, none, err := r.oldest(ctx, a)
	switch {
	case err != nil:
		return err
	case none:
		return fault.With(fault.New(fault.Missing, "no history is kept: its spec.revisionHistoryLimit is 0"), "application "+title(a.Namespace, a.Name),
			"raise the limit, or remove it to keep everything")
	case entry < oldest:
		return fault.With(fault.New(fault.Missing, "history entry %d is beyond its spec.revisionHistoryLimit", entry), "application "+title(a.Namespace, a.Name),
			"raise the limit, or choose an entry of `capstan app history "+a.Name+"`")
	}
	return nil
}
