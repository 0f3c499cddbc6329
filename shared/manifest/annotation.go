package manifest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The prefixes of the engine's annotations. Our own takes precedence.
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
// "sync-wave": capstan.dev/sync-wave if it exists, else
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
// Helm hook weight (HELM-19), else 0. A value that is not a number is ignored,
// as in Argo CD; Misread reports it.
func Wave(o *Object) int32 {
	for _, text := range waveTexts(o) {
		if n, ok := waveNumber(text.value); ok {
			return n
		}
	}
	return 0
}

// A named is one annotation and its text.
type named struct{ name, value string }

// waveTexts are the annotations that an object's wave is read from, the first
// that can be read counting.
func waveTexts(o *Object) (out []named) {
	if text, ok := Annotation(o, waveAnnotation); ok {
		out = append(out, named{waveAnnotation, text})
	}
	if text, ok := helmAnnotation(o, "helm.sh/hook-weight"); ok {
		out = append(out, named{"helm.sh/hook-weight", text})
	}
	return out
}

const (
	waveAnnotation   = "sync-wave"
	policyAnnotation = "hook-delete-policy"
)

// The limits of the range of waves. A number beyond a limit becomes the limit.
const (
	firstWave = math.MinInt32 + 1
	lastWave  = math.MaxInt32 - 1 // PruneLast needs one after it
)

func waveNumber(text string) (n int32, ok bool) {
	wide, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, false
	}
	return int32(min(max(wide, firstWave), lastWave)), true
}

// Misread returns a sentence for each of the engine's annotations of an object
// whose value is invalid and therefore counts as not set. The hub checks sync
// options, which it knows.
func Misread(o *Object) []string {
	var out []string
	for _, text := range waveTexts(o) {
		if _, ok := waveNumber(text.value); !ok {
			out = append(out, fmt.Sprintf("annotation %s is %q, which is no whole number and counts as not set; write one such as \"-1\" or \"5\", in quotes",
				text.name, excerpt(text.value)))
		}
	}
	for _, w := range UnknownHooks(o) {
		out = append(out, fmt.Sprintf("annotation hook names %q, which is no hook", excerpt(w)))
	}
	if text, ok := Annotation(o, policyAnnotation); ok {
		for _, w := range splitWords(text) {
			if deletePolicy(w) == "" {
				out = append(out, fmt.Sprintf("annotation %s names %q, which is no deletion policy and counts as not set; write %s, %s or %s",
					policyAnnotation, excerpt(w), BeforeHookCreation, HookSucceeded, HookFailed))
			}
		}
	}
	return out
}

// excerpt truncates the quoted text of an annotation.
func excerpt(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// StandIn is the name of an object that has generateName and no name and is not
// a hook (SRC-20). It can never be written, and no other object can have this
// name.
func StandIn(generateName string) string {
	if generateName == "" {
		return ""
	}
	return generateName + "*"
}

// Hooks returns the hook types of an object, in the order of the list above and
// each once; none for an ordinary object. A hook without any known type is
// never applied, and is returned as Skip alone (HOOK-02, HOOK-03); so is a Helm
// test or rollback hook (HELM-18). A crd-install hook is an ordinary object.
// The error is always nil: an invalid hook is skipped, and UnknownHooks returns
// the unknown words.
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

// UnknownHooks returns the words of an object's hook annotation that are no hook
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

// DeletePolicies returns the deletion policies of a hook; BeforeHookCreation if
// it names no known one (HOOK-06).
func DeletePolicies(o *Object) []string {
	text, ok := Annotation(o, policyAnnotation)
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

// helmAnnotation reads a Helm hook annotation, unless the object has hook
// annotations of the engine, which take precedence (HELM-19).
func helmAnnotation(o *Object, name string) (string, bool) {
	if _, own := Annotation(o, "hook"); own {
		return "", false
	}
	return RawAnnotation(o, name)
}

// ResolveOption is the sync option by which placeholders and files of SOPS are
// resolved in the cluster. An agent that can do it names ResolveFeature in Hello.
const (
	ResolveOption  = "ResolveSecrets"
	ResolveFeature = "resolve-secrets"
)

// Options returns the sync options of an object, as written ("Prune=false").
// Helm's resource policy "keep" adds Prune=false and Delete=false (HELM-23).
func Options(o *Object) []string {
	text, _ := Annotation(o, "sync-options")
	out := splitWords(text)
	if policy, _ := RawAnnotation(o, "helm.sh/resource-policy"); strings.EqualFold(strings.TrimSpace(policy), "keep") {
		out = append(out, "Prune=false", "Delete=false")
	}
	return out
}

// CompareOptions returns the compare options of an object, as written
// ("IgnoreExtraneous").
func CompareOptions(o *Object) []string {
	text, _ := Annotation(o, "compare-options")
	return splitWords(text)
}

// Option returns the value of one sync option from a list such as Options
// returns; "true" for an option without a value. The last one has precedence.
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
