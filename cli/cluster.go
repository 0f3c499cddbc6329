package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/argocd"
	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/upgrade"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) clusterCommand() *cobra.Command {
	return noun("cluster", "Clusters: enroll, list, get, set, upgrade, remove, revoke, accept-hub, keep", []string{"clusters"},
		a.clusterEnroll(), a.clusterList(), argocd.ClusterGet(a.env()), a.clusterSet(), upgrade.Command(a.env()), a.clusterRemove(), a.clusterRevoke(), a.clusterAccept(), a.clusterKeep())
}

func (a *app) clusterEnroll() *cobra.Command {
	var server, life string
	var labels, annotations map[string]string
	var tokenOnly bool
	var scope scopeFlags
	c := &cobra.Command{
		Use: "enroll NAME", Short: "Make a cluster and a join token for its agent", Args: usage.Exactly("the name of the cluster"),
		Example: "  capstan cluster enroll production\n  capstan cluster enroll edge-7 --label site=oslo --token-only",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			body := apimodel.EnrollClusterJSONRequestBody{Name: args[0], Server: server, ExpiresIn: life}
			if len(labels) > 0 {
				m := apimodel.StringMap(labels)
				body.Labels = m
			}
			if len(annotations) > 0 {
				body.Annotations = annotations
			}
			body.Scope = scope.given(cmd.Flags(), nil)
			e, raw, err := client.Call[apimodel.Enrolment](api.EnrollCluster(cmd.Context(), body))
			if err != nil {
				return err
			}
			if tokenOnly {
				_, err := fmt.Fprintln(a.Out, e.JoinToken)
				return err
			}
			if a.Format != "table" && a.Format != "wide" {
				return a.Print(raw, output.Table{Names: []string{"cluster/" + e.Cluster.Name}})
			}
			fmt.Fprintf(a.Out, "Cluster %s waits for its agent. In the cluster, until %s, once:\n\n%s\n\nOr start the agent yourself:\n\n%s\n",
				e.Cluster.Name, e.ExpiresAt.Local().Format("15:04 MST"), e.Helm, e.Command)
			return nil
		},
	}
	c.Flags().StringVar(&server, "server-alias", "", "URL that destinations may name the cluster by; the hub never dials it")
	c.Flags().StringVar(&life, "expires-in", "", "how long the join token can be used (default 1h)")
	c.Flags().StringToStringVarP(&labels, "label", "l", nil, "labels of the cluster")
	c.Flags().StringToStringVar(&annotations, "annotation", nil, "annotations of the cluster")
	c.Flags().BoolVar(&tokenOnly, "token-only", false, "print the join token alone")
	scope.add(c.Flags())
	return c
}

func (a *app) clusterList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List clusters and the state of their agents", Aliases: []string{"ls"}, Args: usage.Exactly(),
		Example: "  capstan cluster list\n  capstan cluster list -o wide",
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			l, raw, err := client.Call[struct {
				Items []apimodel.Cluster `json:"items"`
			}](api.ListClusters(cmd.Context()))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"NAME", "AGENT", "LAST SEEN", "KUBERNETES", "DELIVERED", "SERVER", "PROJECT", "NAMESPACES", "AGENT VERSION", "LAST UPGRADE", "LAST REFUSAL"}, Wide: 5}
			for _, c := range l.Items {
				t.Rows = append(t.Rows, []string{
					c.Name, agentState(c), output.Ago(c.LastSeen), output.Dash(c.KubeVersion),
					fmt.Sprintf("%d/%d", c.AckedSeq, c.Seq), output.Dash(c.Server), scopeOf(c).project(), scopeOf(c).namespaces(), output.Dash(c.AgentVersion), upgrade.Last(c), lastRefusal(c),
				})
				t.Names = append(t.Names, "cluster/"+c.Name)
			}
			if err := a.Print(raw, t); err != nil || a.Format != "table" && a.Format != "wide" {
				return err
			}
			return a.explainClusters(l.Items)
		},
	}
}

// lastRefusal explains the last refusal of an agent.
func lastRefusal(c apimodel.Cluster) string {
	if !client.Given(c.Refusal) {
		return "-"
	}
	return fmt.Sprintf("%s (%s) from %s: %s", c.Refusal.Stage, output.Ago(c.Refusal.At), c.Refusal.Address, c.Refusal.Message)
}

func (a *app) clusterRemove() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "remove NAME", Short: "Remove a cluster and revoke its agent; nothing in the cluster is deleted", Aliases: []string{"rm"},
		Example: "  capstan cluster remove edge-7\n  capstan cluster remove edge-7 --yes", Args: usage.Exactly("the name of the cluster"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if err := a.announce(yes, func() (*http.Response, error) { return api.GetClusterDeletion(cmd.Context(), args[0]) }); err != nil {
				return err
			}
			if err := a.confirm(yes, "Remove cluster "+args[0]+"?"); err != nil {
				return err
			}
			_, err = client.Read(api.DeleteCluster(cmd.Context(), args[0]))
			return err
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
