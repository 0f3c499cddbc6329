package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// projectWindows are the verbs about the sync windows of a project (WIN-11).
func (a *app) projectWindows() *cobra.Command {
	flag := func(use, short, field string, value bool) *cobra.Command {
		return a.windowChange(use+" PROJECT ID", short, "  capstan project windows "+use+" shop 1\n  capstan project windows "+use+" shop 2", func(w map[string]any) error {
			if delete(w, field); value {
				w[field] = true
			}
			return nil
		})
	}
	return noun("windows", "Sync windows of a project: when its applications may be synchronised", []string{"window"},
		a.windowList(), a.windowAdd(), a.windowUpdate(), a.windowDelete(),
		flag("enable-manual-sync", "Let people sync while the window closes an application", "manualSync", true),
		flag("disable-manual-sync", "Do not let people sync while the window closes an application", "manualSync", false),
		flag("enable-sync-overrun", "Let operations that began in time end", "syncOverrun", true),
		flag("disable-sync-overrun", "Stop operations at their next step when the window closes", "syncOverrun", false),
		flag("enable-self-heal", "Keep healing while the window closes an application", "selfHeal", true),
		flag("disable-self-heal", "Do not heal while the window closes an application", "selfHeal", false))
}

func (a *app) windowList() *cobra.Command {
	return a.named("list PROJECT", "List sync windows, with the next opening and closing of each", "the name of the project",
		"  capstan project windows list shop\n  capstan project windows list shop -o wide",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			l, raw, err := client.Call[struct {
				All []apimodel.SyncWindow `json:"all"`
			}](api.GetProjectWindows(cmd.Context(), name))
			if err != nil {
				return err
			}
			return a.Print(raw, windowTable(l.All))
		})
}

func windowTable(all []apimodel.SyncWindow) output.Table {
	t := output.Table{
		Head: []string{"ID", "STATUS", "KIND", "SCHEDULE", "DURATION", "TIME ZONE", "OPENS", "CLOSES", "APPLICATIONS", "NAMESPACES", "CLUSTERS", "MANUAL SYNC", "OVERRUN", "SELF-HEAL", "AND", "DESCRIPTION"},
		Wide: 8,
	}
	for i, w := range all {
		status := "Inactive"
		switch {
		case w.Error != "":
			status = "Unreadable"
		case w.Active:
			status = "Active"
		}
		flags := make([]string, 0, 4)
		for _, f := range []bool{w.ManualSync, w.SyncOverrun, w.SelfHeal, w.AndOperator} {
			flags = append(flags, strconv.FormatBool(f))
		}
		lists := make([]string, 0, 3)
		for _, l := range [][]string{w.Applications, w.Namespaces, w.Clusters} {
			lists = append(lists, output.Dash(strings.Join(l, ",")))
		}
		id := strconv.Itoa(i)
		row := []string{id, status, w.Kind, w.Schedule, w.Duration, cmp.Or(w.TimeZone, "UTC"), moment(w.Opens, w.TimeZone), moment(w.Closes, w.TimeZone), lists[0], lists[1], lists[2]}
		t.Rows = append(t.Rows, append(append(row, flags...), output.Dash(w.Description)))
		t.Names = append(t.Names, id)
	}
	return t
}

// moment writes a time on the clock of a zone, if this machine knows it.
func moment(t time.Time, zone string) string {
	if t.IsZero() {
		return "-"
	}
	loc, err := time.LoadLocation(zone)
	if err != nil {
		loc = time.UTC
	}
	return t.In(loc).Format("2006-01-02 15:04 MST")
}

// windowFlags are what a window is made of.
type windowFlags struct {
	kind, schedule, duration, zone, description string
	applications, namespaces, clusters          []string
	manual, overrun, heal, and                  bool
}

func (w *windowFlags) add(f *pflag.FlagSet) {
	f.StringVarP(&w.kind, "kind", "k", "allow", "allow or deny")
	f.StringVar(&w.schedule, "schedule", "", "when it opens: minute, hour, day of the month, month, day of the week, such as '0 22 * * 1-5'")
	f.StringVar(&w.duration, "duration", "", "how long it is open, such as 8h or 90m")
	f.StringVar(&w.zone, "time-zone", "", "time zone of the schedule, such as Europe/Berlin (default: UTC)")
	f.StringVar(&w.description, "description", "", "what it is for")
	f.StringSliceVar(&w.applications, "applications", nil, "applications that it concerns; * stands for any run of characters")
	f.StringSliceVar(&w.namespaces, "namespaces", nil, "destination namespaces that it concerns")
	f.StringSliceVar(&w.clusters, "clusters", nil, "clusters that it concerns, by name or server as the applications have it")
	f.BoolVar(&w.manual, "manual-sync", false, "people may sync while it closes an application")
	f.BoolVar(&w.overrun, "sync-overrun", false, "operations that began in time may end")
	f.BoolVar(&w.heal, "self-heal", false, "self-heal continues while it closes an application")
	f.BoolVar(&w.and, "use-and-operator", false, "all of the lists given must match, not one of them")
}

