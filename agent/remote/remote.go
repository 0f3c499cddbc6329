// Package remote serves the hub's sessions in pods: commands in containers and
// connections to ports. Each is of a pod that belongs to the named application,
// and needs the permission of the cluster's owner, which is checked again while
// it is open. The daemon serves it on the link.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
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
	// Read returns a live object, without managedFields.
	Read(ctx context.Context, app string, key manifest.Key, version string) (*manifest.Object, error)
}

// Policy is what the cluster's owner permits.
type Policy interface {
	// Executes is nil if commands may be run in a container.
	Executes(namespace, container string) error
	// Forwards is nil if a port of pods may be connected to.
	Forwards(namespace string, port int) error
	// Limits are how long a session of commands may last, and how long nothing
	// may be typed in it.
	Limits() (most, idle time.Duration)
	// Describe is the policy as JSON, and why it cannot be read.
	Describe() (rules any, broken string)
}

// Config is what a Server needs. All fields but Namespaces are required.
type Config struct {
	Cluster    Cluster
	Policy     Policy
	REST       *rest.Config // authenticates as the agent
	Base       *url.URL     // of the API server
	Mode       string
	Namespaces []string
}

// A Server serves Remote.
type Server struct {
	linkv1.UnimplementedRemoteServer

	cfg      Config
	sessions chan struct{} // one for each that is open
}

const (
	maxSessions = 64 // that are open at once
	checkEvery  = 500 * time.Millisecond
	chunk       = 16 << 10 // bytes of one message
)

// New makes a server.
func New(cfg Config) *Server { return &Server{cfg: cfg, sessions: make(chan struct{}, maxSessions)} }

// Policy returns what the cluster's owner permits.
func (s *Server) Policy(context.Context, *linkv1.PolicyRequest) (*linkv1.PolicyResponse, error) {
	rules, broken := s.cfg.Policy.Describe()
	text, err := json.Marshal(rules)
	if err != nil {
		return nil, fmt.Errorf("write the policy: %w", err)
	}
	return &linkv1.PolicyResponse{Json: text, Broken: broken, Mode: s.cfg.Mode, Namespaces: s.cfg.Namespaces}, nil
}

// enter counts a session; leave ends it.
func (s *Server) enter() (leave func(), err error) {
	select {
	case s.sessions <- struct{}{}:
		return func() { <-s.sessions }, nil
	default:
		return nil, fault.With(fault.New(fault.Exceeded, "the agent has %d sessions open", maxSessions), "", "close some, and try again")
	}
}

// A target is a pod in which a session is opened.
type target struct {
	app       string
	key       manifest.Key
	uid       string
	container string
}

// find checks that a pod belongs to the application, is the one that is meant,
// and runs the container; an empty one is the first.
func (s *Server) find(ctx context.Context, app, namespace, pod, uid, container string) (target, error) {
	t := target{app: app, key: manifest.Key{Kind: "Pod", Namespace: namespace, Name: pod}, container: container}
	if app == "" || namespace == "" || pod == "" {
		return t, fault.New(fault.Invalid, "a session is asked for by application, namespace and pod")
	}
	if !s.cfg.Cluster.Belongs(app, t.key) {
		return t, fault.With(fault.New(fault.Missing, "it does not belong to the application"), t.key.Describe(), "")
	}
	o, err := s.cfg.Cluster.Read(ctx, app, t.key, "v1")
	if err != nil {
		return t, err
	}
	t.uid = string(o.GetUID())
	if uid != "" && uid != t.uid {
		return t, fault.With(fault.New(fault.Missing, "it was replaced by another pod of the same name"), t.key.Describe(), "")
	}
	names, running := containers(o)
	switch {
	case t.container == "" && len(names) > 0:
		t.container = names[0]
	case !slices.Contains(names, t.container):
		return t, fault.With(fault.New(fault.Missing, "it has no container %q", container), t.key.Describe(), fmt.Sprintf("its containers are %v", names))
	}
	if !slices.Contains(running, t.container) {
		return t, fault.With(fault.New(fault.Conflict, "its container %s does not run", t.container), t.key.Describe(), "")
	}
	return t, nil
}

// containers are those of a pod, and those that run.
func containers(o *manifest.Object) (names, running []string) {
	for _, kind := range [...]struct{ spec, status string }{
		{"containers", "containerStatuses"}, {"initContainers", "initContainerStatuses"}, {"ephemeralContainers", "ephemeralContainerStatuses"},
	} {
		names = append(names, named(o, nil, "spec", kind.spec)...)
		running = append(running, named(o, func(c map[string]any) bool {
			_, is, _ := unstructured.NestedMap(c, "state", "running")
			return is
		}, "status", kind.status)...)
	}
	return names, running
}

func named(o *manifest.Object, pick func(map[string]any) bool, path ...string) (names []string) {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	items, _ := v.([]any)
	for _, item := range items {
		c, _ := item.(map[string]any)
		if name, _ := c["name"].(string); name != "" && (pick == nil || pick(c)) {
			names = append(names, name)
		}
	}
	return names
}

// as is the configuration with which requests for an application are sent.
func (s *Server) as(app string) (*rest.Config, error) {
	user, err := s.cfg.Cluster.ActsAs(app)
	if err != nil {
		return nil, err
	}
	conf := rest.CopyConfig(s.cfg.REST)
	conf.Impersonate.UserName = user
	return conf, nil
}

// address is that of a subresource of a pod.
func (s *Server) address(t target, subresource string, query url.Values) *url.URL {
	u := s.cfg.Base.JoinPath("api/v1/namespaces", t.key.Namespace, "pods", t.key.Name, subresource)
	u.RawQuery = query.Encode()
	return u
}

// whilePermitted calls run with a context that ends when permitted returns an
// error, which is then the result.
func whilePermitted(ctx context.Context, permitted func() error, run func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() { // ends with done, which is closed below; the caller waits for it
		defer close(watched)
		for {
			tick, stop := lifecycle.System{}.After(checkEvery)
			select {
			case <-done:
				stop()
				return
			case <-tick:
			}
			if err := permitted(); err != nil {
				cancel(err)
				return
			}
		}
	}()
	err := run(ctx)
	close(done)
	<-watched
	if cause := context.Cause(ctx); cause != nil {
		if _, classified := fault.As(cause); classified {
			return cause
		}
	}
	return err
}

// explain classifies what the API server says of a session.
func explain(err error, t target, right string) error {
	var status apierrors.APIStatus
	text := err.Error()
	if errors.As(err, &status) && status.Status().Message != "" {
		text = status.Status().Message
	}
	object := t.key.Describe() + ", container " + t.container
	switch {
	case apierrors.IsForbidden(err):
		return fault.With(fault.Wrap(fault.Denied, err, "%s", text), object, "give the agent, or the service account of the application, the rights get and create on "+right)
	case apierrors.IsNotFound(err):
		return fault.With(fault.Wrap(fault.Missing, err, "%s", text), object, "")
	}
	return fault.With(fault.Wrap(fault.Conflict, err, "the cluster could not do it: %s", text), object, "")
}
