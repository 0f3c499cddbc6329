package hub

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

// PausesKey is the key of SettingsMap with the pauses of automation.
const PausesKey = "automation.pauses"

// MaxPause is how long a pause of automation may be.
const MaxPause = 30 * 24 * time.Hour

// An AutomationPause holds the automation of all applications of a tenant, or of
// those on one cluster, until a time (UX-OP-9). People may still sync.
type AutomationPause struct {
	Cluster string    `json:"cluster,omitempty"` // empty: every cluster
	Names   []string  `json:"names,omitempty"`   // by which destinations call the cluster, with its name
	Reason  string    `json:"reason"`
	By      string    `json:"by"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
}

// ParsePauses reads a value of PausesKey.
func ParsePauses(value string) ([]AutomationPause, error) {
	if value == "" {
		return nil, nil
	}
	var all []AutomationPause
	if err := json.Unmarshal([]byte(value), &all); err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "it is no JSON list of pauses"), "", "use `POST /api/v1/pauses`")
	}
	for _, p := range all {
		if p.Since.IsZero() || !p.Until.After(p.Since) || p.Until.Sub(p.Since) > MaxPause {
			return nil, fault.With(fault.New(fault.Invalid, "a pause begins and ends, and is at most 30 days long"), "", "give since and until")
		}
		if err := p.Window().Validate(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ActivePauses are the pauses of a value of PausesKey that hold at a time. A value
// that cannot be read has none; such a value is never stored.
func ActivePauses(value string, now time.Time) []AutomationPause {
	all, err := ParsePauses(value)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(p AutomationPause) bool { return now.Before(p.Since) || !now.Before(p.Until) })
}

// Window is the pause as a sync window, which hub and agents know already. It
// begins with the minute of the pause, and recurs after a year at the earliest:
// pauses are removed long before.
func (p AutomationPause) Window() syncwindow.Window {
	begin := p.Since.UTC().Truncate(time.Minute)
	clusters := []string{"*"}
	if p.Cluster != "" {
		clusters = append([]string{p.Cluster}, p.Names...)
	}
	text := []rune(fmt.Sprintf("automation is paused by %s until %s: %s", p.By, p.Until.UTC().Format(time.RFC3339), p.Reason))
	return syncwindow.Window{
		Kind: syncwindow.Deny, ManualSync: true, Clusters: clusters, Description: string(text[:min(len(text), 250)]),
		Schedule: fmt.Sprintf("%d %d %d %d *", begin.Minute(), begin.Hour(), begin.Day(), begin.Month()),
		Duration: p.Until.UTC().Sub(begin).Truncate(time.Second).String(),
	}
}