// into writes the flags that were given.
func (w *windowFlags) into(out map[string]any, given *pflag.FlagSet, all bool) {
	for name, field := range map[string]struct {
		key   string
		value any
	}{
		"kind": {"kind", w.kind}, "schedule": {"schedule", w.schedule}, "duration": {"duration", w.duration}, "time-zone": {"timeZone", w.zone},
		"description": {"description", w.description}, "applications": {"applications", w.applications}, "namespaces": {"namespaces", w.namespaces},
		"clusters": {"clusters", w.clusters}, "manual-sync": {"manualSync", w.manual}, "sync-overrun": {"syncOverrun", w.overrun},
		"self-heal": {"selfHeal", w.heal}, "use-and-operator": {"andOperator", w.and},
	} {
		if given.Changed(name) || all && name == "kind" {
			out[field.key] = field.value
		}
	}
}

func (a *app) windowAdd() *cobra.Command {
	var w windowFlags
	c := a.named("add PROJECT", "Add a sync window", "the name of the project",
		"  capstan project windows add shop --kind deny --schedule '0 22 * * *' --duration 8h --time-zone Europe/Berlin --applications '*'\n  capstan project windows add shop --kind allow --schedule '0 6 * * 1-5' --duration 12h --clusters production --manual-sync", nil)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return a.changeWindows(cmd, args[0], func(all []any) ([]any, error) {
			out := map[string]any{}
			w.into(out, cmd.Flags(), true)
			return append(all, out), nil
		})
	}
	w.add(c.Flags())
	return c
}

func (a *app) windowUpdate() *cobra.Command {
	var w windowFlags
	var given *pflag.FlagSet
	c := a.windowChange("update PROJECT ID", "Change a sync window; what is not given stays",
		"  capstan project windows update shop 0 --duration 10h\n  capstan project windows update shop 1 --applications 'web-*,api'", func(out map[string]any) error {
			w.into(out, given, false)
			return nil
		})
	given = c.Flags()
	w.add(given)
	return c
}

// windowChange makes a verb that changes one window.
func (a *app) windowChange(use, short, example string, change func(map[string]any) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Example: example, Args: usage.Exactly("the name of the project", "the id of a window"), RunE: func(cmd *cobra.Command, args []string) error {
		return a.changeWindows(cmd, args[0], func(all []any) ([]any, error) {
			i, err := windowIndex(args[1], len(all))
			if err != nil {
				return nil, err
			}
			w, ok := all[i].(map[string]any)
			if !ok {
				return nil, usage.Errorf("window %d of the project is no object; delete it", i)
			}
			return all, change(w)
		})
	}}
}

func (a *app) windowDelete() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete PROJECT ID", Short: "Delete a sync window", Example: "  capstan project windows delete shop 0\n  capstan project windows delete shop 0 --yes",
		Args: usage.Exactly("the name of the project", "the id of a window"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(yes, "Delete window "+args[1]+" of project "+args[0]+"?"); err != nil {
				return err
			}
			return a.changeWindows(cmd, args[0], func(all []any) ([]any, error) {
				i, err := windowIndex(args[1], len(all))
				if err != nil {
					return nil, err
				}
				return append(all[:i:i], all[i+1:]...), nil
			})
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func windowIndex(id string, n int) (int, error) {
	i, err := strconv.Atoi(id)
	if err != nil || i < 0 || i >= n {
		return 0, usage.Errorf("there is no window %q; the project has %d, numbered from 0 as \"capstan project windows list\" shows", id, n)
	}
	return i, nil
}

// changeWindows reads a project, changes its windows and writes it back, unless
// it was changed in between.
func (a *app) changeWindows(cmd *cobra.Command, name string, change func([]any) ([]any, error)) error {
	api, err := a.client()
	if err != nil {
		return err
	}
	res, err := api.GetProject(cmd.Context(), name)
	var tag string
	if err == nil {
		tag = res.Header.Get("ETag")
	}
	p, _, err := client.Call[apimodel.AppProject](res, err)
	if err != nil {
		return err
	}
	spec := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(p.Spec))
	d.UseNumber() // what is not about windows comes back as it was
	if err := d.Decode(&spec); err != nil {
		return fmt.Errorf("the spec of project %q cannot be read: %w", name, err)
	}
	all, _ := spec["syncWindows"].([]any)
	if all, err = change(all); err != nil {
		return err
	}
	if spec["syncWindows"] = all; len(all) == 0 {
		delete(spec, "syncWindows")
	}
	if p.Spec, err = json.Marshal(spec); err != nil {
		return err
	}
	return a.putWindows(cmd, api, p, tag)
}

func (a *app) putWindows(cmd *cobra.Command, api *client.Client, p apimodel.AppProject, tag string) error {
	name := p.Metadata.Name
	stored, _, err := client.Call[apimodel.AppProject](api.UpdateProject(cmd.Context(), name, apimodel.UpdateProjectParams{IfMatch: tag}, p))
	if err != nil {
		return err
	}
	a.Warn(stored.Warnings)
	l, raw, err := client.Call[struct {
		All []apimodel.SyncWindow `json:"all"`
	}](api.GetProjectWindows(cmd.Context(), name))
	if err != nil {
		return err
	}
	return a.Print(raw, windowTable(l.All))
}
