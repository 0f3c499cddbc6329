package hub

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The annotations that control how an application is synchronised. Each is read
// as capstan.dev/NAME and then as argocd.argoproj.io/NAME.
const (
	// ApprovedAnnotation is the time at which a person approved deletions (RFC
	// 3339).
	ApprovedAnnotation = "deletion-approved"
	// FollowAnnotation says whether new revisions are applied without being
	// asked; without it spec.syncPolicy.automated does.
	FollowAnnotation = "follow-revision"
	// KeepAnnotation sets whether drift from what was accepted is reverted;
	// without it spec.syncPolicy.automated.selfHeal does.
	KeepAnnotation = "keep-live"
	// RollbackHooksAnnotation says whether a rollback runs hooks that does not
	// say so itself.
	RollbackHooksAnnotation = "rollback-hooks"
	// PruneLimitAnnotation bounds, on an Application or its AppProject, what one
	// operation may delete without approval: "10", "25%" or "10,25%".
	PruneLimitAnnotation = "prune-limit"
)

const (
	ownPrefix  = "capstan.dev/"
	argoPrefix = "argocd.argoproj.io/"
)

// Annotation reads an annotation under either prefix; ours wins.
func (m Meta) Annotation(name string) (value string, found bool) {
	for _, prefix := range [...]string{ownPrefix, argoPrefix} {
		if value, found = m.Annotations[prefix+name]; found {
			return value, true
		}
	}
	return "", false
}

// Annotate returns the annotations with one of ours set.
func (m Meta) Annotate(name, value string) map[string]string {
	out := maps.Clone(m.Annotations)
	if out == nil {
		out = map[string]string{}
	}
	out[ownPrefix+name] = value
	return out
}

// Follows reports whether new revisions of the application are applied without
// being asked.
func (a Application) Follows(spec ApplicationSpec) bool {
	return !a.Observed() && a.flag(FollowAnnotation, spec.Automated())
}

// KeepsLive reports whether drift from what was accepted is reverted, whether
// or not new revisions are followed.
func (a Application) KeepsLive(spec ApplicationSpec) bool {
	return !a.Observed() && a.flag(KeepAnnotation, spec.SelfHeal())
}

// RunsRollbackHooks reports whether a rollback runs hooks unless it is asked not
// to.
func (a Application) RunsRollbackHooks() bool { return a.flag(RollbackHooksAnnotation, false) }

func (a Application) flag(name string, otherwise bool) bool {
	text, _ := a.Annotation(name)
	v, err := strconv.ParseBool(text)
	if err != nil {
		return otherwise
	}
	return v
}

// ApprovedAt is when a person last approved deletions of the application; zero:
// never.
func (a Application) ApprovedAt() time.Time {
	text, _ := a.Annotation(ApprovedAnnotation)
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// SameSwitches reports whether two versions of an application are steered alike
// by their annotations.
func SameSwitches(a, b Meta) bool {
	for _, name := range [...]string{ApprovedAnnotation, FollowAnnotation, KeepAnnotation, PruneLimitAnnotation, SkipAnnotation} {
		x, hasX := a.Annotation(name)
		y, hasY := b.Annotation(name)
		if x != y || hasX != hasY {
			return false
		}
	}
	return a.Annotations[ImportedAnnotation] == b.Annotations[ImportedAnnotation]
}

// CheckSwitches refuses annotations that would be passed over.
func CheckSwitches(m Meta) error {
	for _, name := range [...]string{FollowAnnotation, KeepAnnotation} {
		if text, found := m.Annotation(name); found {
			if _, err := strconv.ParseBool(text); err != nil {
				return fault.With(fault.New(fault.Invalid, "annotation %s%s is %q", ownPrefix, name, cut(text)), "", "write true or false")
			}
		}
	}
	if text, found := m.Annotation(ApprovedAnnotation); found && text != "" {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return fault.With(fault.New(fault.Invalid, "annotation %s is %q, which is no time", ApprovedAnnotation, cut(text)), "", "write it like 2026-01-31T15:04:05Z")
		}
	}
	if text, found := m.Annotation(PruneLimitAnnotation); found {
		if _, err := ParsePruneLimit(text); err != nil {
			return err
		}
	}
	return checkImported(m)
}

func cut(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

// A PruneLimit bounds what one operation may delete without approval. A zero
// part is no bound.
type PruneLimit struct{ Objects, Percent int }

// ParsePruneLimit reads "10", "25%", "10,25%" or "" for none.
func ParsePruneLimit(text string) (PruneLimit, error) {
	var l PruneLimit
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		digits, percent := strings.CutSuffix(part, "%")
		n, err := strconv.Atoi(strings.TrimSpace(digits))
		if err != nil || n < 1 || (percent && n > 100) || n > 1_000_000 {
			return PruneLimit{}, fault.With(fault.New(fault.Invalid, "prune limit %q is no number of objects and no percentage", cut(text)), "",
				"write it like 10, 25% or 10,25%")
		}
		if percent {
			l.Percent = n
		} else {
			l.Objects = n
		}
	}
	return l, nil
}

// And returns the stricter of two limits, part by part.
func (l PruneLimit) And(o PruneLimit) PruneLimit {
	return PruneLimit{Objects: stricter(l.Objects, o.Objects), Percent: stricter(l.Percent, o.Percent)}
}

func stricter(a, b int) int {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// PruneLimit is what the application's annotation and sync options say; what
// cannot be read counts as the strictest limit.
func (a Application) PruneLimit(spec ApplicationSpec) PruneLimit {
	text, _ := a.Annotation(PruneLimitAnnotation)
	option, _ := spec.SyncPolicy.Option(PruneLimitOption)
	return limitOf(text).And(limitOf(option))
}

// PruneLimit is what the project lets one operation of an application delete
// without approval.
func (p Project) PruneLimit() PruneLimit {
	text, _ := p.Annotation(PruneLimitAnnotation)
	return limitOf(text)
}

func limitOf(text string) PruneLimit {
	l, err := ParsePruneLimit(text)
	if err != nil {
		return PruneLimit{Objects: 1, Percent: 1}
	}
	return l
}
