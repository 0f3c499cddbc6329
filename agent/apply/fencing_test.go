package apply

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
)

// leases is an API server that knows one Lease.
type leases struct {
	dynamic.Interface
	dynamic.NamespaceableResourceInterface

	held    *unstructured.Unstructured
	version int
	away    bool
}

func (l *leases) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return l
}
func (l *leases) Namespace(string) dynamic.ResourceInterface { return l }

func (l *leases) Get(context.Context, string, metav1.GetOptions, ...string) (*unstructured.Unstructured, error) {
	switch {
	case l.away:
		return nil, apierrors.NewServiceUnavailable("away")
	case l.held == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, LeaseName)
	}
	return l.held.DeepCopy(), nil
}

func (l *leases) write(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if l.away {
		return nil, apierrors.NewServiceUnavailable("away")
	}
	if l.held != nil && l.held.GetResourceVersion() != o.GetResourceVersion() {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict}}
	}
	l.version++
	l.held = o.DeepCopy()
	l.held.SetResourceVersion(fmt.Sprint(l.version))
	return l.held, nil
}

func (l *leases) Create(_ context.Context, o *unstructured.Unstructured, _ metav1.CreateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return l.write(o)
}

func (l *leases) Update(_ context.Context, o *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string) (*unstructured.Unstructured, error) {
	return l.write(o)
}

func TestLeaseLossIsLoggedOnce(t *testing.T) {
	t.Parallel()
	t.Run("OBS-08 why the lease is not held is logged once and then at growing intervals", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			l := NewLease(&leases{away: true}, "n", "me", lifecycle.System{}, slog.New(slog.NewTextHandler(&log, nil)))
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- l.Run(ctx) }()
			time.Sleep(10 * time.Minute)
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "lease not held"); n != 4 { // after 0, 1, 3 and 7 minutes
				t.Errorf("it is told %d times in 10 minutes, want 4:\n%s", n, log.String())
			}
		})
	})
}

func TestLease(t *testing.T) {
	t.Parallel()
	server := &leases{}
	clock := runtest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	hold := func(name string) *Lease {
		return NewLease(server, "n", name, clock, slog.New(slog.DiscardHandler))
	}
	first, second := hold("first"), hold("second")
	must := func(l *Lease, want bool) {
		t.Helper()
		if err := l.Check(); (err == nil) != want {
			t.Errorf("%s may write: %v (%v), want %v", l.holder, err == nil, err, want)
		}
	}
	renew := func(l *Lease) error { t.Helper(); return l.renew(t.Context()) }

	must(first, false)
	if err := renew(first); err != nil {
		t.Fatal(err)
	}
	must(first, true)
	t.Run("FT-A2 a second holder is refused while the first renews", func(t *testing.T) {
		for range 10 {
			if err := renew(second); fault.KindOf(err) != fault.Conflict {
				t.Fatalf("error %v", err)
			}
			clock.Advance(leaseRenew)
			if err := renew(first); err != nil {
				t.Fatal(err)
			}
		}
		must(second, false)
	})
	t.Run("writes end one request timeout before the lease does", func(t *testing.T) {
		server.away = true
		clock.Advance(leaseFor - requestLimit - time.Millisecond)
		must(first, true)
		clock.Advance(time.Millisecond)
		must(first, false)
		if renew(first) == nil {
			t.Error("renewed without a server")
		}
		server.away = false
	})
	t.Run("a successor waits for lease and request timeout, by its own clock", func(t *testing.T) {
		if err := renew(second); fault.KindOf(err) != fault.Conflict {
			t.Fatalf("error %v", err)
		}
		clock.Advance(leaseFor + requestLimit - time.Millisecond)
		if err := renew(second); fault.KindOf(err) != fault.Conflict {
			t.Fatalf("error %v", err)
		}
		clock.Advance(time.Millisecond)
		if err := renew(second); err != nil {
			t.Fatal(err)
		}
		must(second, true)
		if renew(first) == nil {
			t.Error("the first one took it back")
		}
		must(first, false)
	})
	t.Run("an agent with the same directory continues at once, and so does a successor after an orderly end", func(t *testing.T) {
		restarted := hold("second")
		if err := renew(restarted); err != nil {
			t.Fatal(err)
		}
		must(restarted, true)
		restarted.release(t.Context())
		must(restarted, false)
		if err := renew(first); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLeaseOfARestoredCluster(t *testing.T) {
	t.Parallel()
	server := &leases{}
	clock := runtest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	l := NewLease(server, "n", "first", clock, slog.New(slog.DiscardHandler))
	alarms := 0
	l.Undone(func(context.Context) { alarms++ })
	renew := func() {
		t.Helper()
		clock.Advance(leaseRenew)
		if err := l.renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(t *testing.T, want int) {
		t.Helper()
		if renew(); alarms != want {
			t.Errorf("%d alarms, want %d", alarms, want)
		}
		if renew(); alarms != want {
			t.Errorf("%d alarms after another renewal, want %d", alarms, want)
		}
	}
	t.Run("FT-K6 no alarm during normal renewals", func(t *testing.T) { expect(t, 0) })
	t.Run("FT-K6 no alarm after a write whose response was lost, or one that was refused", func(t *testing.T) {
		clock.Advance(leaseRenew)
		held, _ := server.Get(t.Context(), LeaseName, metav1.GetOptions{})
		if _, err := server.write(l.object(held)); err != nil { // the answer does not arrive
			t.Fatal(err)
		}
		server.away = true
		if l.renew(t.Context()) == nil {
			t.Error("renewed without a server")
		}
		server.away = false
		expect(t, 0)
	})
	backup := server.held.DeepCopy()
	t.Run("FT-K6 a record that is older than a confirmed one is an alarm, once, also with a newer resource version", func(t *testing.T) {
		renew()
		server.version += 1000
		server.held = backup.DeepCopy()
		server.held.SetResourceVersion(fmt.Sprint(server.version))
		expect(t, 1)
	})
	t.Run("FT-K6 a missing record is an alarm", func(t *testing.T) {
		server.held = nil
		expect(t, 2)
	})
	t.Run("FT-K6 an earlier holder is an alarm, and its lease must expire first", func(t *testing.T) {
		server.held = backup.DeepCopy()
		server.held.Object["spec"].(map[string]any)["holderIdentity"] = "before"
		if err := l.renew(t.Context()); fault.KindOf(err) != fault.Conflict || alarms != 3 {
			t.Errorf("%d alarms, error %v", alarms, err)
		}
		clock.Advance(leaseFor + requestLimit)
		expect(t, 3)
	})
}
