package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
	"github.com/capstan-cd/capstan/integration/tests/faults"
)

// A round is one application in a namespace of its own, from its creation to
// its deletion, while something breaks.
type round struct {
	t    *testing.T
	name string
	repo *gitserver.Repository
	run  faults.Run
}

func newRound(t *testing.T, name string, seed int64) *round {
	t.Helper()
	r := &round{t: t, name: name, run: faults.Run{
		Seed: seed, Name: name, Namespace: name, Agent: s.Agents[clusterName].User(),
	}}
	var err error
	if r.repo, err = s.Repository(within(t, waitLimit), name, gitserver.RepositoryOptions{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// manifests are six ConfigMaps in two waves behind a hook.
func manifests(value string, names []string) map[string]string {
	return suite.InWaves(value, "300ms", 2, names)
}

// push commits a version.
func (r *round) push(value string, names []string) {
	r.t.Helper()
	c := gitserver.Change{Message: value, Write: manifests(value, names)}
	if len(r.run.Versions) > 0 {
		for _, old := range r.run.Versions[len(r.run.Versions)-1].Names {
			if _, kept := c.Write["app/"+old+".yaml"]; !kept {
				c.Remove = append(c.Remove, "app/"+old+".yaml")
			}
		}
	}
	commit, err := r.repo.Push(within(r.t, waitLimit), c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.run.Versions = append(r.run.Versions, faults.Version{Revision: commit, Names: names})
}

// patiently sends a request until it is answered with other than "not now",
// as a client that knows its key does.
func (r *round) patiently(method, path, key, contentType string, body []byte) (int, []byte) {
	r.t.Helper()
	var status int
	var answer []byte
	err := poll.Until(within(r.t, waitLimit), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, s.Hub.URL+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+s.API.Token)
		req.Header.Set("Content-Type", contentType)
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if answer, err = io.ReadAll(res.Body); err != nil {
			return err
		}
		if status = res.StatusCode; status >= 500 || status == http.StatusTooManyRequests {
			return fmt.Errorf("status %d: %s", status, answer)
		}
		if bytes.Contains(answer, []byte(`"retryable":true`)) { // of one object of several
			return fmt.Errorf("status %d: %s", status, answer)
		}
		return nil
	})
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, answer
}

func (r *round) create(automated bool) {
	r.t.Helper()
	policy := "{syncOptions: [CreateNamespace=true]}"
	if automated {
		policy = "{automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true], retry: {limit: 10, backoff: {duration: 1s, maxDuration: 2s}}}"
	}
	text := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: %[1]s, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source: {repoURL: %[2]q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: %[1]s}
  syncPolicy: %[3]s
`, r.name, r.repo.URL(), policy)
	if status, answer := r.patiently(http.MethodPost, "/api/v1/apply", "", "application/yaml", []byte(text)); status != http.StatusOK || bytes.Contains(answer, []byte(`"error"`)) {
		r.t.Fatalf("apply: %d %s", status, answer)
	}
	r.accepted("create", "")
}

func (r *round) accepted(action, id string) {
	r.run.Accepted = append(r.run.Accepted, faults.Accepted{Action: action, Object: "default/" + r.name, ID: id})
}

// settled waits until the newest version is deployed and nothing is under way.
func (r *round) settled() {
	r.t.Helper()
	want := r.run.Versions[len(r.run.Versions)-1].Revision
	_, err := s.API.Wait(within(r.t, waitLimit), r.name, func(x stack.App) error {
		if x.Status.Sync.Revision != want {
			return fmt.Errorf("revision %s, not %s yet; conditions %v; operation %+v", x.Status.Sync.Revision, want, x.Status.Conditions, x.Status.OperationState)
		}
		return stack.Settled(x)
	})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.story())
	}
}

// sync asks for an operation under a key, as often as it takes, and says
// which one came of it.
func (r *round) sync(key string) string {
	r.t.Helper()
	status, answer := r.patiently(http.MethodPost, "/api/v1/applications/argocd/"+r.name+"/sync", key, "application/json", []byte(`{}`))
	var op struct {
		ID string `json:"id"`
	}
	switch status {
	case http.StatusAccepted:
		if err := json.Unmarshal(answer, &op); err != nil {
			r.t.Fatal(err)
		}
	case http.StatusConflict:
		// Carried out, and the answer was lost.
	default:
		r.t.Fatalf("sync: %d %s", status, answer)
	}
	r.accepted("sync", op.ID)
	return op.ID
}

// edit changes an object behind the agent's back and waits until it is as it
// was.
func (r *round) edit(name, value string) {
	r.t.Helper()
	ctx := within(r.t, waitLimit)
	c := s.Clusters[clusterName]
	o, err := c.Dynamic().Resource(configMaps).Namespace(r.name).Patch(ctx, name, types.MergePatchType, []byte(`{"data":{"v":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.run.Heals++
	r.awaitValue(o.GetName(), value)
}

func (r *round) awaitValue(name, value string) {
	r.t.Helper()
	if _, err := s.Clusters[clusterName].WaitFor(within(r.t, waitLimit), configMaps, r.name, name, valueIs(value)); err != nil {
		r.t.Fatalf("%v\n%s", err, r.story())
	}
}

// remove deletes the application and waits until it and its objects are gone.
func (r *round) remove() {
	r.t.Helper()
	r.run.Deleted = true
	status, answer := r.patiently(http.MethodDelete, "/api/v1/applications/argocd/"+r.name, "", "application/json", nil)
	switch status {
	case http.StatusOK, http.StatusAccepted, http.StatusNoContent, http.StatusNotFound:
	default:
		r.t.Fatalf("delete: %d %s", status, answer)
	}
	r.assertDeleted()
}

func (r *round) assertDeleted() {
	r.t.Helper()
	err := poll.Until(within(r.t, waitLimit), func(ctx context.Context) error {
		x, err := s.API.Get(ctx, r.name)
		if e, ok := err.(*stack.StatusError); ok && e.Status == http.StatusNotFound {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("the application is there: %+v", x.Status)
	})
	if err != nil {
		r.t.Fatalf("%v\n%s", err, r.story())
	}
	ctx := within(r.t, waitLimit)
	for _, v := range r.run.Versions {
		for _, name := range v.Names {
			if err := s.Clusters[clusterName].WaitGone(ctx, configMaps, r.name, name); err != nil && !errors.IsNotFound(err) {
				r.t.Fatalf("%v\n%s", err, r.story())
			}
		}
	}
}

// story says what was done to the parts.
func (r *round) story() string {
	return fmt.Sprintf("seed %d\nhub died at %v, still armed %v\nagent died at %v, still armed %v\nlogs %s %s",
		r.run.Seed, hub.killed(), hub.left(), agent.killed(), agent.left(), s.Hub.LogFile(), s.Agents[clusterName].LogFile())
}

// check runs the checker.
func (r *round) check() {
	r.t.Helper()
	hub.sane(r.t)
	agent.sane(r.t)
	violations := faults.Check(r.run)
	if len(violations) == 0 {
		return
	}
	var all []string
	for _, v := range violations {
		all = append(all, v.String())
	}
	r.t.Errorf("%d invariants are broken, the shortest story first:\n%s\n%s", len(violations), strings.Join(all, "\n"), r.story())
}
