package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

const (
	// mostSettle is for a cluster that has to pull images first.
	mostSettle = 10 * time.Minute
	mostPush   = 2 * time.Minute
	mostLeave  = 2 * time.Minute
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// A demo is an installation with the sample applications.
type demo struct {
	options options
	dir     string
	s       *stack.Stack
	repo    *gitserver.Repository
	apps    []app
}

// show deploys the samples, pushes a change, and continues until ctx ends.
func (d *demo) show(ctx context.Context) error {
	begun := time.Now()
	var err error
	if d.repo, err = d.s.Repository(ctx, "sample", gitserver.RepositoryOptions{}); err != nil {
		return err
	}
	if _, err := d.repo.Commit(ctx, "Add the sample applications", sample); err != nil {
		return err
	}
	var manifests strings.Builder
	for _, a := range d.apps {
		manifests.WriteString(a.manifest(d.repo.URL()))
	}
	if _, err := d.s.API.Apply(ctx, manifests.String()); err != nil {
		return err
	}
	cause, err := d.settle(ctx)
	if err != nil {
		return err
	}
	took, err := d.push(ctx)
	if err != nil {
		return err
	}
	say("%-18s ready after %.1f s", fmt.Sprintf("%d applications", len(d.apps)), time.Since(begun).Seconds())
	if d.options.once {
		healthy := slices.DeleteFunc(slices.Clone(d.apps), func(a app) bool { return a.broken })
		say("demo: %d applications Synced and Healthy; push to applied in %d ms; %.1f s in all",
			len(healthy), took.Milliseconds(), time.Since(d.options.begun).Seconds())
		return nil
	}
	return d.live(ctx, took, cause)
}

// settle waits until the samples are Synced and Healthy and the cause of the
// broken one is known, which it returns. A failure names the application and
// why.
func (d *demo) settle(ctx context.Context) (cause string, err error) {
	ctx, cancel := context.WithTimeout(ctx, mostSettle)
	defer cancel()
	for _, a := range d.apps {
		check := stack.Settled
		if a.broken {
			check = degraded
		}
		if _, err := d.s.API.Wait(ctx, a.name, check); err != nil {
			return "", err
		}
		if a.broken {
			err := poll.Until(ctx, func(ctx context.Context) (err error) {
				cause, err = d.cause(ctx, a)
				return err
			})
			if err != nil {
				return "", err
			}
		}
	}
	return cause, nil
}

// degraded is a check: applied, and not healthy.
func degraded(x stack.App) error {
	if h := x.Status.Health; h.Status != "Degraded" {
		return fmt.Errorf("%s is %s (%s), and is to be Degraded", x.Metadata.Name, h.Status, h.Message)
	}
	return nil
}

// cause is what the hub says of the pod that does not start.
func (d *demo) cause(ctx context.Context, a app) (string, error) {
	var tree struct {
		Nodes []struct {
			Kind, Name, Health, Message string
		}
	}
	if err := d.s.API.Do(ctx, http.MethodGet, "/api/v1/applications/argocd/"+a.name+"/tree", nil, &tree); err != nil {
		return "", err
	}
	for _, n := range tree.Nodes {
		if n.Kind == "Pod" && n.Health == "Degraded" {
			return fmt.Sprintf("%s %s is %s: %s", n.Kind, n.Name, n.Health, n.Message), nil
		}
	}
	return "", fmt.Errorf("no pod of %s is Degraded", a.name)
}

// push changes one file and measures from the end of git push to the moment
// when a watch on the cluster sees the new value.
func (d *demo) push(ctx context.Context) (time.Duration, error) {
	a := d.apps[0]
	cluster := d.s.Clusters[a.cluster]
	greeting := fmt.Sprintf("hello at %s", time.Now().Format(time.RFC3339Nano))
	ctx, cancel := context.WithTimeout(ctx, mostPush)
	defer cancel()
	seen := make(chan error, 1)
	var at time.Time
	go func() {
		_, err := cluster.WaitFor(ctx, configMaps, a.namespace(), "greeting", func(o *unstructured.Unstructured) error {
			if got, _, _ := unstructured.NestedString(o.Object, "data", "text"); got != greeting {
				return fmt.Errorf("the text is %q", got)
			}
			return nil
		})
		at = time.Now()
		seen <- err
	}()
	if _, err := d.repo.Commit(ctx, "Change the greeting", map[string]string{"guestbook/greeting.yaml": configMap("greeting", greeting)}); err != nil {
		return 0, err
	}
	pushed := time.Now()
	if err := <-seen; err != nil {
		return 0, fmt.Errorf("the push did not reach the cluster: %w", err)
	}
	return max(0, at.Sub(pushed)), nil
}

// leave removes the samples from clusters that keep running. The agents stop
// first: they would restore everything.
func (d *demo) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), mostLeave)
	defer cancel()
	var errs []error
	for _, a := range d.apps {
		c := d.s.Clusters[a.cluster]
		if !c.Attached() {
			continue
		}
		errs = append(errs, d.s.Agents[a.cluster].Stop())
		err := c.Dynamic().Resource(namespaces).Delete(ctx, a.namespace(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete namespace %s: %w", a.namespace(), err))
		}
	}
	return errors.Join(errs...)
}
