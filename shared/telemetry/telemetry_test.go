package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/telemetry"
)

func TestLog(t *testing.T) {
	t.Parallel()
	hostile := []string{
		"x\nlevel=ERROR msg=forged", "x\r\n{\"level\":\"ERROR\"}", `x","level":"ERROR`, "\x1b[31mred\x1b[0m", "\x9b31m", "\u202eevil", "\u2028line", "\x00", "a\xffb",
	}
	for _, format := range []string{"text", "json"} {
		t.Run("SEC-L1 logged text cannot end its line, control a terminal or leave its field: "+format, func(t *testing.T) {
			t.Parallel()
			for _, text := range hostile {
				var out bytes.Buffer
				log := telemetry.NewLog(&out, format, slog.LevelInfo)
				log.With(logkey.User, text).Info("signed in", logkey.Name, text, logkey.Error, errors.New(text), slog.Group("g", logkey.Reason, text))
				line := out.String()
				if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\x1b\x00\r\u202e\u2028\u009b") {
					t.Errorf("%q became %q", text, line)
				}
				if format != "json" {
					continue
				}
				var fields map[string]any
				if err := json.Unmarshal([]byte(line), &fields); err != nil || fields["level"] != "INFO" || fields["msg"] != "signed in" {
					t.Errorf("%q became %q: %v", text, line, err)
				}
			}
		})
	}
	for format, want := range map[string]string{"text": "wait=266.478ms", "json": `"wait":"266.478ms"`} {
		t.Run("OBS-08 durations are readable: "+format, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			telemetry.NewLog(&out, format, slog.LevelInfo).Info("again", logkey.Wait, 266477960*time.Nanosecond)
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in %s", want, out.String())
			}
		})
	}
	t.Run("OBS-08 the level changes while the log is used", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		level := new(slog.LevelVar)
		log := telemetry.NewLog(&out, "text", level)
		log.Debug("one")
		level.Set(telemetry.NextLevel(level.Level(), slog.LevelWarn))
		log.Debug("two")
		level.Set(telemetry.NextLevel(level.Level(), slog.LevelWarn))
		log.Info("three")
		if s := out.String(); strings.Contains(s, "one") || !strings.Contains(s, "two") || strings.Contains(s, "three") {
			t.Errorf("%s", s)
		}
	})
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	b, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(b)
}

func TestPort(t *testing.T) {
	t.Parallel()
	m := lifecycle.NewMonitor(lifecycle.System{}, nil)
	h := telemetry.NewHealth()
	port := telemetry.Port{Registry: telemetry.NewRegistry(m), Health: h, Readers: telemetry.Readers{Everybody: true}, Log: slog.New(slog.DiscardHandler)}
	handler := port.Handler()
	for _, path := range []string{"/livez", "/readyz", "/healthz"} {
		if code, body := get(t, handler, path); code != http.StatusOK || body != "ok\n" {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
	t.Run("OBS-09 profiles are served only if enabled", func(t *testing.T) {
		if code, _ := get(t, handler, "/debug/pprof/"); code != http.StatusNotFound {
			t.Errorf("answered %d", code)
		}
		port.Profiles = true
		if code, _ := get(t, port.Handler(), "/debug/pprof/goroutine?debug=1"); code != http.StatusOK {
			t.Errorf("answered %d", code)
		}
	})
	t.Run("readiness names what is missing, without details that only the log has", func(t *testing.T) {
		h.Ready("database", func(context.Context) error {
			return fault.Wrap(fault.Offline, errors.New("dial postgres://u:hunter2@x"), "the database cannot be reached")
		})
		h.Ready("broken", func(context.Context) error { panic("hunter2") })
		code, body := get(t, handler, "/readyz")
		if code != http.StatusServiceUnavailable || !strings.Contains(body, "database: the database cannot be reached") || strings.Contains(body, "hunter2") {
			t.Errorf("%d %q", code, body)
		}
		if code, _ := get(t, handler, "/livez"); code != http.StatusOK {
			t.Error("a database that is away must not restart the process")
		}
	})
	t.Run("FT-H8 recovered panics are counted", func(t *testing.T) {
		_ = lifecycle.Safely(m.With(t.Context()), "render", func(context.Context) error { panic("x") })
		if _, body := get(t, handler, "/metrics"); !strings.Contains(body, `capstan_panics_total{where="render"} 1`) || !strings.Contains(body, "capstan_build_info{") {
			t.Errorf("%.2000s", body)
		}
	})
}

func TestReadersOfMetrics(t *testing.T) {
	t.Parallel()
	token, broken := "s3cret", error(nil)
	port := func(r telemetry.Readers) http.Handler {
		return telemetry.Port{Registry: telemetry.NewRegistry(lifecycle.NewMonitor(lifecycle.System{}, nil)), Health: telemetry.NewHealth(), Profiles: true, Readers: r, Log: slog.New(slog.DiscardHandler)}.Handler()
	}
	guarded := port(telemetry.Readers{Token: func() (string, error) { return token, broken }})
	ask := func(h http.Handler, path, from, authorization string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.RemoteAddr = from
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	const near, far = "127.0.0.1:4000", "192.0.2.7:4000"
	for name, c := range map[string]struct {
		h                         http.Handler
		path, from, authorization string
		want                      int
	}{
		"SEC-J4 the right token reads":                           {guarded, "/metrics", far, "Bearer s3cret", 200},
		"SEC-J4 no token does not":                               {guarded, "/metrics", far, "", 401},
		"SEC-J4 nor from the same machine":                       {guarded, "/metrics", near, "", 401},
		"SEC-J4 nor a wrong one":                                 {guarded, "/metrics", far, "Bearer s3cre", 401},
		"SEC-J4 nor one without its kind":                        {guarded, "/metrics", far, "s3cret", 401},
		"SEC-J4 profiles need it too":                            {guarded, "/debug/pprof/", far, "", 401},
		"SEC-J4 health is open":                                  {guarded, "/livez", far, "", 200},
		"SEC-J4 without a token the same machine alone reads":    {port(telemetry.Readers{}), "/metrics", near, "", 200},
		"SEC-J4 over IPv6 as well":                               {port(telemetry.Readers{}), "/metrics", "[::1]:4000", "", 200},
		"SEC-J4 without a token others do not":                   {port(telemetry.Readers{}), "/metrics", far, "", 403},
		"SEC-J4 who may be read by everybody has to be told so":  {port(telemetry.Readers{Everybody: true}), "/metrics", far, "", 200},
		"SEC-J4 an address that cannot be read is another one's": {port(telemetry.Readers{}), "/metrics", "@", "", 403},
	} {
		if got := ask(c.h, c.path, c.from, c.authorization); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	token = "other"
	if got := ask(guarded, "/metrics", far, "Bearer s3cret"); got != 401 {
		t.Errorf("a token that was replaced: %d", got)
	}
	broken = errors.New("gone")
	if got := ask(guarded, "/metrics", far, "Bearer other"); got != 503 {
		t.Errorf("a token that cannot be read: %d", got)
	}
}
