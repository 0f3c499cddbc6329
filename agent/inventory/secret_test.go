package inventory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/shared/fault"
)

// vault is a Secret in memory.
type vault struct {
	mu     sync.Mutex
	data   map[string][]byte
	writes int
	fail   error
}

func (v *vault) Read(context.Context) (map[string][]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.data == nil {
		return nil, fault.New(fault.Missing, "none")
	}
	return v.data, nil
}

func (v *vault) Write(_ context.Context, data map[string][]byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fail != nil {
		return v.fail
	}
	v.data = maps.Clone(data)
	v.writes++
	return nil
}

func openSecret(t *testing.T, v *vault) *inventory.Secret {
	t.Helper()
	s, err := inventory.OpenSecret(t.Context(), v, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSecret(t *testing.T) {
	t.Parallel()
	t.Run("many changes need few writes, at most one per second", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			v := &vault{}
			s := openSecret(t, v)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			begin := time.Now()
			for i := range 100 {
				s.SetCursor(inventory.Cursor{Incarnation: "one", Seq: uint64(i)})
				s.Raise("app", uint64(i))
				time.Sleep(30 * time.Millisecond)
			}
			if err := s.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			if most := int(time.Since(begin)/time.Second) + 1; v.writes > most {
				t.Errorf("%d writes in %s", v.writes, time.Since(begin))
			}
			n := v.writes
			s.Raise("app", 5) // not the highest: no change
			s.SetKeys(s.Keys())
			time.Sleep(time.Minute)
			if v.writes != n {
				t.Errorf("%d writes of nothing", v.writes-n)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			again := openSecret(t, v)
			if again.Cursor().Seq != 99 || again.Generation("app") != 99 || string(again.RecordKey()) != string(s.RecordKey()) {
				t.Errorf("read back: %+v, generation %d", again.Cursor(), again.Generation("app"))
			}
		})
	})
	t.Run("OBS-08 a cause is logged once and then at growing intervals, with what waits for the Secret", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			v := &vault{fail: fault.With(fault.New(fault.Missing, "its namespace does not exist"), "Secret nowhere/capstan-agent-state", "create the namespace first")}
			s, err := inventory.OpenSecret(t.Context(), v, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			time.Sleep(10 * time.Minute)
			v.mu.Lock()
			v.fail = nil
			v.mu.Unlock()
			time.Sleep(time.Minute)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			text := log.String()
			if n := strings.Count(text, "not written"); n != 4 { // after 0, 1, 3 and 7 minutes
				t.Errorf("it is told %d times in 10 minutes, want 4:\n%s", n, text)
			}
			for _, want := range []string{"create the namespace first", "the hub is not contacted", "agent secret written again"} {
				if !strings.Contains(text, want) {
					t.Errorf("nothing says %q:\n%s", want, text)
				}
			}
		})
	})
	t.Run("a failed write is retried, and the last value is stored at the end", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			v := &vault{fail: errors.New("away")}
			s := openSecret(t, v)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			s.SetLedger("op", []byte(`{"phase":"Sync"}`))
			s.SetEnded("app", "old", "Succeeded")
			time.Sleep(5 * time.Second)
			v.mu.Lock()
			v.fail = nil
			v.mu.Unlock()
			if err := s.SetIdentity(ctx, []byte("me")); err != nil {
				t.Fatal(err)
			}
			s.SetKeys(inventory.Keys{Object: []byte("k"), Mask: []byte("m")})
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			again := openSecret(t, v)
			ledger, ok := again.Ledger("op")
			ended, phase := again.Ended("app")
			if !ok || string(ledger) != `{"phase":"Sync"}` || string(again.Identity()) != "me" || string(again.Keys().Mask) != "m" || ended != "old" || phase != "Succeeded" {
				t.Errorf("read back: %s %s %s %s", ledger, again.Identity(), ended, phase)
			}
		})
	})
	t.Run("a damaged entry is named, and its value is not", func(t *testing.T) {
		t.Parallel()
		v := &vault{data: map[string][]byte{"keys": []byte("hunter2")}}
		_, err := inventory.OpenSecret(t.Context(), v, slog.New(slog.DiscardHandler))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), `"keys"`) || strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("Flush ends with its context", func(t *testing.T) {
		t.Parallel()
		s := openSecret(t, &vault{})
		s.Forget("x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Flush(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}
