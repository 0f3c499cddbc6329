// Package syncwindow decides when applications may be synchronised: the
// schedules of sync windows, when each is open, and what they allow together.
// It reads no clock, and does not depend on projects or clusters: callers pass
// the time and select the windows of an application. The hub calls it before it
// starts operations, the agent before it begins, continues or heals. Everything
// is computed on the calendar of the window's own time zone, so a clock change
// does not move or skip a window.
package syncwindow

import (
	"fmt"
	"time"

	_ "time/tzdata" // time zones for machines without them

	"github.com/capstan-cd/capstan/shared/fault"
)

// The kinds of windows.
const (
	Allow = "allow"
	Deny  = "deny"
)

// Limits of a window's fields.
const (
	maxDescription = 255
	maxDuration    = 10 * 366 * 24 * time.Hour
)

// A Window is one entry of spec.syncWindows of an AppProject.
type Window struct {
	Kind         string   `json:"kind,omitempty"`
	Schedule     string   `json:"schedule,omitempty"` // cron of five fields
	Duration     string   `json:"duration,omitempty"` // as in Go, such as 90m
	Applications []string `json:"applications,omitempty"`
	Namespaces   []string `json:"namespaces,omitempty"`
	Clusters     []string `json:"clusters,omitempty"`
	ManualSync   bool     `json:"manualSync,omitempty"` // manual syncs are allowed while it closes the application
	TimeZone     string   `json:"timeZone,omitempty"`   // IANA name; empty: UTC
	AndOperator  bool     `json:"andOperator,omitempty"`
	Description  string   `json:"description,omitempty"`
	SyncOverrun  bool     `json:"syncOverrun,omitempty"` // operations that began while it was open may continue
	// SelfHeal keeps self-heal active while the window blocks new revisions of
	// the application. Argo CD has no such switch.
	SelfHeal bool `json:"selfHeal,omitempty"`
}

// Validate says what is wrong with a window.
func (w Window) Validate() error {
	if w.Kind != Allow && w.Kind != Deny {
		return fault.With(fault.New(fault.Invalid, "kind is %q", short(w.Kind)), "", "write allow or deny")
	}
	if n := len([]rune(w.Description)); n > maxDescription {
		return fault.New(fault.Invalid, "description has %d characters, and may have %d", n, maxDescription)
	}
	c, err := compile(w)
	if err != nil {
		return err
	}
	if _, ever := c.next(time.Date(2024, 1, 1, 0, 0, 0, 0, c.zone)); !ever {
		return fault.With(fault.New(fault.Invalid, "schedule %q never opens", short(w.Schedule)), "", "choose a day that there is")
	}
	return nil
}

// Warnings returns what users should know about a valid window.
func (w Window) Warnings() []string {
	var out []string
	if _, known := zone(w.TimeZone); !known {
		out = append(out, fmt.Sprintf("timeZone %q is not known, so UTC is used; write a name such as Europe/Berlin", short(w.TimeZone)))
	}
	if len(w.Applications)+len(w.Namespaces)+len(w.Clusters) == 0 {
		out = append(out, "it names no applications, namespaces or clusters, so it concerns nothing")
	}
	return out
}

// zone finds a time zone. An unknown name means UTC (WIN-04).
func zone(name string) (loc *time.Location, known bool) {
	if name == "" {
		return time.UTC, true
	}
	loc, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return time.UTC, false
	}
	return loc, true
}

// Title is how messages name a window.
func (w Window) Title() string {
	s := fmt.Sprintf("%s window %q for %s", w.Kind, w.Schedule, w.Duration)
	if w.TimeZone != "" {
		s += " in " + w.TimeZone
	}
	if w.Description != "" {
		s += " (" + w.Description + ")"
	}
	return s
}

func short(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// A compiled window is one whose schedule was parsed. It is immutable.
type compiled struct {
	Window
	cron     schedule
	duration time.Duration
	zone     *time.Location
}

func compile(w Window) (compiled, error) {
	c := compiled{Window: w}
	var err error
	if c.cron, err = parse(w.Schedule); err != nil {
		return c, err
	}
	if c.duration, err = time.ParseDuration(w.Duration); err != nil {
		return c, fault.With(fault.New(fault.Invalid, "duration %q is not a duration", short(w.Duration)), "", "write it like 30m, 8h or 1h30m")
	}
	if c.duration <= 0 || c.duration > maxDuration {
		return c, fault.With(fault.New(fault.Invalid, "duration %q is out of range", short(w.Duration)), "", "choose one above 0 and below ten years")
	}
	c.zone, _ = zone(w.TimeZone)
	return c, nil
}
