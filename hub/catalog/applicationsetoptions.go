package catalog

import (
	"context"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/generate/changes"
)

// setOptions are what the settings of a tenant say about a set (CFG-17).
type setOptions struct {
	policy       string
	override     bool // sets may say their policy themselves
	dryRun       bool
	progressive  bool
	preserved    hub.PreservedFields
	limit        changes.Limit
	requeueAfter time.Duration // 0: the default
	most         int           // applications of a set
}

func readSetOptions(ctx context.Context, tx transact.Tx, m hub.Meta) (setOptions, error) {
	set, err := tx.SettingValues(ctx, hub.ParamsMap, []string{
		hub.SetPolicyKey, hub.SetPolicyOverrideKey, hub.SetDryRunKey, hub.SetRequeueKey, hub.SetProgressiveKey, hub.SetProgressiveOldKey,
		hub.SetPreservedAnnotationsKey, hub.SetPreservedLabelsKey, hub.SetDeletionLimitKey,
	})
	if err != nil {
		return setOptions{}, err
	}
	o := setOptions{
		policy: set[hub.SetPolicyKey], override: set[hub.SetPolicyOverrideKey] == "true", dryRun: set[hub.SetDryRunKey] == "true",
		progressive: set[hub.SetProgressiveKey] != "false" && set[hub.SetProgressiveOldKey] != "false",
		preserved:   hub.PreservedFields{Annotations: commaList(set[hub.SetPreservedAnnotationsKey]), Labels: commaList(set[hub.SetPreservedLabelsKey])},
		limit:       changes.DefaultLimit(),
	}
	if after, err := validation.ParseDuration(set[hub.SetRequeueKey]); err == nil {
		o.requeueAfter = after
	}
	own, _ := m.Annotation(hub.DeletionLimitAnnotation)
	for _, text := range [...]string{set[hub.SetDeletionLimitKey], own} {
		if limit, ok := changes.ParseLimit(text); ok {
			o.limit = limit
		}
	}
	o.most, err = tx.PerSet(ctx)
	return o, err
}

func commaList(text string) (out []string) {
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// limits bound a generation.
func (r *reconciling) limits() hub.GenerationLimit {
	_, asked := r.set.Annotations[hub.RefreshSetAnnotation]
	return hub.GenerationLimit{Applications: r.options.most, Requeue: r.options.requeueAfter, Fresh: r.fresh || asked}
}

// leastRequeue is how often a set may be generated where nothing is known to
// have changed.
const leastRequeue = 10 * time.Second

// requeue returns how long a result holds, of which the generators say after; 0:
// until something changes.
func (o setOptions) requeue(after time.Duration) time.Duration {
	if after == 0 {
		return 0
	}
	return max(after, leastRequeue)
}
