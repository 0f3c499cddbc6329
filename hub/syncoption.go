package hub

import (
	"fmt"
	"slices"
	"strconv"
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
var truths = []string{ //nolint:gochecknoglobals // a table, never changed
	"Validate", "SkipDryRunOnMissingResource", "ApplyOutOfSyncOnly", "PruneLast", "Replace", "Force", "ServerSideApply",
	"ClientSideApplyMigration", "FailOnSharedResource", "RespectIgnoreDifferences", "CreateNamespace", "Adopt", "capstan.dev/wait",
}

// CheckSyncOptions refuses sync options that cannot be read. Names that nobody
// knows are kept without effect; a sentence for each comes back.
func CheckSyncOptions(options []string) (warnings []string, err error) {
	for _, o := range options {
		name, value, found := strings.Cut(o, "=")
		if !found || name == "" {
			return nil, fault.With(fault.New(fault.Invalid, "sync option %q has no value", cut(o)), "", "write it like CreateNamespace=true")
		}
		known, err := checkSyncOption(name, value)
		if err != nil {
			return nil, err
		}
		if !known {
			warnings = append(warnings, fmt.Sprintf("sync option %q is not known and has no effect", cut(name)))
		}
	}
	return warnings, nil
}

func checkSyncOption(name, value string) (known bool, err error) {
	bad := func(fix string) error {
		return fault.With(fault.New(fault.Invalid, "sync option %s has the value %q", name, cut(value)), "", fix)
	}
	switch {
	case slices.Contains(truths, name):
		if _, err := strconv.ParseBool(strings.ToLower(value)); err != nil {
			return true, bad("write true or false")
		}
	case name == "Prune" || name == "Delete":
		if !slices.Contains([]string{"true", "false", "confirm"}, strings.ToLower(value)) {
			return true, bad("write true, false or confirm")
		}
	case name == "PrunePropagationPolicy":
		if !slices.Contains([]string{"foreground", "background", "orphan"}, value) {
			return true, bad("write foreground, background or orphan")
		}
	case name == "WaveDelay" || name == SyncTimeoutOption || name == StepTimeoutOption:
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			return true, bad("write a time like 90s or 10m")
		}
	case name == PruneLimitOption:
		_, err := ParsePruneLimit(value)
		return true, err
	default:
		return false, nil
	}
	return true, nil
}
