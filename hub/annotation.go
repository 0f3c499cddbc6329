package hub

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// Annotations of an Application, under capstan.dev/ or argocd.argoproj.io/.
const (
	// RefreshAnnotation requests a refresh, "normal" or "hard". It is removed
	// when the refresh is done (APP-22).
	RefreshAnnotation = "refresh"
	// refreshTimestamp comes with it from Argo CD's API, and goes with it.
	refreshTimestamp = "refresh-timestamp"
	// SkipAnnotation, on an Application or a cluster, leaves things as they are:
	// nothing is rendered, applied, healed or deleted (APP-24).
	SkipAnnotation = "skip-reconcile"
	// hydrateAnnotation asks for something that Capstan does not do (APP-23).
	hydrateAnnotation = "hydrate"
	// managedByAnnotation is the address of another installation's console.
	managedByAnnotation = "managed-by-url"
)

// RefreshAnnotations are the keys that are removed when the refresh that they
// requested is done.
func RefreshAnnotations() []string {
	var out []string
	for _, prefix := range [...]string{ownPrefix, argoPrefix} {
		out = append(out, prefix+RefreshAnnotation, prefix+refreshTimestamp)
	}
	return out
}

// AsksRefresh reports whether a refresh is requested, and whether everything is
// to be rendered again. An unknown value means normal.
func (m Meta) AsksRefresh() (asked, hard bool) {
	text, found := m.Annotation(RefreshAnnotation)
	return found, text == "hard"
}

// Skips reports whether nothing is to be done to what carries the metadata.
func (m Meta) Skips() bool {
	text, _ := m.Annotation(SkipAnnotation)
	return text == "true"
}

// Skipped says why nothing is to be done to an application, as a sentence;
// empty: something is.
func Skipped(app Meta, cluster Meta) string {
	switch {
	case app.Skips():
		return "its annotation " + SkipAnnotation + " is true, so it is left as it is"
	case cluster.Skips():
		return "the annotation " + SkipAnnotation + " of cluster " + cluster.Name + " is true, so its applications are left as they are"
	}
	return ""
}

// SplitLink reads "title|URL" or a URL of http or https; anything else is no
// link that a person may be sent to.
func SplitLink(text string) (title, address string, ok bool) {
	title, address, titled := strings.Cut(text, "|")
	if !titled {
		title, address = "", text
	}
	u, err := url.Parse(address)
	return title, address, err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// maxNotice is how many characters of a notice are shown.
const maxNotice = 500

// CheckNotices returns a warning for each annotation of an Application that has
// no effect although it looks as if it did: what the console would ignore, and
// what Capstan does not support.
func CheckNotices(m Meta) []string {
	var out []string
	say := func(key, format string, args ...any) {
		out = append(out, fmt.Sprintf("annotation "+key+" "+format, args...))
	}
	if _, found := m.Annotation(hydrateAnnotation); found {
		say(hydrateAnnotation, "is kept but has no effect: Capstan does not hydrate sources")
	}
	if text, found := m.Annotation(managedByAnnotation); found {
		if _, _, ok := SplitLink(text); !ok || strings.Contains(text, "|") {
			say(managedByAnnotation, "is not shown: it is no address of http or https")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m.Annotations)) {
		family, name, _ := strings.Cut(key, "/")
		text := m.Annotations[key]
		switch strings.TrimSuffix(strings.TrimSuffix(family, ".argocd.argoproj.io"), ".capstan.dev") {
		case "notice":
			if why := noticeProblem(name, text); why != "" {
				say(key, "%s", why)
			}
		case "pref":
			if why := oneOf(text, preferences()[name]); why != "" {
				say(key, "%s", why)
			}
		case "link":
			if _, _, ok := SplitLink(text); !ok {
				say(key, "is not shown: it is no address of http or https")
			}
		}
	}
	return out
}

func noticeProblem(name, text string) string {
	switch name {
	case "content":
		if utf8.RuneCountInString(text) > maxNotice {
			return fmt.Sprintf("is shown up to its first %d characters", maxNotice)
		}
	case "url":
		if _, _, ok := SplitLink(text); !ok || strings.Contains(text, "|") {
			return "is not shown: it is no address of http or https"
		}
	case "severity":
		return oneOf(text, []string{"info", "warning", "critical"})
	case "scope":
		return oneOf(text, []string{"banner", "icon", "both"})
	case "permanent":
		return oneOf(text, []string{"true", "false"})
	case "icon":
		return oneOf(text, noticeIcons())
	default:
		return "has no effect: there is none of that name"
	}
	return ""
}

// noticeIcons are those that a notice may choose.
func noticeIcons() []string {
	return []string{
		"fa-info-circle", "fa-exclamation-triangle", "fa-exclamation-circle", "fa-bell", "fa-wrench", "fa-clock", "fa-bullhorn",
		"fa-life-ring", "fa-shield-alt",
	}
}

// preferences are the values that each preference of a view may have.
func preferences() map[string][]string {
	return map[string][]string{
		"default-view":     {"tree", "pods", "network", "list"},
		"default-pod-sort": {"node", "parentResource", "topLevelResource"},
	}
}

func oneOf(text string, known []string) string {
	switch {
	case len(known) == 0:
		return "has no effect: there is none of that name"
	case slices.Contains(known, text):
		return ""
	}
	return fmt.Sprintf("is %q, which is passed over; it may be %s", cut(text), strings.Join(known, ", "))
}

// The finalizers that Argo CD puts on an Application whose sources have hooks
// of its deletion (APP-30). They are worked out and never stored.
const (
	preDeleteFinalizer  = "pre-delete-finalizer.argocd.argoproj.io"
	postDeleteFinalizer = "post-delete-finalizer.argocd.argoproj.io"
	cleanup             = "/cleanup"
)

// HookFinalizers are the finalizers that hooks of these types stand for.
func HookFinalizers(types []string) []string {
	var out []string
	if slices.Contains(types, "PreDelete") {
		out = append(out, preDeleteFinalizer, preDeleteFinalizer+cleanup)
	}
	if slices.Contains(types, "PostDelete") {
		out = append(out, postDeleteFinalizer, postDeleteFinalizer+cleanup)
	}
	return out
}

// OwnFinalizers leaves out those that are worked out.
func OwnFinalizers(all []string) []string {
	worked := HookFinalizers([]string{"PreDelete", "PostDelete"})
	return slices.DeleteFunc(slices.Clone(all), func(f string) bool { return slices.Contains(worked, f) })
}

// DeletionHooks are the types of the hooks that the deletion of a snapshot's
// application runs.
func (s Snapshot) DeletionHooks() []string {
	var out []string
	for _, kind := range [...]string{"PreDelete", "PostDelete"} {
		if slices.ContainsFunc(s.Objects, func(o ObjectRef) bool { return slices.Contains(strings.Split(o.Hook, ","), kind) }) {
			out = append(out, kind)
		}
	}
	return out
}
