// Package upgrade has the command that upgrades agents, and waits until they run
// the new version or have gone back. Package cli adds it to its own.
package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/command"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// upgradePoll is the polling interval of a wait for upgrades.
const upgradePoll = 2 * time.Second

// upgrading is what an upgrade of agents is to be.
type upgrading struct {
	image    string
	labels   map[string]string
	deadline time.Duration
	batch    int
	wait     bool
	timeout  time.Duration
}

type commands struct{ *command.Env }

// Command is the command cluster upgrade.
func Command(env *command.Env) *cobra.Command { return commands{env}.clusterUpgrade() }

func (a commands) clusterUpgrade() *cobra.Command {
	var u upgrading
	c := &cobra.Command{
		Use: "upgrade [NAME...] --image IMAGE", Short: "Upgrade agents; a version that fails to connect is rolled back automatically",
		Long: "Orders the agents of clusters to exchange their image. An updater in the cluster puts the new one in the place of the old one, and brings\n" +
			"the old one back if the new version is not connected within the deadline. The owner of a cluster allows it with upgrades.enabled=true\n" +
			"in the agent's chart. With --batch so many clusters are upgraded at a time, and the first that fails stops the rest.",
		Example: "  capstan cluster upgrade edge-7 --image registry.example.com/capstan-agent:v1.2.3 --wait\n  capstan cluster upgrade -l site=oslo --image registry.example.com/capstan-agent:v1.2.3 --batch 5",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.Client()
			if err != nil {
				return err
			}
			switch {
			case u.image == "":
				return usage.Errorf("--image is needed: the full reference of the new image")
			case (len(args) == 0) == (len(u.labels) == 0):
				return usage.Errorf("name clusters, or choose them with --selector")
			case u.batch < 0:
				return usage.Errorf("--batch is less than nothing")
			}
			names, err := u.choose(cmd.Context(), api, args)
			if err != nil {
				return err
			}
			return a.upgradeAll(cmd.Context(), api, names, u)
		},
	}
	f := c.Flags()
	f.StringVar(&u.image, "image", "", "full reference of the new image, with a tag or a digest")
	f.StringToStringVarP(&u.labels, "selector", "l", nil, "the clusters with these labels, instead of names")
	f.DurationVar(&u.deadline, "deadline", 0, "how long a new version has to connect (default 5m)")
	f.IntVar(&u.batch, "batch", 0, "how many clusters at a time; waits for each batch and stops at the first failure (default all at once)")
	f.BoolVar(&u.wait, "wait", false, "wait until the upgrades are over; fails if one was rolled back")
	f.DurationVar(&u.timeout, "timeout", 15*time.Minute, "how long to wait for each batch")
	return c
}

// choose returns the names of the clusters that are meant, each once.
func (u upgrading) choose(ctx context.Context, api *client.Client, names []string) ([]string, error) {
	if len(u.labels) == 0 {
		var once []string
		for _, n := range names {
			if !slices.Contains(once, n) {
				once = append(once, n)
			}
		}
		return once, nil
	}
	l, _, err := client.Call[struct {
		Items []apimodel.Cluster `json:"items"`
	}](api.ListClusters(ctx))
	if err != nil {
		return nil, err
	}
	for _, c := range l.Items {
		has := c.Labels
		chosen := true
		for k, v := range u.labels {
			held, ok := has[k]
			chosen = chosen && ok && held == v
		}
		if chosen {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil, fault.New(fault.Missing, "no cluster has these labels")
	}
	return names, nil
}

// upgradeAll orders batch after batch.
func (a commands) upgradeAll(ctx context.Context, api *client.Client, names []string, u upgrading) error {
	size := len(names)
	if u.batch > 0 {
		size, u.wait = u.batch, true
	}
	for batch := range slices.Chunk(names, size) {
		orders := map[string]string{}
		for _, name := range batch {
			body := apimodel.UpgradeAgentJSONRequestBody{Image: u.image, DeadlineSeconds: int64(u.deadline.Seconds())}
			c, _, err := client.Call[apimodel.Cluster](api.UpgradeAgent(ctx, name, body))
			if err != nil {
				return err
			}
			if client.Given(c.Upgrade) {
				orders[name] = c.Upgrade.Id
			}
			fmt.Fprintf(a.Err, "cluster/%s is to run %s\n", name, u.image)
		}
		if u.wait {
			if err := a.awaitUpgrades(ctx, api, orders, u); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitUpgrades waits until every order is over, and fails if one did not
// succeed.
func (a commands) awaitUpgrades(ctx context.Context, api *client.Client, orders map[string]string, u upgrading) error {
	ctx, cancel := context.WithTimeoutCause(ctx, u.timeout, exit.ErrTimeout)
	defer cancel()
	var failed []string
	open := slices.Sorted(maps.Keys(orders))
	for {
		rest, lost, err := a.reportUpgrades(ctx, api, open, orders)
		if err != nil {
			return err
		}
		open, failed = rest, append(failed, lost...)
		if len(open) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("upgrade of %s: %w after %s", strings.Join(open, ", "), context.Cause(ctx), u.timeout)
		case <-time.After(upgradePoll):
		}
	}
	if len(failed) > 0 {
		return fault.New(fault.Conflict, "not upgraded: %s", strings.Join(failed, ", "))
	}
	return nil
}

// reportUpgrades prints the upgrades that are over, and returns the names of the
// others and of those that failed.
func (a commands) reportUpgrades(ctx context.Context, api *client.Client, names []string, orders map[string]string) (open, failed []string, err error) {
	for _, name := range names {
		u, over, err := endedUpgrade(ctx, api, name, orders[name])
		if err != nil {
			return nil, nil, err
		}
		if !over {
			open = append(open, name)
			continue
		}
		fmt.Fprintf(a.Out, "cluster/%s %s: %s\n", name, u.Phase, output.Dash(u.Message))
		if u.Phase != "Succeeded" {
			failed = append(failed, name)
		}
	}
	return open, failed, nil
}

// endedUpgrade reads the upgrade of an agent that was ordered. It is not over while it
// lasts, or once the context has ended.
func endedUpgrade(ctx context.Context, api *client.Client, name, order string) (u apimodel.AgentUpgrade, over bool, err error) {
	c, _, err := client.Call[apimodel.Cluster](api.GetCluster(ctx, name))
	switch u = c.Upgrade; {
	case ctx.Err() != nil:
		return u, false, nil
	case err != nil:
		return u, false, err
	case !client.Given(u) || u.Id != order:
		return u, false, fault.New(fault.Conflict, "cluster %s: a newer upgrade has replaced this one", name)
	}
	return u, u.Phase != "Pending" && u.Phase != "Running", nil
}

// Last says how the newest upgrade of an agent stands.
func Last(c apimodel.Cluster) string {
	u := c.Upgrade
	if !client.Given(u) {
		return "-"
	}
	text := string(u.Phase) + " (" + output.Ago(u.OrderedAt) + ") " + u.Image
	if m := u.Message; m != "" {
		text += ": " + m
	}
	return text
}
