package live

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// logFlags are the flags of app logs.
type logFlags struct {
	apimodel.GetApplicationLogsParams

	since                time.Duration
	sinceTime, untilTime string
	prefix               bool
}

func (a commands) logs() *cobra.Command {
	var f logFlags
	c := a.One("logs NAME", "Show the logs of an application's containers, merged by time",
		"  capstan app logs shop\n  capstan app logs shop --kind Deployment --resource-name web --follow --tail 100\n"+
			"  capstan app logs shop --pod web-5d4f --container app --previous\n  capstan app logs shop --since 10m --filter error",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			if err := f.read(); err != nil {
				return err
			}
			res, err := api.GetApplicationLogs(cmd.Context(), namespace, name, f.GetApplicationLogsParams)
			if err != nil || res.StatusCode >= http.StatusMultipleChoices {
				_, err := client.Read(res, err)
				return err
			}
			defer res.Body.Close()
			return a.show(cmd.Context(), res.Body, f)
		})
	flags := c.Flags()
	flags.StringVar(&f.PodName, "pod", "", "only this pod")
	flags.StringVarP(&f.Container, "container", "c", "", "only this container")
	flags.StringVar(&f.Group, "group", "", "group of the object whose pods are meant")
	flags.StringVar(&f.Kind, "kind", "", "kind of the object whose pods are meant")
	flags.StringVar(&f.ResourceName, "resource-name", "", "name of the object whose pods are meant")
	flags.StringVar(&f.ResourceName, "name", "", "the same as --resource-name")
	flags.StringVar(&f.ResourceNamespace, "namespace", "", "namespace of the object or pod")
	flags.BoolVarP(&f.Follow, "follow", "f", false, "do not end with the last line")
	flags.BoolVarP(&f.Previous, "previous", "p", false, "of the instances before the current ones")
	flags.IntVar(&f.TailLines, "tail", 0, "only the last lines of each container (default: all)")
	flags.DurationVar(&f.since, "since", 0, "only lines that are not older than this, such as 10m")
	flags.IntVar(&f.SinceSeconds, "since-seconds", 0, "the same in seconds")
	flags.StringVar(&f.sinceTime, "since-time", "", "only lines from then on, such as 2026-01-31T12:00:00Z")
	flags.StringVar(&f.untilTime, "until-time", "", "only lines up to then")
	flags.StringVar(&f.Filter, "filter", "", "only lines that contain this text; with a leading ! those that do not")
	flags.BoolVarP(&f.MatchCase, "match-case", "m", false, "the filter distinguishes upper and lower case")
	flags.BoolVar(&f.Timestamps, "timestamps", false, "begin each line with its time")
	flags.BoolVar(&f.prefix, "prefix", true, "begin each line with pod and container, if there are several")
	_ = flags.MarkHidden("name")
	return c
}

// read checks the flags.
func (f *logFlags) read() error {
	if f.TailLines < 0 {
		return usage.Errorf("--tail is negative")
	}
	if f.since != 0 {
		if f.since < time.Second || f.SinceSeconds != 0 {
			return usage.Errorf("--since is less than a second, or stands beside --since-seconds")
		}
		f.SinceSeconds = int(f.since / time.Second)
	}
	for flag, v := range map[string]struct {
		text string
		to   *time.Time
	}{"--since-time": {f.sinceTime, &f.SinceTime}, "--until-time": {f.untilTime, &f.UntilTime}} {
		if v.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, v.text)
		if err != nil {
			return usage.Errorf("%s %q is no time; write it like 2026-01-31T12:00:00Z", flag, v.text)
		}
		*v.to = at
	}
	return nil
}

// show prints entries as they come.
func (a commands) show(ctx context.Context, from io.Reader, f logFlags) error {
	in := json.NewDecoder(from)
	s := shown{commands: a, flags: f, palette: output.PaletteOf(a.Out), terminal: output.IsTerminal(a.Out)}
	for {
		var e apimodel.LogEntry
		err := in.Decode(&e)
		switch {
		case ctx.Err() != nil:
			return nil // interrupted, which is how following ends
		case errors.Is(err, io.EOF):
			return client.Unreachable(errors.New("the hub has broken off the stream"))
		case err != nil:
			return client.Unreachable(err)
		case e.Last && e.Notice != "":
			return errors.New(e.Notice)
		case e.Last:
			return nil
		}
		if err := s.print(e); err != nil {
			return err
		}
	}
}

// shown is what is known of the lines that were printed.
type shown struct {
	commands
	flags   logFlags
	from    string // container of the last line
	several bool   // there are lines of more than one
	partial bool   // the last line was not complete

	palette  output.Palette
	terminal bool // a person reads it
}

func (s *shown) print(e apimodel.LogEntry) error {
	if s.Format == "json" {
		return json.NewEncoder(s.Out).Encode(e)
	}
	from := e.PodName + " " + e.Container
	if e.Notice != "" {
		s.Note("capstan: pod %s, container %s: %s", e.PodName, e.Container, e.Notice)
		return nil
	}
	if e.Skipped > 0 {
		s.Note("capstan: pod %s, container %s: %d lines are missing, because they were not read fast enough", e.PodName, e.Container, e.Skipped)
	}
	var b strings.Builder
	if s.partial && s.from != from {
		b.WriteString("\n")
		s.partial = false
	}
	if s.several = s.several || s.from != "" && s.from != from; !s.partial {
		if s.flags.prefix && (s.several || !s.flags.single()) {
			b.WriteString(s.palette.Source(from, "["+from+"]") + " ")
		}
		if s.flags.Timestamps && !e.TimeStamp.IsZero() {
			b.WriteString(e.TimeStamp.UTC().Format(time.RFC3339Nano) + " ")
		}
	}
	if s.terminal {
		e.Content = output.Plain(e.Content)
	}
	b.WriteString(e.Content)
	if s.from, s.partial = from, e.Partial; !e.Partial {
		b.WriteString("\n")
	}
	_, err := io.WriteString(s.Out, b.String())
	return err
}

// single reports whether the flags name one container.
func (f *logFlags) single() bool { return f.Container != "" && (f.PodName != "" || f.Kind == "Pod") }
