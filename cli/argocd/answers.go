package argocd

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/usage"
)

// An Answer says how something is done here that Argo CD has a command for.
type Answer struct {
	Path string // words of the command
	Says string // what to do instead
}

const (
	later      = "this release has no such command yet; "
	byApply    = later + "write the object into a file, and `capstan apply -f FILE`"
	asManifest = "`capstan export` writes it as a manifest; `capstan apply -f FILE` takes it"
)

// Answers lists the commands of Argo CD that are done in another way here, or
// not yet. A command that exists here is never hidden by its answer.
func Answers() []Answer {
	return []Answer{
		{"account list", later + "`capstan whoami` shows who is signed in"},
		{"account get", later + "`capstan whoami` shows who is signed in"},
		{"account get-user-info", "`capstan whoami` shows who is signed in"},
		{"account can-i", later + "`capstan whoami -o yaml` shows what you may do"},
		{"account bcrypt", "passwords are hashed by the hub, with argon2id: `capstan setup` sets the first one"},
		{"account generate-token", "`capstan token create NAME`"},
		{"account delete-token", "`capstan token revoke ID`"},
		{"account session-token", "`capstan token create NAME` makes a token for programs"},
		{"account update-password", later + "change it in the console"},
		{"admin app diff-reconcile-results", "`capstan app diff NAME --revision REV` compares revisions, and every render is recorded"},
		{"admin app get-reconcile-results", "`capstan app list -o json` has the result of every comparison"},
		{"admin app generate-spec", asManifest},
		{"admin cluster generate-spec", "a cluster has no credentials here: `capstan cluster enroll NAME`"},
		{"admin cluster kubeconfig", "the hub has no credentials of clusters; ask the owner of the cluster for a kubeconfig"},
		{"admin cluster namespaces", "the agent's chart grants namespaces: `--set mode=namespaced`"},
		{"admin cluster enable-namespaced-mode", "install the agent with `--set mode=namespaced`"},
		{"admin cluster disable-namespaced-mode", "install the agent with `--set mode=cluster`"},
		{"admin cluster shards", "each cluster has an agent of its own, so nothing is distributed; `capstan cluster list -o wide` shows them"},
		{"admin cluster stats", "`capstan cluster list -o wide` shows the agents, and the hub's metrics the rest"},
		{"admin dashboard", "the hub serves the console itself: open its address in a browser"},
		{"admin initial-password", "there is none: the hub prints a setup link at its first start, for `capstan setup`"},
		{"admin redis-initial-password", "there is no Redis"},
		{"admin proj generate-spec", asManifest},
		{"admin proj update-role-policy", byApply},
		{"admin repo generate-spec", asManifest},
		{"admin settings validate", "`capstan apply -f argocd-cm.yaml --dry-run` checks every key"},
		{"admin settings rbac can", later + "`capstan whoami -o yaml` shows what you may do"},
		{"admin settings rbac validate", "`capstan apply -f argocd-rbac-cm.yaml --dry-run` checks the lines"},
		{"admin settings resource-overrides health", "`capstan app get NAME` shows the health of live objects; a script is checked when it is set"},
		{"admin settings resource-overrides ignore-differences", "`capstan app diff NAME` shows what is ignored"},
		{"admin settings resource-overrides ignore-resource-updates", "an update of fields that are not ours changes no result, so nothing is to be tried out"},
		{"cluster add", "a cluster is enrolled from inside, without credentials: `capstan cluster enroll NAME`"},
		{"cluster set", later + "`capstan apply -f` takes a cluster's Secret with its labels"},
		{"cluster rotate-auth", "agents renew their certificates by themselves; `capstan cluster revoke NAME` ends them at once"},
		{"proj add-destination", byApply}, {"proj remove-destination", byApply},
		{"proj add-destination-service-account", byApply}, {"proj remove-destination-service-account", byApply},
		{"proj add-source", byApply}, {"proj remove-source", byApply},
		{"proj add-source-namespace", byApply}, {"proj remove-source-namespace", byApply},
		{"proj add-orphaned-ignore", byApply}, {"proj remove-orphaned-ignore", byApply},
		{"proj add-signature-key", byApply}, {"proj remove-signature-key", byApply},
		{"proj allow-cluster-resource", byApply}, {"proj deny-cluster-resource", byApply},
		{"proj allow-namespace-resource", byApply}, {"proj deny-namespace-resource", byApply},
		{"proj edit", "`capstan project get NAME -o yaml`, change the text, and `capstan apply -f FILE`"},
		{"proj set", byApply},
		{"proj role add-group", byApply}, {"proj role add-policy", byApply}, {"proj role create", byApply}, {"proj role create-token", byApply},
		{"proj role delete", byApply}, {"proj role delete-token", byApply}, {"proj role get", byApply}, {"proj role list", byApply},
		{"proj role list-tokens", byApply}, {"proj role remove-group", byApply}, {"proj role remove-policy", byApply},
	}
}

// Complete adds a hidden command for each answer whose command does not exist.
// It ends like wrong usage, with the answer as its message.
func Complete(root *cobra.Command) {
	for _, a := range Answers() {
		parent := root
		path := strings.Fields(a.Path)
		for i, word := range path {
			next := child(parent, word)
			if next == nil {
				next = &cobra.Command{Use: word, Hidden: true, Args: usage.Verb, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
				if i == len(path)-1 {
					next = answering(word, a)
				}
				parent.AddCommand(next)
			}
			parent = next
		}
	}
}

func answering(word string, a Answer) *cobra.Command {
	return &cobra.Command{
		Use: word, Hidden: true, Short: "Says how this is done here", DisableFlagParsing: true,
		Long: "argocd " + a.Path + ": " + a.Says + ".",
		RunE: func(*cobra.Command, []string) error { return usage.Errorf("%s: %s", a.Path, a.Says) },
	}
}

// child finds a command by its name or an alias.
func child(parent *cobra.Command, word string) *cobra.Command {
	for _, c := range parent.Commands() {
		if c.Name() == word || c.HasAlias(word) {
			return c
		}
	}
	return nil
}
