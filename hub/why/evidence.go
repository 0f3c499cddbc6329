package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

// evidence is one thing that was said of an object.
type evidence struct {
	reason, message string
	container       string
	since           time.Time
}

// ruleAt is a rule with its place.
type ruleAt struct {
	rule
	order int
}

var allRules = rules() //nolint:gochecknoglobals // compiled once, and never changed

// classify finds the first rule that fits.
func classify(e evidence) (ruleAt, bool) {
	for i, r := range allRules {
		if (r.reason == nil || r.reason.MatchString(e.reason)) && (r.text == nil || r.text.MatchString(e.message)) {
			return ruleAt{r, i}, true
		}
	}
	return ruleAt{}, false
}

// evidenceOf collects what is known of an object: its message, its state and its
// warnings.
func evidenceOf(n hub.Resource, d Detail) (out []evidence) {
	status, _ := d.Live["status"].(map[string]any)
	if n.Group == "" && n.Kind == "Pod" {
		out = append(out, ofPod(status)...)
	}
	out = append(out, ofConditions(status)...)
	for _, e := range d.Events {
		if e.Type != "Warning" {
			continue
		}
		out = append(out, evidence{reason: e.Reason, message: e.Message, since: e.First})
	}
	return append(out, ofMessage(n)...)
}

// ofMessage reads what the agent has reported of an object, which is all that is
// known while the cluster cannot be asked.
func ofMessage(n hub.Resource) []evidence {
	if n.Message == "" {
		return nil
	}
	out := []evidence{{message: n.Message, since: n.UpdatedAt}}
	container := ""
	if rest, ok := strings.CutPrefix(n.Message, "container "); ok {
		container, _, _ = strings.Cut(rest, ":")
		container, _, _ = strings.Cut(container, " ")
	}
	for pattern, reason := range map[string]string{
		"OOMKilled": "OOMKilled", "Back-off pulling image": "ImagePullBackOff", "back-off ": "CrashLoopBackOff", "CrashLoopBackOff": "CrashLoopBackOff",
		"ErrImagePull": "ErrImagePull", "ImagePullBackOff": "ImagePullBackOff", "CreateContainerConfigError": "CreateContainerConfigError",
		"nodes are available": "Unschedulable", "exceeded its progress deadline": "ProgressDeadlineExceeded", "BackoffLimitExceeded": "BackoffLimitExceeded",
		"backoff limit": "BackoffLimitExceeded", "DeadlineExceeded": "DeadlineExceeded", "failed with exit code": "ContainerFailed", "InvalidImageName": "InvalidImageName",
	} {
		if strings.Contains(n.Message, pattern) {
			out = append(out, evidence{reason: reason, message: n.Message, container: container, since: n.UpdatedAt})
		}
	}
	return out
}

// ofPod reads states of containers, and why a pod failed.
func ofPod(status map[string]any) (out []evidence) {
	if reason := text(status, "reason"); reason != "" {
		out = append(out, evidence{reason: reason, message: text(status, "message")})
	}
	for _, kind := range [...]string{"initContainerStatuses", "containerStatuses"} {
		for _, c := range maplist(status, kind) {
			out = append(out, ofContainer(c, kind == "initContainerStatuses")...)
		}
	}
	return out
}

func ofContainer(c map[string]any, initial bool) (out []evidence) {
	name := text(c, "name")
	waiting := child(child(c, "state"), "waiting")
	ended := child(child(c, "state"), "terminated")
	if ended == nil && waiting != nil {
		ended = child(child(c, "lastState"), "terminated")
	}
	if ended != nil && number(ended, "exitCode") != 0 {
		since := moment(ended, "finishedAt")
		message := text(ended, "message")
		if message == "" {
			message = fmt.Sprintf("container %s ended with exit code %d", name, number(ended, "exitCode"))
		}
		reason := text(ended, "reason")
		out = append(out, evidence{reason, message, name, since})
		if initial {
			out = append(out, evidence{"InitContainerFailed", message, name, since})
		}
		out = append(out, evidence{"ContainerFailed", message, name, since})
	}
	if waiting != nil {
		message := text(waiting, "message")
		if message == "" {
			message = text(waiting, "reason")
		}
		out = append(out, evidence{text(waiting, "reason"), message, name, time.Time{}})
	}
	return out
}

// ofConditions reads conditions that say that something is wrong.
func ofConditions(status map[string]any) (out []evidence) {
	for _, c := range maplist(status, "conditions") {
		kind, is := text(c, "type"), text(c, "status")
		bad := is == "False"
		switch kind {
		case "ReplicaFailure", "Failed", "FailureTarget", "DisruptionTarget", "Stalled":
			bad = is == "True"
		}
		if bad {
			out = append(out, evidence{reason: text(c, "reason"), message: text(c, "message"), since: moment(c, "lastTransitionTime")})
		}
	}
	return out
}

func text(m map[string]any, key string) string { s, _ := m[key].(string); return s }

func child(m map[string]any, key string) map[string]any { c, _ := m[key].(map[string]any); return c }

func number(m map[string]any, key string) int { n, _ := m[key].(float64); return int(n) }

func moment(m map[string]any, key string) time.Time {
	t, err := time.Parse(time.RFC3339, text(m, key))
	if err != nil {
		return time.Time{}
	}
	return t
}

func maplist(m map[string]any, key string) (out []map[string]any) {
	items, _ := m[key].([]any)
	for _, item := range items {
		if c, ok := item.(map[string]any); ok {
			out = append(out, c)
		}
	}
	return out
}

func since(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// onlyKey is the key of a map that has one.
func onlyKey[V any](m map[string]V) string {
	if len(m) != 1 {
		return ""
	}
	return sortedKeys(m)[0]
}
