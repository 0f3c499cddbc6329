package syncwindow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

const layout = "2006-01-02 15:04 -0700"

func at(t testing.TB, text string) time.Time {
	t.Helper()
	v, err := time.Parse(layout, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func deny(schedule, duration, zone string) syncwindow.Window {
	return syncwindow.Window{Kind: syncwindow.Deny, Schedule: schedule, Duration: duration, TimeZone: zone, Applications: []string{"*"}}
}

func allow(schedule, duration, zone string) syncwindow.Window {
	w := deny(schedule, duration, zone)
	w.Kind = syncwindow.Allow
	return w
}

// TestCalendar is the table of cases around changes of the clocks, ends of
// months and leap days. Berlin goes from 02:00 to 03:00 on 2026-03-29 and from
// 03:00 back to 02:00 on 2026-10-25.
func TestCalendar(t *testing.T) {
	t.Parallel()
	const berlin = "Europe/Berlin"
	cases := map[string]struct {
		w             syncwindow.Window
		now           string
		active        bool
		opens, closes string // "": never
	}{
		"WIN-03 before the hit":                              {deny("0 22 * * *", "8h", ""), "2026-05-01 21:59 +0000", false, "2026-05-01 22:00 +0000", ""},
		"WIN-03 at the hit":                                  {deny("0 22 * * *", "8h", ""), "2026-05-01 22:00 +0000", true, "2026-05-02 22:00 +0000", "2026-05-02 06:00 +0000"},
		"WIN-03 until the duration is over":                  {deny("0 22 * * *", "8h", ""), "2026-05-02 05:59 +0000", true, "2026-05-02 22:00 +0000", "2026-05-02 06:00 +0000"},
		"WIN-03 at its end":                                  {deny("0 22 * * *", "8h", ""), "2026-05-02 06:00 +0000", false, "2026-05-02 22:00 +0000", ""},
		"WIN-03 hits that overlap are one":                   {allow("0 6-22 * * 1-5", "16h", "Asia/Tokyo"), "2026-05-13 12:00 +0900", true, "2026-05-18 06:00 +0900", "2026-05-16 14:00 +0900"},
		"WIN-03 on the weekend it waits for Monday":          {allow("0 6-22 * * 1-5", "16h", "Asia/Tokyo"), "2026-05-16 14:00 +0900", false, "2026-05-18 06:00 +0900", ""},
		"WIN-03 one that follows on itself does not end":     {deny("0 0 * * *", "24h", berlin), "2026-05-02 05:59 +0000", true, "", ""},
		"WIN-03 longer than its period":                      {deny("0 0 1 * *", "1000h", ""), "2026-05-02 05:59 +0000", true, "", ""},
		"WIN-03 each minute of working hours":                {allow("* 8-17 * * *", "1m", ""), "2026-05-02 08:30 +0000", true, "2026-05-03 08:00 +0000", "2026-05-02 18:00 +0000"},
		"WIN-03 the 31st skips short months":                 {deny("0 12 31 * *", "1h", ""), "2026-04-01 00:00 +0000", false, "2026-05-31 12:00 +0000", ""},
		"WIN-03 over the end of a year":                      {deny("0 20 31 12 *", "12h", ""), "2027-01-01 07:59 +0000", true, "2027-12-31 20:00 +0000", "2027-01-01 08:00 +0000"},
		"WIN-03 leap day":                                    {deny("0 0 29 2 *", "24h", ""), "2026-03-01 00:00 +0000", false, "2028-02-29 00:00 +0000", ""},
		"WIN-03 leap day when a century is in between":       {deny("0 0 29 2 *", "24h", ""), "2097-01-01 00:00 +0000", false, "2104-02-29 00:00 +0000", ""},
		"WIN-03 28 February plus a day in a leap year":       {deny("0 0 28 2 *", "24h", ""), "2028-02-28 23:59 +0000", true, "2029-02-28 00:00 +0000", "2028-02-29 00:00 +0000"},
		"WIN-04 summer time":                                 {deny("0 9 * * *", "1h", berlin), "2026-07-01 07:30 +0000", true, "2026-07-02 07:00 +0000", "2026-07-01 08:00 +0000"},
		"WIN-04 winter time":                                 {deny("0 9 * * *", "1h", berlin), "2026-12-01 08:30 +0000", true, "2026-12-02 08:00 +0000", "2026-12-01 09:00 +0000"},
		"WIN-04 a bad name is UTC":                           {deny("0 9 * * *", "1h", "Moon/Base"), "2026-12-01 09:30 +0000", true, "2026-12-02 09:00 +0000", "2026-12-01 10:00 +0000"},
		"FT-C2 the night of spring ends at the same clock":   {deny("0 22 * * *", "8h", berlin), "2026-03-29 01:30 +0100", true, "2026-03-29 22:00 +0200", "2026-03-29 06:00 +0200"},
		"FT-C2 the night of autumn ends at the same clock":   {deny("0 22 * * *", "8h", berlin), "2026-10-25 02:30 +0100", true, "2026-10-25 22:00 +0100", "2026-10-25 06:00 +0100"},
		"FT-C2 the day before spring sees the new offset":    {deny("0 9 * * *", "1h", berlin), "2026-03-28 12:00 +0100", false, "2026-03-29 09:00 +0200", ""},
		"FT-C2 an hour that is left out opens at the change": {deny("30 2 * * *", "2h", berlin), "2026-03-29 00:00 +0100", false, "2026-03-29 03:00 +0200", ""},
		"FT-C2 and lasts as long":                            {deny("30 2 * * *", "2h", berlin), "2026-03-29 04:59 +0200", true, "2026-03-30 02:30 +0200", "2026-03-29 05:00 +0200"},
		"FT-C2 an end that is left out is the change":        {deny("0 1 * * *", "90m", berlin), "2026-03-29 01:30 +0100", true, "2026-03-30 01:00 +0200", "2026-03-29 03:00 +0200"},
		"FT-C2 an hour that is repeated counts once":         {deny("30 2 * * *", "15m", berlin), "2026-10-25 02:40 +0200", true, "2026-10-26 02:30 +0100", "2026-10-25 02:45 +0200"},
		"FT-C2 and not the second time":                      {deny("30 2 * * *", "15m", berlin), "2026-10-25 02:40 +0100", false, "2026-10-26 02:30 +0100", ""},
		"FT-C2 a window around it has both hours":            {deny("30 2 * * *", "1h", berlin), "2026-10-25 02:40 +0100", true, "2026-10-26 02:30 +0100", "2026-10-25 03:30 +0100"},
		"FT-C2 every hour comes both times":                  {deny("30 * * * *", "15m", berlin), "2026-10-25 02:40 +0100", true, "2026-10-25 03:30 +0100", "2026-10-25 02:45 +0100"},
		"FT-C2 half an hour of Lord Howe":                    {deny("15 2 * * *", "1h", "Australia/Lord_Howe"), "2026-10-04 01:50 +1030", false, "2026-10-04 02:30 +1100", ""},
		"FT-C2 a day that Samoa left out":                    {deny("0 12 30 12 *", "1h", "Pacific/Apia"), "2011-12-29 20:00 -1000", false, "2011-12-31 00:00 +1400", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := at(t, c.now)
			got := syncwindow.States([]syncwindow.Window{c.w}, now)[0]
			show := func(p *time.Time, like string) string {
				if p == nil {
					return ""
				}
				if like == "" {
					return p.Format(layout)
				}
				return p.In(at(t, like).Location()).Format(layout)
			}
			want := []any{c.active, c.opens, c.closes}
			if diff := cmp.Diff(want, []any{got.Active, show(got.Opens, c.opens), show(got.Closes, c.closes)}); diff != "" {
				t.Errorf("active, opens, closes (-want +got):\n%s", diff)
			}
		})
	}
}

// Around every change of the clocks, a window agrees with the clock on the wall.
func TestCalendarProperties(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Santiago", "Africa/Casablanca", "Pacific/Chatham"}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(rt, "zone")
		loc, err := time.LoadLocation(name)
		if err != nil {
			rt.Fatal(err)
		}
		w := deny(rapid.SampledFrom([]string{"0 0 * * *", "30 2 * * *", "0 22 * * 5", "15 1 1 * *", "0 */6 * * *", "45 23 * 3,10 SUN"}).Draw(rt, "schedule"),
			rapid.SampledFrom([]string{"30m", "1h", "8h", "24h", "49h"}).Draw(rt, "duration"), name)
		now := time.Unix(rapid.Int64Range(1_700_000_000, 1_900_000_000).Draw(rt, "now"), 0).In(loc)
		s := syncwindow.States([]syncwindow.Window{w}, now)[0]
		probe := func(t time.Time) bool { return syncwindow.States([]syncwindow.Window{w}, t)[0].Active }
		if s.Closes != nil && (!s.Active || !s.Closes.After(now) || probe(*s.Closes) || !probe(s.Closes.Add(-time.Second))) {
			rt.Fatalf("%v closes at %v", now, s.Closes)
		}
		if s.Opens != nil && (!s.Opens.After(now) || !probe(*s.Opens) || probe(s.Opens.Add(-time.Second))) {
			rt.Fatalf("%v opens at %v", now, s.Opens)
		}
	})
}

