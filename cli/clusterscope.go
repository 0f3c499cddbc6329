package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// scopeFlags are what the registration of a cluster limits it to.
type scopeFlags struct {
	project    string
	namespaces []string
	resources  bool
	shard      int64
}

func (s *scopeFlags) add(f *pflag.FlagSet) {
	f.StringVar(&s.project, "project", "", "project whose applications may have the cluster as their destination without an entry in the project")
	f.StringSliceVar(&s.namespaces, "namespace", nil, "the only namespaces that are managed (default: all)")
	f.BoolVar(&s.resources, "cluster-resources", false, "with --namespace: manage cluster-scoped objects, too")
	f.Int64Var(&s.shard, "shard", 0, "stored without effect: every cluster has an agent of its own")
}

// given is a cluster's scope with the flags that were given; nil: none was.
func (s *scopeFlags) given(f *pflag.FlagSet, old *apimodel.ClusterScope) *apimodel.ClusterScope {
	out := apimodel.ClusterScope{}
	if old != nil {
		out = *old
	}
	changed := false
	for name, set := range map[string]func(){
		"project": func() { out.Project = s.project }, "namespace": func() { out.Namespaces = nonEmpty(s.namespaces) },
		"cluster-resources": func() { out.ClusterResources = s.resources }, "shard": func() { out.Shard = &s.shard },
	} {
		if f.Changed(name) {
			set()
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return &out
}

// nonEmpty leaves out empty texts: --namespace= is an empty list.
func nonEmpty(all []string) (out []string) {
	for _, s := range all {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// clusterScope is what a cluster's scope is shown as.
type clusterScope apimodel.ClusterScope

func scopeOf(c apimodel.Cluster) clusterScope {
	if c.Scope == nil {
		return clusterScope{}
	}
	return clusterScope(*c.Scope)
}

func (s clusterScope) project() string { return output.Dash(s.Project) }

func (s clusterScope) namespaces() string { return output.Dash(strings.Join(s.Namespaces, ",")) }

// clusterSet changes what users wrote of a cluster.
func (a *app) clusterSet() *cobra.Command {
	var scope scopeFlags
	var server string
	var labels, annotations map[string]string
	c := a.named("set NAME", "Change the server alias, labels, project and namespaces of a cluster; what is not given stays", "the name of the cluster",
		"  capstan cluster set production --project shop\n  capstan cluster set edge-7 --namespace shop --namespace blog --cluster-resources=false",
		func(cmd *cobra.Command, api *client.Client, name string) error {
			if cmd.Flags().NFlag() == 0 {
				return usage.Errorf("nothing to set; name a field by its flag")
			}
			res, err := api.GetCluster(cmd.Context(), name)
			var tag string
			if err == nil {
				tag = res.Header.Get("ETag")
			}
			old, _, err := client.Call[apimodel.Cluster](res, err)
			if err != nil {
				return err
			}
			body := apimodel.UpdateClusterJSONRequestBody{Server: old.Server, Labels: old.Labels, Annotations: old.Annotations, Scope: scope.given(cmd.Flags(), old.Scope)}
			if cmd.Flags().Changed("server-alias") {
				body.Server = server
			}
			if cmd.Flags().Changed("label") {
				body.Labels = labels
			}
			if cmd.Flags().Changed("annotation") {
				body.Annotations = annotations
			}
			stored, raw, err := client.Call[apimodel.Cluster](api.UpdateCluster(cmd.Context(), name, apimodel.UpdateClusterParams{IfMatch: tag}, body))
			if err != nil {
				return err
			}
			return a.Print(raw, output.Table{
				Head: []string{"NAME", "SERVER", "PROJECT", "NAMESPACES"}, Names: []string{"cluster/" + name},
				Rows: [][]string{{name, output.Dash(stored.Server), scopeOf(stored).project(), scopeOf(stored).namespaces()}},
			})
		})
	scope.add(c.Flags())
	c.Flags().StringVar(&server, "server-alias", "", "URL that destinations may name the cluster by; the hub never dials it")
	c.Flags().StringToStringVarP(&labels, "label", "l", nil, "labels of the cluster, instead of those that it has")
	c.Flags().StringToStringVar(&annotations, "annotation", nil, "annotations of the cluster, instead of those that it has")
	return c
}
