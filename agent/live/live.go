// Package live serves the hub's streams from containers: their logs. A stream
// is only of pods that belong to the named application. All readers of one
// container share one stream of the kubelet. The daemon serves it on the link.
package live

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"

	"google.golang.org/grpc"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logtail"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Cluster is what this package needs of the agent.
type Cluster interface {
	// Belongs reports whether an application manages the object, or something
	// that owns it.
	Belongs(app string, key manifest.Key) bool
	// ActsAs is the user as whom requests for an application are sent; empty:
	// the agent itself.
	ActsAs(app string) (string, error)
	// MayReadLogs is nil if the cluster's owner permits the agent to read logs
	// of a namespace.
	MayReadLogs(namespace string) error
	// Pods returns the pods of an application that an object is or owns; those
	// of all objects for the zero key.
	Pods(app string, of manifest.Key) []manifest.Key
	// Concealer takes what was resolved from secrets out of texts of an
	// application; nil: nothing was.
	Concealer(app string) func(string) string
	// Read returns a live object, without managedFields.
	Read(ctx context.Context, app string, key manifest.Key, version string) (*manifest.Object, error)
}

// Config is what a Server needs. All fields are required.
type Config struct {
	Cluster Cluster
	Client  *http.Client // authenticates as the agent
	Base    *url.URL     // of the API server
	Log     *slog.Logger
}

// bufferSize bounds the newest lines that are held of each followed log, in
// bytes: 12 MiB for all streams.
const bufferSize = 128 << 10

// A Server serves Live.
type Server struct {
	linkv1.UnimplementedLiveServer

	cfg     Config
	logs    *logtail.Sharer[container]
	kept    *kept
	streams chan struct{} // one for each that is open
}

// maxStreams bounds the streams that are open at once. It is less than a session
// has calls, so that others remain.
const maxStreams = 96

// enter counts a stream; leave ends it.
func (s *Server) enter() (leave func(), err error) {
	select {
	case s.streams <- struct{}{}:
		return func() { <-s.streams }, nil
	default:
		return nil, fault.With(fault.New(fault.Exceeded, "the agent has %d streams open", maxStreams), "", "close some, and try again")
	}
}

// New makes a server.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, logs: logtail.New[container](bufferSize), kept: newKept(), streams: make(chan struct{}, maxStreams)}
}

// Followed is how many logs are followed now.
func (s *Server) Followed() int { return s.logs.Open() }

// A container is one that is read as one user. Readers of equal ones share.
type container struct {
	namespace, pod, uid, name string
	user                      string // empty: the agent
}

// Logs streams the log of a container.
func (s *Server) Logs(r *linkv1.LogsRequest, out grpc.ServerStreamingServer[linkv1.LogsResponse]) error {
	if r.GetAppId() == "" || r.GetNamespace() == "" || r.GetPod() == "" || r.GetContainer() == "" {
		return fault.New(fault.Invalid, "a log is asked for by application, namespace, pod and container")
	}
	hide := s.cfg.Cluster.Concealer(r.GetAppId())
	if lines, ok := s.kept.lines(r); ok && !s.cfg.Cluster.Belongs(r.GetAppId(), manifest.Key{Kind: "Pod", Namespace: r.GetNamespace(), Name: r.GetPod()}) {
		if err := s.cfg.Cluster.MayReadLogs(r.GetNamespace()); err != nil {
			return err
		}
		return send(out, lines, hide)
	}
	c, err := s.container(r)
	if err != nil {
		return err
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	o := logtail.Options{Since: r.GetSinceUnixNano()}
	if r.Tail != nil { //nolint:protogetter // absent differs from 0
		n := int(r.GetTail())
		o.Tail = &n
	}
	if r.GetFollow() && !r.GetPrevious() {
		return s.logs.Follow(out.Context(), c, logOf{s, c, false}, o, func(lines []logtail.Line) error { return send(out, lines, hide) })
	}
	return logOf{s, c, r.GetPrevious()}.Read(out.Context(), false, o, func(lines []logtail.Line) error { return send(out, lines, hide) })
}

// container checks that a log may be read.
func (s *Server) container(r *linkv1.LogsRequest) (container, error) {
	key := manifest.Key{Kind: "Pod", Namespace: r.GetNamespace(), Name: r.GetPod()}
	if !s.cfg.Cluster.Belongs(r.GetAppId(), key) {
		return container{}, fault.With(fault.New(fault.Missing, "it does not belong to the application"), key.Describe(), "")
	}
	if err := s.cfg.Cluster.MayReadLogs(key.Namespace); err != nil {
		return container{}, fault.With(err, key.Describe(), "")
	}
	user, err := s.cfg.Cluster.ActsAs(r.GetAppId())
	if err != nil {
		return container{}, err
	}
	return container{namespace: key.Namespace, pod: key.Name, uid: r.GetUid(), name: r.GetContainer(), user: user}, nil
}

// mostMessage bounds one message, in bytes.
const mostMessage = 64 << 10

// send sends lines in messages of bounded size. It waits for the hub, which
// stops the stream of the kubelet if nobody else reads it. hide takes out what
// must not leave the cluster.
func send(out grpc.ServerStreamingServer[linkv1.LogsResponse], lines []logtail.Line, hide func(string) string) error {
	for len(lines) > 0 {
		m := &linkv1.LogsResponse{}
		for size := 0; len(lines) > 0 && (size == 0 || size+lines[0].Size() <= mostMessage); lines = lines[1:] {
			l := lines[0]
			if hide != nil {
				l.Text = []byte(hide(string(l.Text)))
			}
			size += l.Size()
			m.Lines = append(m.Lines, &linkv1.LogLine{UnixNano: l.Nano, Text: l.Text, Partial: l.Partial, Skipped: l.Skipped})
		}
		if err := out.Send(m); err != nil {
			return err
		}
	}
	return nil
}