func TestSet(t *testing.T) {
	t.Parallel()
	night, day, frozen, always := deny("0 22 * * *", "8h", ""), allow("0 8 * * *", "8h", ""), deny("0 0 * * *", "24h", ""), allow("* * * * *", "1h", "")
	with := func(w syncwindow.Window, change func(*syncwindow.Window)) syncwindow.Window { change(&w); return w }
	byHand := func(w *syncwindow.Window) { w.ManualSync = true }
	overrun := func(w *syncwindow.Window) { w.SyncOverrun = true }
	healing := func(w *syncwindow.Window) { w.SelfHeal = true }
	type answers struct{ Automated, Manual, Heal, Goes bool }
	cases := map[string]struct {
		windows []syncwindow.Window
		hour    int
		want    answers
	}{
		"WIN-05 no windows":                          {nil, 3, answers{true, true, true, true}},
		"WIN-06 an active deny":                      {[]syncwindow.Window{night}, 3, answers{}},
		"WIN-06 an inactive deny":                    {[]syncwindow.Window{night}, 12, answers{true, true, true, true}},
		"WIN-06 deny wins over allow":                {[]syncwindow.Window{night, always}, 3, answers{}},
		"WIN-06 manualSync of the deny":              {[]syncwindow.Window{with(night, byHand)}, 3, answers{Manual: true}},
		"WIN-06 every active deny needs manualSync":  {[]syncwindow.Window{with(night, byHand), frozen}, 3, answers{}},
		"WIN-06 one that is not active does not":     {[]syncwindow.Window{with(frozen, byHand), night}, 12, answers{Manual: true}},
		"WIN-07 inside of an allow":                  {[]syncwindow.Window{day}, 12, answers{true, true, true, true}},
		"WIN-07 outside of all allows":               {[]syncwindow.Window{day}, 3, answers{}},
		"WIN-07 one active allow is enough":          {[]syncwindow.Window{day, always}, 3, answers{true, true, true, true}},
		"WIN-07 manualSync of the allow":             {[]syncwindow.Window{with(day, byHand)}, 3, answers{Manual: true}},
		"WIN-07 every inactive allow needs it":       {[]syncwindow.Window{with(day, byHand), allow("0 9 * * *", "1h", "")}, 3, answers{}},
		"WIN-07 with a deny its own switch counts":   {[]syncwindow.Window{with(day, byHand), night}, 3, answers{}},
		"WIN-08 overrun of a deny":                   {[]syncwindow.Window{with(night, overrun)}, 3, answers{Goes: true}},
		"WIN-08 all active denies need it":           {[]syncwindow.Window{with(night, overrun), frozen}, 3, answers{}},
		"WIN-08 overrun of an allow that has closed": {[]syncwindow.Window{with(day, overrun)}, 17, answers{Goes: true}},
		"WIN-08 all inactive allows need it":         {[]syncwindow.Window{with(day, overrun), allow("0 9 * * *", "1h", "")}, 17, answers{}},
		"WIN-09 self-heal waits like automation":     {[]syncwindow.Window{with(frozen, byHand)}, 3, answers{Manual: true}},
		"WIN-09 selfHeal lets it go on":              {[]syncwindow.Window{with(frozen, healing)}, 3, answers{Heal: true}},
		"FT-C2 one that cannot be read closes":       {[]syncwindow.Window{deny("sometimes", "8h", "")}, 3, answers{}},
		"FT-C2 so does an unknown kind":              {[]syncwindow.Window{with(always, func(w *syncwindow.Window) { w.Kind = "maybe" })}, 3, answers{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, now := syncwindow.New(c.windows), time.Date(2026, 5, 4, c.hour, 0, 0, 0, time.UTC)
			got := answers{s.Allows(syncwindow.Automated, now), s.Allows(syncwindow.Manual, now), s.Allows(syncwindow.Heal, now), s.Continues(syncwindow.Automated, now)}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if why := s.Why(syncwindow.Automated, now); (why == "") != got.Automated {
				t.Errorf("why: %q", why)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	start := at(t, "2026-05-04 12:00 +0000")
	s := syncwindow.New([]syncwindow.Window{deny("0 22 * * *", "8h", ""), allow("0 5 * * *", "20h", "")})
	t.Run("WIN-09 the opening is when no window closes the application any more", func(t *testing.T) {
		for now, want := range map[string]string{
			"2026-05-04 12:00 +0000": "2026-05-04 12:00 +0000", "2026-05-04 23:00 +0000": "2026-05-05 06:00 +0000", "2026-05-05 03:00 +0000": "2026-05-05 06:00 +0000",
		} {
			if got, ok := s.Opening(syncwindow.Automated, at(t, now)); !ok || !got.Equal(at(t, want)) {
				t.Errorf("at %s it opens at %v, want %s", now, got, want)
			}
		}
		if closes, ok := s.NextChange(syncwindow.Automated, start); !ok || !closes.Equal(at(t, "2026-05-04 22:00 +0000")) {
			t.Errorf("closes at %v", closes)
		}
	})
	t.Run("WIN-09 the message names the window and the next opening in its zone", func(t *testing.T) {
		w := deny("0 22 * * *", "8h", "Europe/Berlin")
		w.Description = "night's rest"
		got := syncwindow.New([]syncwindow.Window{w}).Why(syncwindow.Automated, at(t, "2026-05-04 23:00 +0000"))
		want := `closed by the deny window "0 22 * * *" for 8h in Europe/Berlin (night's rest); next opening 2026-05-05 06:00 CEST`
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		got = syncwindow.New([]syncwindow.Window{deny("0 0 * * *", "24h", "")}).Why(syncwindow.Automated, start)
		if !strings.HasSuffix(got, "no opening is in sight") {
			t.Error(got)
		}
	})
	t.Run("WIN-09 a deadline moves by the time of the wait", func(t *testing.T) {
		got, ok := s.Extend(syncwindow.Automated, at(t, "2026-05-04 21:50 +0000"), at(t, "2026-05-04 22:20 +0000"))
		if !ok || !got.Equal(at(t, "2026-05-05 06:20 +0000")) {
			t.Errorf("%v %v", got, ok)
		}
		got, ok = syncwindow.Set{}.Extend(syncwindow.Manual, start, start.Add(time.Hour))
		if !ok || !got.Equal(start.Add(time.Hour)) {
			t.Errorf("without windows: %v %v", got, ok)
		}
		if _, ok = syncwindow.New([]syncwindow.Window{deny("0 0 * * *", "24h", "")}).Extend(syncwindow.Automated, start, start.Add(time.Hour)); ok {
			t.Error("an end is in sight where none is")
		}
	})
	t.Run("WIN-08 next is any change, also of overrun", func(t *testing.T) {
		w := deny("0 22 * * *", "1h", "")
		w.ManualSync, w.SelfHeal, w.SyncOverrun = true, true, true
		if got, ok := syncwindow.New([]syncwindow.Window{w}).Next(start); !ok || !got.Equal(at(t, "2026-05-04 22:00 +0000")) {
			t.Errorf("%v %v", got, ok)
		}
	})
}

// Whatever the windows are: nothing turns before Turn says so, and Extend
// gives an operation exactly its time.
func TestChangeProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var ws []syncwindow.Window
		for range rapid.IntRange(1, 3).Draw(rt, "n") {
			w := deny(rapid.SampledFrom([]string{"0 0 * * *", "30 2 * * *", "*/40 9-17 * * 1-5", "0 12 * * SAT"}).Draw(rt, "schedule"),
				rapid.SampledFrom([]string{"10m", "1h", "9h"}).Draw(rt, "duration"), rapid.SampledFrom([]string{"", "Europe/Berlin"}).Draw(rt, "zone"))
			if rapid.Bool().Draw(rt, "allow") {
				w.Kind = syncwindow.Allow
			}
			ws = append(ws, w)
		}
		s := syncwindow.New(ws)
		now := time.Unix(60*rapid.Int64Range(1_790_000_000/60, 1_793_000_000/60).Draw(rt, "now"), 0)
		at, ok := s.NextChange(syncwindow.Automated, now)
		if !ok {
			return
		}
		open := s.Allows(syncwindow.Automated, now)
		for probe := now; probe.Before(at) && probe.Sub(now) < 3*24*time.Hour; probe = probe.Add(7 * time.Minute) {
			if s.Allows(syncwindow.Automated, probe) != open {
				rt.Fatalf("it turned at %v, before %v", probe, at)
			}
		}
		if s.Allows(syncwindow.Automated, at) == open {
			rt.Fatalf("it did not turn at %v", at)
		}
		deadline, ok := s.Extend(syncwindow.Automated, now, now.Add(30*time.Minute))
		if !ok {
			return
		}
		var ran time.Duration
		for probe := now; probe.Before(deadline); probe = probe.Add(time.Minute) {
			if s.Continues(syncwindow.Automated, probe) {
				ran += time.Minute
			}
		}
		if ran != 30*time.Minute {
			rt.Fatalf("it may run %v until %v", ran, deadline)
		}
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for schedule, want := range map[string]string{
		"0 22 * * *": "", "*/15 0-5,22,23 1,15 JAN-mar mon-FRI": "", "0 6-22 * * 1-5": "", "0 0 * * 7": "", "5/20 * ? * ?": "", "@daily": "", "@Weekly": "", "  0 0 * * *  ": "",
		"": "0 fields", "* * * *": "4 fields", "* * * * * *": "6 fields", "60 * * * *": `"60" is no minute`, "* 24 * * *": "no hour", "* * 0 * *": "no day of the month",
		"* * * 13 *": "no month", "* * * * 8": "no day of the week", "*/0 * * * *": "step", "*/x * * * *": "step", "5-1 * * * *": "ends before it begins",
		"a * * * *": "no minute", "-1 * * * *": "no minute", "1-2-3 * * * *": "no minute", ", * * * *": "no minute", "+1 * * * *": "no minute",
		"@every 1h": "2 fields", "TZ=UTC 0 0 * * *": "names a time zone", "0 0 30 2 *": "never opens", "999999999999999999999 * * * *": "no minute",
	} {
		t.Run("WIN-01 schedule "+schedule, func(t *testing.T) {
			t.Parallel()
			err := deny(schedule, "1h", "").Validate()
			if want == "" && err != nil {
				t.Fatal(err)
			}
			if want != "" {
				f, ok := fault.As(err)
				if !ok || f.Kind != fault.Invalid || !strings.Contains(f.Cause, want) || f.Fix == "" {
					t.Fatalf("got %v, want %q with a fix", err, want)
				}
			}
		})
	}
	bad := map[string]syncwindow.Window{
		"kind": {Schedule: "0 0 * * *", Duration: "1h"}, "duration": deny("0 0 * * *", "a while", ""), "out of range": deny("0 0 * * *", "0s", ""),
		"below ten": deny("0 0 * * *", "999999h", ""), "description": {Kind: "deny", Schedule: "0 0 * * *", Duration: "1h", Description: strings.Repeat("x", 256)},
	}
	for name, w := range bad {
		t.Run("WIN-01 bad "+name, func(t *testing.T) {
			t.Parallel()
			if err := w.Validate(); fault.KindOf(err) != fault.Invalid {
				t.Error(err)
			}
		})
	}
	t.Run("WIN-04 an unknown zone and an empty list are warned of", func(t *testing.T) {
		t.Parallel()
		w := syncwindow.Window{Kind: "deny", Schedule: "0 0 * * *", Duration: "1h", TimeZone: "Europe/Berlim"}
		if got := w.Warnings(); len(got) != 2 || !strings.Contains(got[0], "Europe/Berlim") || w.Validate() != nil {
			t.Error(got)
		}
		if got := deny("0 0 * * *", "1h", "Europe/Berlin").Warnings(); got != nil {
			t.Error(got)
		}
	})
	t.Run("WIN-01 with both day fields, one has to match", func(t *testing.T) {
		t.Parallel()
		w := deny("0 0 13 * FRI", "1h", "")
		for day, want := range map[int]bool{1: true, 2: false, 13: true, 8: true} { // May 2026: the 1st is a Friday
			if got := syncwindow.States([]syncwindow.Window{w}, time.Date(2026, 5, day, 0, 30, 0, 0, time.UTC))[0].Active; got != want {
				t.Errorf("day %d: %v", day, got)
			}
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		_ = deny(rapid.String().Draw(rt, "schedule"), rapid.String().Draw(rt, "duration"), rapid.String().Draw(rt, "zone")).Validate()
		fields := rapid.SliceOfN(rapid.StringMatching(`[0-9*/,?a-z-]{1,6}`), 5, 5).Draw(rt, "fields")
		_ = deny(strings.Join(fields, " "), "1h", "").Validate()
	})
}
