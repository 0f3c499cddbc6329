package catalog

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/changes"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Reasons of conditions. All but the last ones are Argo CD's.
const (
	reasonUpToDate    = "ApplicationSetUpToDate"
	reasonGenerated   = "ParametersGenerated"
	reasonError       = "ErrorOccurred"
	reasonGenerators  = "ApplicationParamsGenerationError"
	reasonValidation  = "ApplicationValidationError"
	reasonRollout     = "ApplicationSetModified"
	reasonRolledOut   = "ApplicationSetRolloutComplete"
	reasonRolloutSpec = "InvalidRolloutConfig"
	reasonInvalid     = "InvalidSpec"
	reasonDryRun      = "DryRun"
	reasonHeld        = "ConsentNeeded"
	reasonWaiting     = "WaitingForRepository"
	reasonLimit       = "LimitReached"
)

// setRefreshed is how often the time of the last generation is written where
// nothing else is new.
const setRefreshed = 10 * time.Minute

// mostProblems is how many problems a condition names.
const mostProblems = 10

// A setReport is what a reconcile tells of single applications.
type setReport struct {
	problems []changes.Problem
	rollout  plan.RolloutDecision // empty: there is none
}

func (s *setReport) problem(app, message string) {
	s.problems = append(s.problems, changes.Problem{Application: app, Message: strings.TrimPrefix(message, "application "+app+": ")})
}

