// Package podlogs reads the logs of the containers of an application: of one,
// or of all that an object owns, merged by time. All readers of one container
// share one stream of the link. It checks no rights; the API does, before and
// while a log is read.
package podlogs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logtail"
)

// Agents reads logs in clusters.
type Agents interface {
	Pods(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.ObjectRef, limit int) ([]hub.Pod, error)
	Logs(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.LogTarget, follow, previous bool, o logtail.Options, emit logtail.Emit) error
}

// bufferSize bounds the newest lines that are held of each followed log, in
// bytes.
const bufferSize = 256 << 10

// A Service reads logs. Many goroutines may use it.
type Service struct {
	agents Agents
	clock  lifecycle.Clock
	shared *logtail.Sharer[shared]
	asked  singleflight.Group // for pods
}

// New makes a service.
func New(agents Agents) *Service {
	return &Service{agents: agents, clock: lifecycle.System{}, shared: logtail.New[shared](bufferSize)}
}

// Followed is how many logs are followed now.
func (s *Service) Followed() int { return s.shared.Open() }

// shared names a log that readers share.
type shared struct {
	cluster hub.ClusterID
	app     hub.ApplicationID
	hub.LogTarget
}

// A Request says what is read.
type Request struct {
	Cluster     hub.Cluster
	Application hub.ApplicationID
	Of          hub.ObjectRef // whose pods; zero: those of the whole application
	Container   string        // empty: all
	Follow      bool
	Previous    bool // the instance before the current one
	Tail        *int // of each container; nil: all lines
	Since       time.Time
	Until       time.Time
	Filter      Filter
	MaxPods     int
}

// An Entry is one line, or a notice about a container.
type Entry struct {
	Namespace string
	Pod       string
	Container string
	Time      time.Time // zero: not known
	Text      string
	Partial   bool   // the line continues in the next entry of the container
	Skipped   uint64 // lines that are missing before it: the reader was too slow
	Notice    string // instead of a line: what is wrong with the container's log
}

// A Filter picks lines.
type Filter struct {
	Text      string // that a line has; empty: any
	Invert    bool   // lines without the text
	MatchCase bool
}

// ParseFilter reads a filter as Argo CD writes it: a leading "!" inverts it.
func ParseFilter(text string, matchCase bool) Filter {
	rest, inverted := strings.CutPrefix(text, "!")
	if inverted && rest == "" {
		return Filter{Text: text, MatchCase: matchCase}
	}
	return Filter{Text: rest, Invert: inverted, MatchCase: matchCase}
}

// Passes reports whether the filter picks a line.
func (f Filter) Passes(line string) bool {
	if f.Text == "" {
		return true
	}
	text := f.Text
	if !f.MatchCase {
		line, text = strings.ToLower(line), strings.ToLower(text)
	}
	return strings.Contains(line, text) != f.Invert
}

// Stream emits entries until the logs end, emit fails or ctx ends. An emission
// without entries is a sign of life after two seconds of silence. While emit
// blocks, nothing more is read for this reader.
func (s *Service) Stream(ctx context.Context, r Request, emit func([]Entry) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := newMerge(s, r, emit)
	defer m.wait()
	defer cancel()
	if err := m.discover(ctx); err != nil {
		return err
	}
	return m.run(ctx)
}

// targets returns the containers that a request is about.
func (s *Service) targets(ctx context.Context, r Request) (out []target, err error) {
	pods, err := s.pods(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.MaxPods > 0 && len(pods) > r.MaxPods {
		return nil, fault.With(fault.New(fault.Exceeded, "these are the logs of %d pods, and no more than %d are shown at once", len(pods), r.MaxPods), "",
			"name one pod or its owner, or raise server.maxPodLogsToRender of argocd-cm")
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			if r.Container == "" || c.Name == r.Container {
				out = append(out, target{LogTarget: hub.LogTarget{Namespace: p.Namespace, Pod: p.Name, UID: p.UID, Container: c.Name}, pod: p, container: c})
			}
		}
	}
	if len(out) == 0 && r.Container != "" && len(pods) > 0 {
		return nil, fault.With(fault.New(fault.Missing, "no pod has a container %q", r.Container), "", "its containers are "+names(pods))
	}
	return out, nil
}

// pods asks the agent once for all readers that ask at this moment: many who
// begin together would take all calls that may be open to it.
func (s *Service) pods(ctx context.Context, r Request) ([]hub.Pod, error) {
	key := fmt.Sprintf("%s %s %q %q %q %q %d", r.Cluster.ID, r.Application, r.Of.Group, r.Of.Kind, r.Of.Namespace, r.Of.Name, r.MaxPods)
	asked := s.asked.DoChan(key, func() (any, error) {
		return s.agents.Pods(context.WithoutCancel(ctx), r.Cluster, r.Application, r.Of, r.MaxPods)
	})
	select {
	case found := <-asked:
		pods, _ := found.Val.([]hub.Pod)
		return pods, found.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// names lists the containers of pods.
func names(pods []hub.Pod) string {
	seen := map[string]bool{}
	var out []string
	for _, p := range pods {
		for _, c := range p.Containers {
			if !seen[c.Name] {
				seen[c.Name] = true
				out = append(out, c.Name)
			}
		}
	}
	return strings.Join(out, ", ")
}

// A target is a container with its state.
type target struct {
	hub.LogTarget
	pod       hub.Pod
	container hub.Container
}

// over reports whether no other instance of the container will come.
func (t target) over() bool {
	return t.pod.Phase == "Succeeded" || t.pod.Phase == "Failed" || t.pod.Gone
}

// instance names the current instance of the container.
func (t target) instance() string {
	return fmt.Sprint(t.container.Restarts, " ", t.container.Started.Unix(), " ", t.container.State != "waiting")
}

// source is the log of a container of a request.
type source struct {
	s *Service
	r Request
	t target
}

// Read reads it by the agent.
func (o source) Read(ctx context.Context, follow bool, with logtail.Options, emit logtail.Emit) error {
	return o.s.agents.Logs(ctx, o.r.Cluster, o.r.Application, o.t.LogTarget, follow, o.r.Previous, with, emit)
}
