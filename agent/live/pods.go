package live

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Pods returns the pods of an application with their containers.
func (s *Server) Pods(ctx context.Context, r *linkv1.PodsRequest) (*linkv1.PodsResponse, error) {
	of := manifest.Key{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}
	if r.GetAppId() == "" || (of.Kind == "") != (of.Name == "") {
		return nil, fault.New(fault.Invalid, "pods are asked for by application, and by kind and name of an object")
	}
	gone := s.kept.pods(r.GetAppId(), of)
	if of != (manifest.Key{}) && !s.cfg.Cluster.Belongs(r.GetAppId(), of) {
		if len(gone) > 0 {
			return &linkv1.PodsResponse{Pods: gone}, nil
		}
		return nil, fault.With(fault.New(fault.Missing, "it does not belong to the application"), of.Describe(), "")
	}
	out := &linkv1.PodsResponse{}
	for i, key := range s.cfg.Cluster.Pods(r.GetAppId(), of) {
		if n := int(r.GetLimit()); n > 0 && i >= n { // the caller learns that there are more
			out.Pods = append(out.Pods, &linkv1.Pod{Namespace: key.Namespace, Name: key.Name})
			continue
		}
		o, err := s.cfg.Cluster.Read(ctx, r.GetAppId(), key, "v1")
		if fault.KindOf(err) == fault.Missing {
			continue
		}
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, describePod(o))
	}
	if len(out.Pods) == 0 { // what is left of those that were there
		out.Pods = gone
	}
	return out, nil
}

// describePod returns a pod with its containers: those of the specification, with
// their state.
func describePod(o *manifest.Object) *linkv1.Pod {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	p := &linkv1.Pod{Namespace: o.GetNamespace(), Name: o.GetName(), Uid: string(o.GetUID()), Phase: phase}
	for _, kind := range [...]struct {
		spec, status    string
		init, ephemeral bool
	}{
		{"initContainers", "initContainerStatuses", true, false},
		{"containers", "containerStatuses", false, false},
		{"ephemeralContainers", "ephemeralContainerStatuses", false, true},
	} {
		states := map[string]map[string]any{}
		for _, s := range list(o, "status", kind.status) {
			name, _ := s["name"].(string)
			states[name] = s
		}
		for _, c := range list(o, "spec", kind.spec) {
			name, _ := c["name"].(string)
			p.Containers = append(p.Containers, describeContainer(name, kind.init, kind.ephemeral, states[name]))
		}
	}
	return p
}

func describeContainer(name string, initial, ephemeral bool, status map[string]any) *linkv1.Container {
	out := &linkv1.Container{Name: name, Init: initial, Ephemeral: ephemeral}
	restarts, _ := status["restartCount"].(int64)
	out.Restarts = uint32(max(0, min(restarts, 1<<31)))
	for _, state := range [...]string{"running", "waiting", "terminated"} {
		s, ok, _ := unstructured.NestedMap(status, "state", state)
		if !ok {
			continue
		}
		reason, _ := s["reason"].(string)
		out.State, out.Reason = state, cmp.Or(reason, out.Reason)
		if at, _ := s["startedAt"].(string); at != "" {
			out.StartedUnix = seconds(at)
		}
	}
	return out
}

func list(o *manifest.Object, path ...string) []map[string]any {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
	items, _ := v.([]any)
	var out []map[string]any
	for _, item := range items {
		if m, ok := item.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// seconds is a time of the API in Unix seconds; 0 for none.
func seconds(text string) int64 {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return t.Unix()
}
