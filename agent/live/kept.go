package live

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/logtail"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// What is held of containers that have failed, so that the reason can be read
// when their pod is gone: at most 2 MiB in all.
const (
	keptContainers = 256
	keptLines      = 50
	keptBytes      = 8 << 10 // of one container
	keptWaiting    = 64      // pods whose lines are still to be read
	keepTime       = 10 * time.Second
)

// kept has the last lines of containers that have failed, oldest first.
type kept struct {
	waiting chan failedPod

	mu   sync.Mutex
	list []*keptContainer
}

// failedPod is a pod of an application, one of whose containers has failed.
type failedPod struct {
	app string
	key manifest.Key
}

// keptContainer is what is left of a container.
type keptContainer struct {
	failedPod
	uid    string
	owners []manifest.Key
	about  *linkv1.Container
	lines  []logtail.Line
}

func newKept() *kept { return &kept{waiting: make(chan failedPod, keptWaiting)} }

// Failed has the last lines of a pod's failed containers read. Without room for
// it the pod is left out; its next change asks again.
func (s *Server) Failed(app string, pod manifest.Key) {
	select {
	case s.kept.waiting <- failedPod{app, pod}:
	default:
	}
}

// Run reads the lines of pods that have failed, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	for {
		select {
		case p := <-s.kept.waiting:
			if err := s.keep(ctx, p); err != nil && ctx.Err() == nil {
				s.cfg.Log.DebugContext(ctx, "the last lines of a failed pod cannot be read", logkey.Object, p.key.Describe(), logkey.Error, err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// keep reads the last lines of the containers of one pod that have failed.
func (s *Server) keep(ctx context.Context, p failedPod) error {
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	if err := s.cfg.Cluster.MayReadLogs(p.key.Namespace); err != nil {
		return err
	}
	user, err := s.cfg.Cluster.ActsAs(p.app)
	if err != nil {
		return err
	}
	o, err := s.cfg.Cluster.Read(ctx, p.app, p.key, "v1")
	if err != nil {
		return err
	}
	pod := describePod(o)
	ended := failures(o)
	for _, c := range pod.GetContainers() {
		when, failed := ended[c.GetName()]
		if !failed || s.kept.has(p, pod.GetUid(), c) {
			continue
		}
		from := logOf{s, container{namespace: p.key.Namespace, pod: p.key.Name, uid: pod.GetUid(), name: c.GetName(), user: user}, when == "lastState"}
		k := &keptContainer{failedPod: p, uid: pod.GetUid(), about: c, owners: ownersOf(o)}
		tail := keptLines
		err := from.Read(ctx, false, logtail.Options{Tail: &tail}, func(lines []logtail.Line) error {
			k.add(lines)
			return nil
		})
		if err != nil {
			return err
		}
		s.kept.put(k)
	}
	return nil
}

// failures are the containers of a pod that ended with an error, and where their
// status says so.
func failures(o *manifest.Object) map[string]string {
	out := map[string]string{}
	for _, kind := range [...]string{"initContainerStatuses", "containerStatuses"} {
		for _, c := range list(o, "status", kind) {
			name, _ := c["name"].(string)
			for _, when := range [...]string{"lastState", "state"} {
				state, _ := c[when].(map[string]any)
				ended, _ := state["terminated"].(map[string]any)
				if code, _ := ended["exitCode"].(int64); code != 0 {
					out[name] = when
				}
			}
		}
	}
	return out
}

func ownersOf(o *manifest.Object) (out []manifest.Key) {
	for _, r := range o.GetOwnerReferences() {
		gv, _ := schema.ParseGroupVersion(r.APIVersion) // its group is empty otherwise
		out = append(out, manifest.Key{Group: gv.Group, Kind: r.Kind, Namespace: o.GetNamespace(), Name: r.Name})
	}
	return out
}

// add holds the newest lines within the limits.
func (k *keptContainer) add(lines []logtail.Line) {
	k.lines = append(k.lines, lines...)
	size := 0
	for i := len(k.lines) - 1; i >= 0; i-- {
		if size += k.lines[i].Size(); size > keptBytes || len(k.lines)-i > keptLines {
			k.lines = slices.Clone(k.lines[i+1:])
			return
		}
	}
}

// has reports whether the lines of an instance of a container are there.
func (k *kept) has(p failedPod, uid string, c *linkv1.Container) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.list, func(o *keptContainer) bool {
		return o.failedPod == p && o.uid == uid && o.about.GetName() == c.GetName() && o.about.GetRestarts() == c.GetRestarts()
	})
}

// put replaces what is there of the container.
func (k *kept) put(c *keptContainer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(o *keptContainer) bool {
		return o.failedPod == c.failedPod && o.about.GetName() == c.about.GetName()
	})
	k.list = append(k.list, c)
	if more := len(k.list) - keptContainers; more > 0 {
		k.list = slices.Delete(k.list, 0, more)
	}
}

// lines are those of a container, if they are there.
func (k *kept) lines(r *linkv1.LogsRequest) ([]logtail.Line, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.list {
		if c.app != r.GetAppId() || c.key.Namespace != r.GetNamespace() || c.key.Name != r.GetPod() || c.about.GetName() != r.GetContainer() {
			continue
		}
		if r.GetUid() != "" && r.GetUid() != c.uid {
			continue
		}
		out := slices.Clone(c.lines)
		if n := int(r.GetTail()); r.Tail != nil && n < len(out) { //nolint:protogetter // absent differs from 0
			out = out[len(out)-n:]
		}
		return slices.DeleteFunc(out, func(l logtail.Line) bool { return l.Nano > 0 && l.Nano < r.GetSinceUnixNano() }), true
	}
	return nil, false
}

// pods are those of an application of which lines are there; of one that is the
// object, or that it owned.
func (k *kept) pods(app string, of manifest.Key) (out []*linkv1.Pod) {
	if of == (manifest.Key{}) {
		return nil // of all, only those that are there
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.list {
		if c.app != app || of != c.key && !slices.Contains(c.owners, of) {
			continue
		}
		i := slices.IndexFunc(out, func(p *linkv1.Pod) bool { return p.GetUid() == c.uid })
		if i < 0 {
			i = len(out)
			out = append(out, &linkv1.Pod{Namespace: c.key.Namespace, Name: c.key.Name, Uid: c.uid, Phase: "Failed", Gone: true})
		}
		out[i].Containers = append(out[i].Containers, c.about)
	}
	return out
}
