package manifest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The prefixes under which the engine's annotations are read. Our own wins.
const (
	OwnPrefix  = "capstan.dev/"
	ArgoPrefix = "argocd.argoproj.io/"
)

// The hook types (HOOK-01).
const (
	HookPreSync    = "PreSync"
	HookSync       = "Sync"
	HookPostSync   = "PostSync"
	HookSyncFail   = "SyncFail"
	HookPreDelete  = "PreDelete"
	HookPostDelete = "PostDelete"
	HookSkip       = "Skip" // never applied
)

// The hook deletion policies (HOOK-06).
const (
	BeforeHookCreation = "BeforeHookCreation"
	HookSucceeded      = "HookSucceeded"
	HookFailed         = "HookFailed"
)

// Annotation reads one of the engine's annotations by its short name, such as
// "sync-wave": capstan.dev/sync-wave if it is there, else
// argocd.argoproj.io/sync-wave.
func Annotation(o *Object, name string) (string, bool) {
	if v, ok := RawAnnotation(o, OwnPrefix+name); ok {
		return v, true
	}
	return RawAnnotation(o, ArgoPrefix+name)
}

// RawAnnotation reads an annotation by its full name, without copying the others.
func RawAnnotation(o *Object, name string) (string, bool) {
	all, ok := metadata(o, "annotations").(map[string]any)
	if !ok {
		return "", false
	}
	v, ok := all[name].(string)
	return v, ok
}

// Wave is the wave of an object (ENG-02): its sync-wave annotation, else its
// Helm hook weight (HELM-19), else 0. A word that is no number is an error,
// because a typo must stop a rollout and not reorder it.
func Wave(o *Object) (int32, error) {
	text, ok := Annotation(o, "sync-wave")
	name := "sync-wave"
	if !ok {
		if text, ok = helmAnnotation(o, "helm.sh/hook-weight"); !ok {
			return 0, nil
		}
		name = "helm.sh/hook-weight"
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0, fault.With(fault.New(fault.Invalid, "annotation %s is %q, which is not a whole number", name, text),
			objectName(o), "write a number such as \"-1\" or \"5\", in quotes")
	}
	return int32(n), nil
}

// Hooks gives the hook types of an object, in the order of the list above and
// each once; none for an ordinary object. A hook none of whose words is a known
// type is never applied, and comes back as Skip alone (HOOK-02, HOOK-03); so
// is a Helm test or rollback hook (HELM-18). A crd-install hook is an ordinary
// object. The error is always nil today: a hook that cannot be understood is
// skipped, and UnknownHooks says which words were at fault.
func Hooks(o *Object) ([]string, error) {
	if text, ok := Annotation(o, "hook"); ok {
		return hookTypes(splitWords(text), argoHook), nil
	}
	if text, ok := RawAnnotation(o, "helm.sh/hook"); ok {
		words := splitWords(text)
		if slices.Contains(words, "crd-install") {
			return nil, nil
		}
		return hookTypes(words, helmHook), nil
	}
	return nil, nil
}

// UnknownHooks gives the words of an object's hook annotation that are no hook
// types, for a warning.
func UnknownHooks(o *Object) []string {
	text, ok := Annotation(o, "hook")
	if !ok {
		return nil
	}
	var unknown []string
	for _, w := range splitWords(text) {
		if argoHook(w) == "" {
			unknown = append(unknown, w)
		}
	}
	return unknown
}

func hookTypes(words []string, known func(string) string) []string {
	order := [...]string{HookPreSync, HookSync, HookPostSync, HookSyncFail, HookPreDelete, HookPostDelete}
	var out []string
	for _, want := range order {
		if slices.ContainsFunc(words, func(w string) bool { return known(w) == want }) {
			out = append(out, want)
		}
	}
	if len(out) == 0 {
		return []string{HookSkip}
	}
	return out
}

func argoHook(word string) string {
	switch word {
	case HookPreSync, HookSync, HookPostSync, HookSyncFail, HookPreDelete, HookPostDelete, HookSkip:
		return word
	}
	return ""
}

func helmHook(word string) string {
	switch word {
	case "pre-install", "pre-upgrade":
		return HookPreSync
	case "post-install", "post-upgrade":
		return HookPostSync
	case "pre-delete":
		return HookPreDelete
	case "post-delete":
		return HookPostDelete
	}
	return ""
}

// DeletePolicies gives the deletion policies of a hook; BeforeHookCreation if
// it names none that is known (HOOK-06).
func DeletePolicies(o *Object) []string {
	text, ok := Annotation(o, "hook-delete-policy")
	if !ok {
		text, _ = helmAnnotation(o, "helm.sh/hook-delete-policy")
	}
	var out []string
	for _, w := range splitWords(text) {
		if p := deletePolicy(w); p != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return []string{BeforeHookCreation}
	}
	return out
}

func deletePolicy(word string) string {
	switch word {
	case BeforeHookCreation, "before-hook-creation":
		return BeforeHookCreation
	case HookSucceeded, "hook-succeeded":
		return HookSucceeded
	case HookFailed, "hook-failed":
		return HookFailed
	}
	return ""
}

// helmAnnotation reads a Helm hook annotation, unless the object declares
// hooks of its own, which make Helm's void (HELM-19).
func helmAnnotation(o *Object, name string) (string, bool) {
	if _, own := Annotation(o, "hook"); own {
		return "", false
	}
	return RawAnnotation(o, name)
}

// Options gives the sync options that an object asks for, as written
// ("Prune=false"). Helm's resource policy "keep" adds Prune=false and
// Delete=false (HELM-23).
func Options(o *Object) []string {
	text, _ := Annotation(o, "sync-options")
	out := splitWords(text)
	if policy, _ := RawAnnotation(o, "helm.sh/resource-policy"); strings.EqualFold(strings.TrimSpace(policy), "keep") {
		out = append(out, "Prune=false", "Delete=false")
	}
	return out
}

// CompareOptions gives the options of comparison that an object asks for, as
// written ("IgnoreExtraneous").
func CompareOptions(o *Object) []string {
	text, _ := Annotation(o, "compare-options")
	return splitWords(text)
}

// Option gives the value of one sync option from a list such as Options gives;
// "true" for an option without a value. The last one wins.
func Option(options []string, name string) (string, bool) {
	for i := len(options) - 1; i >= 0; i-- {
		k, v, has := strings.Cut(options[i], "=")
		if strings.TrimSpace(k) != name {
			continue
		}
		if !has {
			return "true", true
		}
		return strings.TrimSpace(v), true
	}
	return "", false
}

func splitWords(csv string) []string {
	var out []string
	for w := range strings.SplitSeq(csv, ",") {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}
