package upgrade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	observeEvery   = time.Second
	observeTimeout = 10 * time.Second // timeout of one check
	retryGap       = 2 * time.Second  // after a failed check
)

// An Updater executes one order.
type Updater struct {
	Client    dynamic.Interface
	Namespace string // of the agent
	Lease     string // name of the agent's Lease
	Clock     lifecycle.Clock
	Log       *slog.Logger
}

// Run returns when the upgrade has ended, with its outcome in the Deployment.
// Called again after a crash, it continues. It waits for an unreachable API
// server. After an error a person has to act, or ctx has ended.
func (u *Updater) Run(ctx context.Context, o Order) error {
	if err := o.Validate(); err != nil {
		return err
	}
	for {
		pause := observeEvery
		over, err := u.step(ctx, o)
		switch {
		case over:
			return nil
		case apierrors.IsConflict(err):
			pause = 0 // it was changed concurrently
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), fault.KindOf(err) == fault.Invalid:
			return err // the Job retries, and reports it
		case err != nil && ctx.Err() == nil:
			u.Log.WarnContext(ctx, "upgrade waits", logkey.Error, err)
			pause = retryGap
		}
		if err := lifecycle.Sleep(ctx, u.Clock, pause); err != nil {
			return fmt.Errorf("upgrade %s is not over: %w", o.ID, err)
		}
	}
}

// step checks once and makes the next move.
func (u *Updater) step(ctx context.Context, o Order) (over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	d, s, err := u.observe(ctx)
	if err != nil {
		return false, err
	}
	do, r := decide(o, s)
	image, id := "", ""
	switch do {
	case wait:
		return false, nil
	case leave:
		u.Log.InfoContext(ctx, "nothing is left to do", logkey.Upgrade, o.ID, logkey.Newest, r.ID, logkey.Phase, r.Phase)
		return true, nil
	case begin:
		image, id = r.To, r.ID
	case back:
		image, id = r.From, r.Former
	case confirm:
	}
	text, err := patch(d, r, image, id)
	if err != nil {
		return false, err
	}
	_, err = u.Client.Resource(deployments).Namespace(u.Namespace).Patch(ctx, Deployment, types.StrategicMergePatchType, text, metav1.PatchOptions{FieldManager: Account})
	if err != nil {
		return false, fmt.Errorf("write Deployment %q: %w", Deployment, err)
	}
	u.Log.InfoContext(ctx, "upgrade", logkey.Upgrade, r.ID, logkey.Phase, r.Phase, logkey.From, r.From, logkey.To, r.To, logkey.Message, r.Message)
	return r.Phase != Running, nil
}

// observe reads what a decision depends on. Unreadable pods are no reason to
// wait: they only improve a message.
func (u *Updater) observe(ctx context.Context) (*unstructured.Unstructured, observation, error) {
	s := observation{}
	d, err := u.Client.Resource(deployments).Namespace(u.Namespace).Get(ctx, Deployment, metav1.GetOptions{})
	if err != nil {
		return nil, s, fmt.Errorf("read Deployment %q: %w", Deployment, err)
	}
	var bad [2]error
	s.record, bad[0] = recordOf(d)
	s.image, bad[1] = imageOf(d)
	s.mark = idOf(d)
	if err := errors.Join(bad[:]...); err != nil {
		return nil, s, err
	}
	lease, err := u.Client.Resource(leases).Namespace(u.Namespace).Get(ctx, u.Lease, metav1.GetOptions{})
	switch {
	case err == nil:
		s.proved = lease.GetAnnotations()[Annotation]
	case !apierrors.IsNotFound(err):
		return nil, s, fmt.Errorf("read Lease %q: %w", u.Lease, err)
	}
	if s.record.Phase == Running && s.proved != s.record.ID {
		if s.pods, err = u.watchPods(ctx, d, s.record.ID); err != nil {
			u.Log.WarnContext(ctx, "pods of the new version cannot be read", logkey.Error, err)
		}
	}
	s.now = u.Clock.Now()
	return d, s, nil
}

// watchPods returns the state of an upgrade's pods.
func (u *Updater) watchPods(ctx context.Context, d *unstructured.Unstructured, id string) (state, error) {
	match, _, _ := unstructured.NestedStringMap(d.Object, "spec", "selector", "matchLabels")
	list, err := u.Client.Resource(pods).Namespace(u.Namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.Set(match).String()})
	if err != nil {
		return state{}, fmt.Errorf("list pods: %w", err)
	}
	var out state
	for i := range list.Items {
		if p := &list.Items[i]; p.GetAnnotations()[Annotation] == id {
			one := stateOf(p)
			out.restarts += one.restarts
			if one.problem != "" {
				out.problem = one.problem
			}
		}
	}
	return out, nil
}

// stateOf explains what prevents a pod from running, with the kubelet's reason.
func stateOf(pod *unstructured.Unstructured) state {
	all, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	for _, one := range all {
		if c, _ := one.(map[string]any); c["name"] == Container {
			n, _, _ := unstructured.NestedInt64(c, "restartCount")
			return state{restarts: int(n), problem: containerProblem(c)}
		}
	}
	var out state
	conditions, _, _ := unstructured.NestedSlice(pod.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		if c["type"] == "PodScheduled" && c["status"] == "False" {
			out.problem = "no node accepts its pod: " + brief(c["message"])
		}
	}
	return out
}

// containerProblem explains why a container has ended or does not start.
func containerProblem(status map[string]any) string {
	for _, place := range []string{"state", "lastState"} {
		end, ok, _ := unstructured.NestedMap(status, place, "terminated")
		if !ok {
			continue
		}
		code, _ := end["exitCode"].(int64)
		problem := fmt.Sprintf("its process ended with code %d", code)
		if why := brief(end["message"]); why != "" {
			problem += ": " + why
		}
		return problem
	}
	reason, ok, _ := unstructured.NestedString(status, "state", "waiting", "reason")
	if !ok {
		return ""
	}
	message, _, _ := unstructured.NestedString(status, "state", "waiting", "message")
	return strings.TrimSuffix(reason+": "+brief(message), ": ")
}

// mostBrief limits a foreign text in a message.
const mostBrief = 500

// brief is the end of a text, in one line: the last lines of a log are most
// relevant.
func brief(text any) string {
	s, _ := text.(string)
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "")
	if r := []rune(s); len(r) > mostBrief {
		s = "…" + string(r[len(r)-mostBrief:])
	}
	return s
}
