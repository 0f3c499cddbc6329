package upgrade

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A Server handles upgrade requests of the hub.
type Server struct {
	linkv1.UnimplementedUpgradesServer
	// Allowed: the owner of the cluster permits upgrades by the hub.
	Allowed bool
	// Repositories are permitted for images, in addition to that of the current
	// one.
	Repositories []string
	Client       dynamic.Interface
	Namespace    string
	Clock        lifecycle.Clock
	Log          *slog.Logger
}

// Upgrade starts an upgrade, unless it was started before, and returns its
// state.
func (s *Server) Upgrade(ctx context.Context, r *linkv1.UpgradeRequest) (*linkv1.UpgradeResponse, error) {
	o := Order{
		ID: r.GetId(), Image: r.GetImage(), Ordered: time.Unix(0, r.GetOrderedUnixNano()).UTC(),
		BeginBefore: time.Unix(r.GetBeginBeforeUnix(), 0).UTC(), Deadline: time.Duration(r.GetDeadlineSeconds()) * time.Second,
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	d, err := s.Client.Resource(deployments).Namespace(s.Namespace).Get(ctx, Deployment, metav1.GetOptions{})
	if err != nil {
		return nil, s.explain(err, "read its Deployment "+Deployment)
	}
	held, err := recordOf(d)
	if err != nil {
		return nil, err
	}
	if held.ID == o.ID { // also if upgrades are no longer allowed: it has started
		if held.Phase == Running {
			// Without its updater, which may have been deleted, the state would
			// not change any more.
			if _, err := s.job(ctx, o, d, true); err != nil {
				s.Log.WarnContext(ctx, "the updater was not checked", logkey.Upgrade, o.ID, logkey.Error, err)
			}
		}
		return responseOf(held), nil
	}
	if err := s.admit(o, d, held); err != nil {
		return nil, err
	}
	return s.start(ctx, o, d)
}

func responseOf(r Record) *linkv1.UpgradeResponse {
	out := &linkv1.UpgradeResponse{Phase: r.Phase, Message: r.Message, From: r.From}
	if r.Phase == Running {
		out.Message = fmt.Sprintf("%s was put in the place of %s and has until %s to connect", r.To, r.From, r.Deadline.UTC().Format(time.TimeOnly+" MST"))
	}
	if r.Ended != nil {
		out.EndedUnixNano = r.Ended.UnixNano()
	}
	return out
}

// admit returns why an order is refused.
func (s *Server) admit(o Order, d *unstructured.Unstructured, held Record) error {
	if !s.Allowed {
		return fault.With(fault.New(fault.Denied, "the owner of the cluster does not let the hub upgrade its agent"), "",
			"install the agent's chart with upgrades.enabled=true")
	}
	if held.ID != "" && !held.Ordered.Before(o.Ordered) {
		return fault.New(fault.Conflict, "a newer upgrade, to %s, was carried out already", held.To)
	}
	image, err := imageOf(d)
	if err != nil {
		return err
	}
	if want := repository(o.Image); want != repository(image) && !slices.Contains(s.Repositories, want) {
		return fault.With(fault.New(fault.Denied, "the agent runs an image of %s, and its owner does not let the hub take one of %s", repository(image), want), "",
			"name the repository in the value upgrades.repositories of the agent's chart")
	}
	return nil
}

// job returns the updater of an order, and with missing creates it if it does
// not exist.
func (s *Server) job(ctx context.Context, o Order, d *unstructured.Unstructured, missing bool) (*unstructured.Unstructured, error) {
	all := s.Client.Resource(jobs).Namespace(s.Namespace)
	job, err := all.Get(ctx, jobName(o), metav1.GetOptions{})
	if !apierrors.IsNotFound(err) || !missing {
		return job, err
	}
	made, err := newJob(o, d, s.Namespace)
	if err != nil {
		return nil, err
	}
	job, err = all.Create(ctx, made, metav1.CreateOptions{FieldManager: Deployment})
	if apierrors.IsAlreadyExists(err) {
		return all.Get(ctx, jobName(o), metav1.GetOptions{})
	}
	if err == nil {
		s.Log.InfoContext(ctx, "upgrade ordered, its updater is started", logkey.Upgrade, o.ID, logkey.Image, o.Image, logkey.Job, jobName(o))
	}
	return job, err
}

// start starts the updater, and returns its state.
func (s *Server) start(ctx context.Context, o Order, d *unstructured.Unstructured) (*linkv1.UpgradeResponse, error) {
	name := jobName(o)
	late := s.Clock.Now().After(o.BeginBefore)
	job, err := s.job(ctx, o, d, !late)
	if _, classified := fault.As(err); classified {
		return nil, err
	}
	command := fmt.Sprintf("kubectl -n %s describe job %s", s.Namespace, name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, s.explain(err, "start a Job")
	case err == nil && failed(job) != "":
		return &linkv1.UpgradeResponse{Phase: Failed, Message: fmt.Sprintf("the updater failed before it changed anything (%s): %s", failed(job), command), EndedUnixNano: s.Clock.Now().UnixNano()}, nil
	case late:
		return &linkv1.UpgradeResponse{Phase: Failed, Message: fmt.Sprintf("the updater did not begin before %s, and changes nothing any more: %s", o.BeginBefore.Format(time.DateTime+" MST"), command), EndedUnixNano: s.Clock.Now().UnixNano()}, nil
	}
	return &linkv1.UpgradeResponse{Phase: Running, Message: "the updater has not begun yet: " + command}, nil
}

// failed is why a Job has failed for good; empty: it has not.
func failed(job *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	for _, one := range conditions {
		if c, _ := one.(map[string]any); c["type"] == "Failed" && c["status"] == "True" {
			return brief(c["message"])
		}
	}
	return ""
}

// explain distinguishes a missing right from an unreachable API server.
func (s *Server) explain(err error, doing string) error {
	switch {
	case apierrors.IsForbidden(err):
		return fault.With(fault.Wrap(fault.Denied, err, "the agent may not %s", doing), "", "install the agent's chart with upgrades.enabled=true, which grants it")
	case apierrors.IsNotFound(err):
		return fault.With(fault.New(fault.Denied, "the agent cannot %s in namespace %s: there is none", doing, s.Namespace), "", "only an agent that the chart capstan-agent has installed can be upgraded from the hub")
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fault.Wrap(fault.Invalid, err, "the API server refused to let the agent %s", doing)
	}
	return fault.Wrap(fault.Offline, err, "the API server does not let the agent %s now", doing)
}
