package hub

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Sync options that are Capstan's own.
const (
	PruneLimitOption  = "PruneLimit"  // what one operation may delete without approval
	SyncTimeoutOption = "SyncTimeout" // how long an operation may take
	StepTimeoutOption = "StepTimeout" // how long one of its steps may take
)

// truths are the sync options that are true or false.
var truths = []string{
	"Validate", "SkipDryRunOnMissingResource", "ApplyOutOfSyncOnly", "PruneLast", "Replace", "Force", "ServerSideApply",
	"ClientSideApplyMigration", "FailOnSharedResource", "RespectIgnoreDifferences", "CreateNamespace", "Adopt", "ResolveSecrets", "capstan.dev/wait",
}

// CheckSyncOptions checks the sync options of an application. An invalid value
// of one of Argo CD's options counts as not set, as it does there, and returns
// a sentence; so does an unknown name. Capstan's own options are refused: no
// repository for Argo CD has them, and most of them are limits.
func CheckSyncOptions(options []string) (warnings []string, err error) {
	for _, o := range options {
		known, own, problem := readSyncOption(o)
		switch {
		case problem != nil && own:
			return nil, problem
		case problem != nil:
			warnings = append(warnings, notSet(problem))
		case !known:
			name, _, _ := strings.Cut(o, "=")
			warnings = append(warnings, fmt.Sprintf("sync option %q is not known and has no effect", cut(name)))
		}
	}
	return warnings, nil
}

// RefuseSyncOptions refuses invalid sync options of one operation, whose author
// can correct them.
func RefuseSyncOptions(options []string) error {
	for _, o := range options {
		if _, _, problem := readSyncOption(o); problem != nil {
			return problem
		}
	}
	return nil
}

// MisreadSyncOptions returns a sentence for each option that counts as not set,
// because its value cannot be read. bare says that a name alone is true, as it
// is on an object.
func MisreadSyncOptions(options []string, bare bool) (warnings []string) {
	for _, o := range options {
		if bare && !strings.Contains(o, "=") {
			continue
		}
		if _, _, problem := readSyncOption(o); problem != nil {
			warnings = append(warnings, notSet(problem))
		}
	}
	return warnings
}

// ReadableSyncOptions leaves out what counts as not set.
func ReadableSyncOptions(options []string) []string {
	return slices.DeleteFunc(slices.Clone(options), func(o string) bool {
		_, own, problem := readSyncOption(o)
		return problem != nil && !own
	})
}

func notSet(problem error) string {
	e, ok := fault.As(problem)
	if !ok {
		return problem.Error()
	}
	return e.Cause + ", which cannot be read and counts as not set; " + e.Fix
}

// readSyncOption checks one option: whether its name is known, whether Argo CD
// does not have it, and what is wrong with its value.
func readSyncOption(o string) (known, own bool, problem error) {
	name, value, found := strings.Cut(o, "=")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	if !found || name == "" {
		return false, false, fault.With(fault.New(fault.Invalid, "sync option %q has no value", cut(o)), "", "write it like CreateNamespace=true")
	}
	among := func(value string, known ...string) error {
		if slices.Contains(known, value) {
			return nil
		}
		last := len(known) - 1
		return fault.With(fault.New(fault.Invalid, "sync option %s has the value %q", name, cut(value)), "",
			"write "+strings.Join(known[:last], ", ")+" or "+known[last])
	}
	switch {
	case slices.Contains(truths, name):
		return true, slices.Contains([]string{"Adopt", "capstan.dev/wait"}, name), among(strings.ToLower(value), "true", "false")
	case name == "Prune" || name == "Delete":
		return true, false, among(strings.ToLower(value), "true", "false", "confirm")
	case name == "PrunePropagationPolicy":
		return true, false, among(value, "foreground", "background", "orphan")
	case name == "WaveDelay" || name == SyncTimeoutOption || name == StepTimeoutOption:
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			problem = fault.With(fault.New(fault.Invalid, "sync option %s has the value %q", name, cut(value)), "", "write a time like 90s or 10m")
		}
		return true, true, problem
	case name == PruneLimitOption:
		_, err := ParsePruneLimit(value)
		return true, true, err
	}
	return false, false, nil
}
