package telemetry

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
)

// NewLog makes a log in the form text or json. Its level may be changed while
// it is used. Logged text cannot end its line, control a terminal or leave its
// field (SEC-L1). Lines within a trace have its id.
func NewLog(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: neutral}
	var h slog.Handler = slog.NewTextHandler(w, options)
	if format == "json" {
		h = slog.NewJSONHandler(w, options)
	}
	return slog.New(traced{h})
}

// neutral removes control and direction characters from texts, and writes
// durations in a readable form, not as a number of nanoseconds.
func neutral(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, readable(a.Value.Duration())) //nolint:sloglint // the key is that of the attribute
	}
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(Plain(v))
	case error:
		a.Value = slog.StringValue(Plain(v.Error()))
	case interface{ String() string }:
		if a.Value.Kind() == slog.KindAny {
			a.Value = slog.StringValue(Plain(v.String()))
		}
	}
	return a
}

// readable writes a duration with at most three digits behind the point.
func readable(d time.Duration) string {
	for _, unit := range [...]time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d.Abs() >= unit {
			return d.Round(unit / 1000).String()
		}
	}
	return d.String()
}

// Plain escapes characters that are not printable. Line ends stay: the handlers
// escape them, and stacks need them.
func Plain(s string) string {
	odd := func(r rune) bool { return r == utf8.RuneError || (!unicode.IsPrint(r) && r != '\n' && r != '\t') }
	if strings.IndexFunc(s, odd) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if odd(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// traced adds the trace that a line belongs to.
type traced struct{ slog.Handler }

// Handle writes one line.
func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if id := trace.ID(ctx); id != "" {
		r.AddAttrs(slog.String(logkey.Trace, id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs preserves the trace.
func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

// WithGroup preserves the trace.
func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }

// Security marks a line as a security event (SEC-L2): its severity, from 1 to
// 5, and the weakness in the CWE list.
func Security(level, cwe int) slog.Attr {
	return slog.Group("", slog.Int(logkey.Security, level), slog.Int(logkey.CWE, cwe)) //nolint:sloglint // a group without a name adds its attributes to the line
}

// NextLevel is the level after a signal to change it: debug, and after debug
// the configured level.
func NextLevel(now, configured slog.Level) slog.Level {
	if now == slog.LevelDebug {
		return configured
	}
	return slog.LevelDebug
}
