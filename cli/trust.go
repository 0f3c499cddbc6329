package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// agentState is how an agent stands, in few words.
func agentState(c apimodel.Cluster) string {
	switch {
	case client.Given(c.Quarantine):
		return "Quarantined"
	case client.Given(c.Rewind):
		return string(c.Connection) + " (hub rewound)"
	}
	return string(c.Connection)
}

// explainClusters says below a list what waits for a person.
func (a *app) explainClusters(clusters []apimodel.Cluster) error {
	var held bool
	for _, c := range clusters {
		held = held || c.Held
		if r := c.Rewind; client.Given(r) {
			seen := "has not connected yet"
			if r.AgentSeq > 0 {
				seen = fmt.Sprintf("has row %d", r.AgentSeq)
			}
			fmt.Fprintf(a.Out, "\n%s accepts no change since %s: %s. Its agent %s, the hub's log ended at row %d.\n  Accept the hub's state: capstan cluster accept-hub %s\n",
				c.Name, r.Since.Local().Format("2006-01-02 15:04 MST"), r.Reason, seen, r.HubSeq, c.Name)
		}
		if q := c.Quarantine; client.Given(q) {
			fmt.Fprintf(a.Out, "\n%s: cloned? Two Kubernetes clusters use its identity since %s, the later one from %s. Both are refused.\n  Choose one: capstan cluster keep %s --fingerprint %s (the one that enrolled) or %s\n",
				c.Name, q.Since.Local().Format("2006-01-02 15:04 MST"), q.Address, c.Name, q.Known, q.Other)
		}
		if r := c.Refused; client.Given(r) {
			fmt.Fprintf(a.Out, "\n%s: a second agent process with the same identity was refused at %s, from %s.\n", c.Name, r.At.Local().Format("15:04:05 MST"), r.Address)
		}
	}
	if held {
		fmt.Fprint(a.Out, "\nThe hub was restored from a backup: enrolment and pruning are stopped until every such cluster is accepted.\n")
	}
	return nil
}

func (a *app) clusterAccept() *cobra.Command {
	var yes, all bool
	c := &cobra.Command{
		Use: "accept-hub [NAME]", Short: "Accept the hub's state for a cluster whose agent has a newer log, as after a restore",
		Long: "After the hub was restored from a backup, agents with a newer log accept no change and enforce what they have.\n" +
			"This command makes the agent of a cluster accept the hub's state. It deletes nothing.",
		Example: "  capstan cluster accept-hub production\n  capstan cluster accept-hub --all --yes",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if all == (len(args) == 1) {
				return usage.Errorf("name one cluster, or give --all")
			}
			names := args
			if all {
				if names, err = rewoundClusters(cmd.Context(), api); err != nil {
					return err
				}
			}
			return a.acceptAll(cmd.Context(), api, names, yes)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "every cluster of the tenant that waits for it")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

// rewoundClusters are the names of those whose agents have a newer log than the hub.
func rewoundClusters(ctx context.Context, api *client.Client) ([]string, error) {
	l, _, err := client.Call[struct {
		Items []apimodel.Cluster `json:"items"`
	}](api.ListClusters(ctx))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range l.Items {
		if client.Given(c.Rewind) {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

// acceptAll makes the agents of clusters accept the hub's state, after a question.
func (a *app) acceptAll(ctx context.Context, api *client.Client, names []string, yes bool) error {
	if len(names) == 0 {
		_, err := fmt.Fprintln(a.Out, "No cluster waits for this decision.")
		return err
	}
	if err := a.confirm(yes, fmt.Sprintf("Accept the hub's state for %d clusters?", len(names))); err != nil {
		return err
	}
	for _, name := range names {
		if _, err := client.Read(api.AcceptHub(ctx, name)); err != nil {
			return err
		}
		fmt.Fprintf(a.Out, "cluster/%s accepts the hub's state\n", name)
	}
	return nil
}

func (a *app) clusterKeep() *cobra.Command {
	var fingerprint string
	c := &cobra.Command{
		Use: "keep NAME", Short: "End a quarantine: choose which of two Kubernetes clusters keeps the identity", Args: usage.Exactly("the name of the cluster"),
		Example: "  capstan cluster keep production --fingerprint 0b6c1d2e-5a55-4d52-8f6c-0f5d9c7e1b11",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if fingerprint == "" {
				return usage.Errorf("--fingerprint is needed: kubectl get namespace kube-system -o jsonpath={.metadata.uid}")
			}
			_, err = client.Read(api.KeepCluster(cmd.Context(), args[0], apimodel.KeepClusterJSONRequestBody{Fingerprint: fingerprint}))
			return err
		},
	}
	c.Flags().StringVar(&fingerprint, "fingerprint", "", "UID of the namespace kube-system of the cluster that keeps it")
	return c
}

func (a *app) clusterRevoke() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "revoke NAME", Short: "End a cluster's agent with all its certificates; the cluster stays", Args: usage.Exactly("the name of the cluster"),
		Example: "  capstan cluster revoke edge-7\n  capstan cluster enroll edge-7",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			if err := a.confirm(yes, "Revoke the agent of cluster "+args[0]+"?"); err != nil {
				return err
			}
			_, err = client.Read(api.RevokeAgent(cmd.Context(), args[0]))
			return err
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