func (s *setReport) sentence() string {
	var shown []string
	for _, p := range s.problems[:min(len(s.problems), mostProblems)] {
		if p.Application != "" {
			p.Message = "application " + p.Application + ": " + p.Message
		}
		shown = append(shown, p.Message)
	}
	text := strings.Join(shown, "; ")
	if more := len(s.problems) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// A setResult is a condition without its time.
type setResult struct{ kind, status, reason, message string }

// results are the conditions after a generation without errors (ASET-20).
func (r *reconciling) results() []setResult {
	d := r.decision
	out := []setResult{{hub.SetParametersGenerated, hub.ConditionTrue, reasonGenerated, "all generators have returned their parameters"}}
	switch {
	case len(r.report.problems) > 0:
		out = append(out,
			setResult{hub.SetErrorOccurred, hub.ConditionTrue, reasonValidation, r.report.sentence()},
			setResult{hub.SetResourcesUpToDate, hub.ConditionFalse, reasonValidation, "some applications are not as generated"})
	case d.Truncated > 0 || r.generation.Truncated:
		message := fmt.Sprintf("it generates more than the %d applications that it may have; the others are not made, and none is deleted", r.options.most)
		out = append(out,
			setResult{hub.SetErrorOccurred, hub.ConditionTrue, reasonLimit, message},
			setResult{hub.SetResourcesUpToDate, hub.ConditionFalse, reasonLimit, message})
	case r.options.dryRun:
		out = append(out, setResult{hub.SetErrorOccurred, hub.ConditionFalse, reasonUpToDate, "generated without an error"},
			setResult{hub.SetResourcesUpToDate, hub.ConditionFalse, reasonDryRun, fmt.Sprintf(
				"application sets change nothing, because %s is true: %d applications would be created, %d updated and %d deleted",
				hub.SetDryRunKey, len(d.Create), len(d.Update), len(d.Delete))})
	case d.Held != nil:
		out = append(out, setResult{hub.SetErrorOccurred, hub.ConditionFalse, reasonUpToDate, "generated without an error"},
			setResult{hub.SetResourcesUpToDate, hub.ConditionFalse, reasonHeld, "a deletion of applications waits for consent"})
	default:
		out = append(out, setResult{hub.SetErrorOccurred, hub.ConditionFalse, reasonUpToDate, "generated without an error"},
			setResult{hub.SetResourcesUpToDate, hub.ConditionTrue, reasonUpToDate, "all applications are as generated"})
	}
	if h := d.Held; h != nil {
		out = append(out, setResult{hub.SetDeletionHeld, hub.ConditionTrue, reasonHeld, heldSentence(*h)})
	}
	if r.rolling() {
		out = append(out, r.rolloutResults()...)
	}
	return out
}

func heldSentence(h hub.HeldDeletion) string {
	shown := h.Applications[:min(len(h.Applications), mostProblems)]
	text := strings.Join(shown, ", ")
	if more := len(h.Applications) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if len(h.Applications) == h.Of {
		return fmt.Sprintf("none of the %d applications is generated any more, and a set loses all of them only with consent: %s", h.Of, text)
	}
	return fmt.Sprintf("%d of %d applications are no longer generated, and at most %d are deleted without consent: %s", len(h.Applications), h.Of, h.Limit, text)
}

// conditions are those of results, with the times of before where nothing else
// is new.
func conditions(before []hub.ApplicationSetCondition, all []setResult, now time.Time) []hub.ApplicationSetCondition {
	out := make([]hub.ApplicationSetCondition, 0, len(all))
	for _, v := range all {
		c := hub.ApplicationSetCondition{Type: v.kind, Status: v.status, Reason: v.reason, Message: v.message, Since: now.UTC().Truncate(time.Second)}
		for _, b := range before {
			if b.Type == c.Type && b.Status == c.Status && b.Reason == c.Reason {
				c.Since = b.Since
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b hub.ApplicationSetCondition) int { return strings.Compare(a.Type, b.Type) })
	return out
}

// setHealth is the health of a set with these conditions (ASET-21).
func setHealth(all []hub.ApplicationSetCondition) (hub.HealthStatus, string) {
	is := func(kind, status string) (string, bool) {
		i := slices.IndexFunc(all, func(c hub.ApplicationSetCondition) bool { return c.Type == kind && c.Status == status })
		if i < 0 {
			return "", false
		}
		return all[i].Message, true
	}
	if text, yes := is(hub.SetErrorOccurred, hub.ConditionTrue); yes {
		return hub.Degraded, text
	}
	if text, yes := is(hub.SetInvalidRolloutConfig, hub.ConditionTrue); yes {
		return hub.Degraded, text
	}
	if text, yes := is(hub.SetRolloutProgressing, hub.ConditionTrue); yes {
		return hub.Progressing, text
	}
	if text, yes := is(hub.SetResourcesUpToDate, hub.ConditionTrue); yes {
		return hub.Healthy, text
	}
	if text, yes := is(hub.SetResourcesUpToDate, hub.ConditionFalse); yes {
		return hub.Progressing, text
	}
	return hub.HealthUnknown, "it was not generated yet"
}

// conclude stores what is known of the set after a generation.
func (r *reconciling) conclude(ctx context.Context) error {
	return r.write(ctx, func(ctx context.Context, w *writer) error {
		members, err := w.SetMembers(ctx, r.set.ID)
		if err != nil {
			return err
		}
		now, err := w.ApplicationSetByID(ctx, r.set.ID)
		if err != nil {
			return err
		}
		before := now.Status
		next := before
		next.Conditions = conditions(before.Conditions, r.results(), r.now)
		next.Health, next.HealthMessage = setHealth(next.Conditions)
		next.ResourcesCount, next.ObservedGeneration = len(members), r.set.Generation
		next.Rollout, next.Uses = nilIfEmpty(r.report.rollout.States), nilIfEmpty(r.generation.Uses)
		next.Watches = nilIfEmpty(r.generation.Watches)
		if next.Held = r.decision.Held; next.Held != nil && before.Held != nil && before.Held.Digest == next.Held.Digest {
			next.Held = before.Held // with a consent that came meanwhile
			r.again = r.again || next.Held.ConsentedBy != ""
		}
		if err := r.putStatus(ctx, w, before, next); err != nil {
			return err
		}
		if now.Version == r.set.Version && r.set.Annotations[hub.RefreshSetAnnotation] != "" {
			if err := w.AcknowledgeSetRefresh(ctx, r.set.ID); err != nil {
				return err
			}
		}
		if !slices.Equal(before.Watches, next.Watches) {
			if err := w.PutSetPlaces(ctx, r.set.ID, next.Watches); err != nil {
				return err
			}
		}
		if reflect.DeepEqual(before.Uses, next.Uses) {
			return nil
		}
		return w.PutSetRepositories(ctx, r.set, urlsOf(next.Uses))
	})
}

// nilIfEmpty makes an empty list equal to one that was stored.
func nilIfEmpty[T any](in []T) []T {
	if len(in) == 0 {
		return nil
	}
	return in
}

func urlsOf(uses []hub.SetRepository) []string {
	out := make([]string, len(uses))
	for i, u := range uses {
		out[i] = u.URL
	}
	return out
}

// wait has repositories fetched that generators read and that the hub does not
// have yet. The end of a fetch wakes the set.
func (r *reconciling) wait(ctx context.Context) error {
	return r.write(ctx, func(ctx context.Context, w *writer) error {
		now, err := w.ApplicationSetByID(ctx, r.set.ID)
		if err != nil {
			return err
		}
		next := now.Status
		next.Conditions = conditions(next.Conditions, []setResult{
			{hub.SetErrorOccurred, hub.ConditionFalse, reasonWaiting, r.generation.Waits},
			{hub.SetParametersGenerated, hub.ConditionUnknown, reasonWaiting, r.generation.Waits},
			{hub.SetResourcesUpToDate, hub.ConditionFalse, reasonWaiting, r.generation.Waits},
		}, r.now)
		next.Health, next.HealthMessage = setHealth(next.Conditions)
		w.Due = append(w.Due, hub.WorkFetch)
		if !reflect.DeepEqual(now.Status, next) {
			if err := w.PutApplicationSetStatus(ctx, r.set.ID, next); err != nil {
				return err
			}
		}
		return w.PutSetRepositories(ctx, r.set, urlsOf(r.generation.Uses))
	})
}

// putStatus stores a status if it is new, apart from the time of the generation.
func (r *reconciling) putStatus(ctx context.Context, w *writer, before, next hub.ApplicationSetStatus) error {
	next.GeneratedAt = before.GeneratedAt
	if reflect.DeepEqual(before, next) && before.GeneratedAt != nil && r.now.Sub(*before.GeneratedAt) < setRefreshed {
		return nil
	}
	at := r.now.UTC().Truncate(time.Second)
	next.GeneratedAt = &at
	return w.PutApplicationSetStatus(ctx, r.set.ID, next)
}

// fail stores why there is no result. Applications, the held deletion and all
// else stay as they were (ASET-11, INV-3).
func (r *reconciling) fail(ctx context.Context, reason string, cause error) error {
	message := fault.Sentence(cause)
	return r.write(ctx, func(ctx context.Context, w *writer) error {
		now, err := w.ApplicationSetByID(ctx, r.set.ID)
		if err != nil {
			return err
		}
		next := now.Status
		all := []setResult{
			{hub.SetErrorOccurred, hub.ConditionTrue, reason, message},
			{hub.SetParametersGenerated, hub.ConditionFalse, reasonError, message},
			{hub.SetResourcesUpToDate, hub.ConditionFalse, reason, "what was generated last stays"},
		}
		if h := now.Status.Held; h != nil {
			all = append(all, setResult{hub.SetDeletionHeld, hub.ConditionTrue, reasonHeld, heldSentence(*h)})
		}
		next.Conditions = conditions(now.Status.Conditions, all, r.now)
		next.Health, next.HealthMessage = setHealth(next.Conditions)
		if reflect.DeepEqual(now.Status, next) {
			return nil
		}
		return w.PutApplicationSetStatus(ctx, r.set.ID, next)
	})
}
