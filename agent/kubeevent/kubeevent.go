// Package kubeevent writes Kubernetes events about applications into the
// namespaces that they are deployed to, for tools that read events. Its callers
// never wait for the cluster: excess events are dropped. The engine calls it,
// and the daemon runs it. Without the tenant's setting it writes nothing.
package kubeevent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// The reasons, as in Argo CD.
const (
	OperationStarted   = "OperationStarted"
	OperationCompleted = "OperationCompleted"
	ResourceUpdated    = "ResourceUpdated" // sync or health status of the application
)

// Everything means all reasons.
const Everything = "all"

const (
	burst      = 25               // events of one application at once
	refill     = 10 * time.Second // until one more may be written
	mostQueued = 256
	mostKept   = 2000             // limit of stored series and applications
	series     = 10 * time.Minute // time in which an equal event only increases the count
	longest    = 1024             // bytes of a message, the API server's limit
	callLimit  = 10 * time.Second
)

// An Event is something that happened to an application.
type Event struct {
	App       string // id of the application, a UUID
	Name      string // of the application
	Namespace string // that it is deployed to; empty: the agent's own
	Reason    string
	Warning   bool // the event is a warning
	Message   string
}

// Config is what a Recorder needs. All fields except Clock are required.
type Config struct {
	Client  dynamic.Interface
	Home    string          // the agent's namespace
	Reasons func() []string // that are enabled now; none: nothing is written
	Write   func() error    // whether the agent may write now
	Log     *slog.Logger
	Clock   lifecycle.Clock // nil: the real one
}

// A Recorder accepts events from many goroutines and writes them one by one.
type Recorder struct {
	Config
	queue chan Event

	mu      sync.Mutex
	buckets map[string]*bucket // by application
	dropped int

	known map[string]*written // series, by the Run loop alone
}

// bucket limits the events of one application.
type bucket struct {
	left float64
	at   time.Time
}

// written is an event that was created and may be repeated.
type written struct {
	name  string
	first time.Time
	last  time.Time
	count int64
}

// New makes a Recorder; Run writes its events.
func New(c Config) *Recorder {
	if c.Clock == nil {
		c.Clock = lifecycle.System{}
	}
	return &Recorder{Config: c, queue: make(chan Event, mostQueued), buckets: map[string]*bucket{}, known: map[string]*written{}}
}

// Record queues an event. It returns at once, and drops the event if its reason
// is not enabled or the queue is full.
func (r *Recorder) Record(e Event) {
	if all := r.Reasons(); !slices.Contains(all, Everything) && !slices.Contains(all, e.Reason) {
		return
	}
	if !r.admit(e.App) {
		return
	}
	select {
	case r.queue <- e:
	default:
		r.drop()
	}
}

func (r *Recorder) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped++
}

// Dropped is the number of dropped events.
func (r *Recorder) Dropped() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropped
}

func (r *Recorder) admit(app string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	b := r.buckets[app]
	if b == nil {
		if len(r.buckets) >= mostKept {
			clear(r.buckets)
		}
		b = &bucket{left: burst, at: now}
		r.buckets[app] = b
	}
	b.left = min(burst, b.left+float64(now.Sub(b.at))/float64(refill))
	b.at = now
	if b.left < 1 {
		r.dropped++
		return false
	}
	b.left--
	return true
}

// Run writes events until ctx ends, then returns nil. An event that cannot be
// written is lost; the cause is logged once and then at growing intervals.
func (r *Recorder) Run(ctx context.Context) error {
	var reminder lifecycle.Reminder
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.queue:
			err := r.write(ctx, e)
			if ctx.Err() != nil {
				return nil
			}
			cause := ""
			if err != nil {
				cause = string(apierrors.ReasonForError(err)) + " in " + r.namespace(e)
			}
			if due, _ := reminder.Due(r.Clock.Now(), cause); due {
				r.Log.WarnContext(ctx, "Kubernetes event not written; events.enabled of the agent's chart gives the right", logkey.Namespace, r.namespace(e), logkey.Reason, e.Reason, logkey.Error, err)
			}
		}
	}
}

func (r *Recorder) namespace(e Event) string {
	if e.Namespace == "" {
		return r.Home
	}
	return e.Namespace
}

// write creates an event, or increases the count of the same recent one.
func (r *Recorder) write(ctx context.Context, e Event) error {
	if err := r.Write(); err != nil {
		return nil // another agent writes, and reports
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	e.Message = clip(e.Message)
	sum := sha256.Sum256([]byte(e.App + "\x00" + r.namespace(e) + "\x00" + e.Reason + "\x00" + e.Message))
	key, now := string(sum[:]), r.Clock.Now()
	at := r.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace(r.namespace(e))
	if w := r.known[key]; w != nil && now.Sub(w.last) < series {
		body, err := json.Marshal(map[string]any{"count": w.count + 1, "lastTimestamp": stamp(now)})
		if err != nil {
			return err
		}
		if _, err = at.Patch(ctx, w.name, types.MergePatchType, body, metav1.PatchOptions{}); err == nil {
			w.count, w.last = w.count+1, now
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	if len(r.known) >= mostKept {
		clear(r.known)
	}
	w := &written{name: fmt.Sprintf("%s.%s", short(e.Name), hex.EncodeToString(sum[:4])+fmt.Sprintf("%x", now.UnixNano())), first: now, last: now, count: 1}
	if _, err := at.Create(ctx, r.object(e, w), metav1.CreateOptions{}); err != nil {
		return err
	}
	r.known[key] = w
	return nil
}

// object is an event of core/v1 about the Application, which does not exist in
// this cluster. The API server does not check that.
func (r *Recorder) object(e Event, w *written) *unstructured.Unstructured {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"name": w.name, "namespace": r.namespace(e)},
		"involvedObject": map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "namespace": r.namespace(e), "name": e.Name, "uid": e.App,
		},
		"reason": e.Reason, "message": e.Message, "type": kind, "source": map[string]any{"component": "capstan-agent"},
		"firstTimestamp": stamp(w.first), "lastTimestamp": stamp(w.last), "count": w.count,
		"reportingComponent": "capstan-agent", "reportingInstance": "",
	}}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// short truncates the name of an application, so that there is space for the
// rest.
func short(name string) string { return name[:min(len(name), 200)] }

func clip(text string) string {
	if len(text) <= longest {
		return text
	}
	text = text[:longest-3]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "..."
}
