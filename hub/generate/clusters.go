package generate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// What the Secrets of clusters are labelled with in Argo CD. Selectors and
// templates find it on all clusters.
const (
	secretTypeLabel = "argocd.argoproj.io/secret-type"
	clusterSecret   = "cluster"
)

// ownAnnotations are those that tools set for themselves. An application with a
// copy of one would be refreshed without end, or be taken for another one.
func ownAnnotations() []string {
	return []string{
		"argocd.argoproj.io/refresh", "argocd.argoproj.io/hydrate", "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/installation-id",
		"kubectl.kubernetes.io/last-applied-configuration",
	}
}

// allClusters are the clusters of the set's inputs, by name.
func (r *round) allClusters(ctx context.Context) ([]Cluster, error) {
	if r.listed {
		return r.clusters, nil
	}
	all, err := r.in.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Cluster) int {
		if a.Implicit != b.Implicit { // the implicit one is the last
			if a.Implicit {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	r.clusters, r.listed = all, true
	return all, nil
}

// clusterParams makes a parameter set of each selected cluster (AGEN-02).
func (r *round) clusterParams(ctx context.Context, src source) ([]map[string]any, error) {
	var spec hub.ClustersGenerator
	if err := convert(src.config, &spec); err != nil {
		return nil, err
	}
	if err := checkLabels(spec.Selector); err != nil {
		return nil, fmt.Errorf("selector: %w", err)
	}
	all, err := r.allClusters(ctx)
	if err != nil {
		return nil, err
	}
	selects := len(spec.Selector.Labels)+len(spec.Selector.Expressions) > 0
	out := []map[string]any{}
	for _, c := range all {
		if c.Implicit && selects || !c.Implicit && !spec.Selector.Matches(c.secretLabels()) {
			continue
		}
		params := r.ofCluster(c)
		if err := r.addValues(params, spec.Values); err != nil {
			return nil, err
		}
		out = append(out, params)
	}
	if spec.FlatList {
		return []map[string]any{{"clusters": out}}, nil
	}
	return out, nil
}

func (c Cluster) secretLabels() map[string]string {
	out := maps.Clone(c.Labels)
	if out == nil {
		out = map[string]string{}
	}
	out[secretTypeLabel] = clusterSecret
	return out
}

func (r *round) ofCluster(c Cluster) map[string]any {
	params := map[string]any{"name": c.Name, "nameNormalized": template.Normalize(c.Name), "server": c.Server, "project": c.Project}
	if c.Implicit {
		return params
	}
	annotations := make(map[string]string, len(c.Annotations))
	for k, v := range c.Annotations {
		if !slices.Contains(ownAnnotations(), k) {
			annotations[k] = v
		}
	}
	if !r.set.spec.GoTemplate {
		for k, v := range annotations {
			params["metadata.annotations."+k] = v
		}
		for k, v := range c.secretLabels() {
			params["metadata.labels."+k] = v
		}
		return params
	}
	meta := map[string]any{"labels": c.secretLabels()}
	if len(c.Annotations) > 0 {
		meta["annotations"] = annotations
	}
	params["metadata"] = meta
	return params
}

// decisions makes a parameter set of each cluster that is in the status of the
// objects of another tool (AGEN-12).
func (r *round) decisions(ctx context.Context, src source) ([]map[string]any, error) {
	var spec hub.DecisionGenerator
	if err := convert(src.config, &spec); err != nil {
		return nil, err
	}
	selects := len(spec.LabelSelector.Labels)+len(spec.LabelSelector.Expressions) > 0
	if (spec.Name != "") == selects {
		return nil, fault.New(fault.Invalid, "clusterDecisionResource needs either name or labelSelector")
	}
	if err := checkLabels(spec.LabelSelector); err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	all, err := r.allClusters(ctx)
	if err != nil {
		return nil, err
	}
	found, err := r.in.Decision(ctx, DecisionQuery{ConfigMap: spec.ConfigMapRef, Name: spec.Name, Selector: spec.LabelSelector})
	if err != nil {
		return nil, err
	}
	decided, err := found.clusters()
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	for _, d := range decided {
		i := slices.IndexFunc(all, func(c Cluster) bool { return d[found.MatchKey] != nil && c.Name == fmt.Sprint(d[found.MatchKey]) })
		if i < 0 {
			continue
		}
		params := map[string]any{"name": all[i].Name, "server": all[i].Server}
		for k, v := range d {
			params[k] = fmt.Sprint(v)
		}
		r.addFixed(params, spec.Values)
		out = append(out, params)
	}
	return out, nil
}

// addFixed adds values without placeholders.
func (r *round) addFixed(params map[string]any, values map[string]string) {
	if r.set.spec.GoTemplate && len(values) > 0 {
		params["values"] = maps.Clone(values)
		return
	}
	for k, v := range values {
		params["values."+k] = v
	}
}

// clusters are the elements of the lists of all objects. An object without a
// status has decided nothing yet.
func (d Decisions) clusters() ([]map[string]any, error) {
	key := d.ListKey
	if key == "" {
		key = "clusters"
	}
	if d.MatchKey == "" {
		return nil, fault.New(fault.Invalid, "the ConfigMap of the clusterDecisionResource generator has no matchKey")
	}
	if len(d.Objects) == 0 {
		return nil, fault.New(fault.Missing, "there is no object for the clusterDecisionResource generator")
	}
	var out []map[string]any
	for _, o := range d.Objects {
		status := child(o, "status")
		if len(status) == 0 {
			continue
		}
		list, ok := status[key].([]any)
		if !ok {
			return nil, fault.New(fault.Invalid, "an object of the clusterDecisionResource generator has no list status.%s", key)
		}
		for _, element := range list {
			m, ok := element.(map[string]any)
			if !ok {
				return nil, fault.New(fault.Invalid, "an element of status.%s is no map", key)
			}
			out = append(out, m)
		}
	}
	return out, nil
}
