package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/actions"
	"github.com/capstan-cd/capstan/cli/argocd"
	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/live"
	"github.com/capstan-cd/capstan/cli/lookup"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/cli/wait"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/appquery"
	"github.com/capstan-cd/capstan/shared/fault"
)

func (a *app) applicationCommand() *cobra.Command {
	c := noun("app", "Applications: list, show, create, change, sync, roll back", []string{"application", "applications"},
		a.appList(), a.appGet(), a.appTree(), a.appSync(), a.appBulk(), a.appWait(), a.appDiff(), a.appHistory(), a.appRollback(), a.appResume(),
		a.appRefresh(), a.appTerminate(), a.appOpen(), a.appManifests(), actions.App(a.env()), a.appDelete(), a.appConfirm(), a.appAbandon(), a.appDeleteResource(), a.applicationImpersonation())
	c.AddCommand(argocd.Applications(a.env())...)
	c.AddCommand(live.App(a.env())...)
	c.AddCommand(lookup.Revision(a.env()))
	return inNamespace(c)
}

// inNamespace gives the verbs about one application the flag --app-namespace
// (ANY-03). A name with its namespace, as in team-a/web, needs none.
func inNamespace(app *cobra.Command) *cobra.Command {
	for _, verb := range app.Commands() {
		do := verb.RunE
		if do == nil || !strings.Contains(verb.Use, "NAME") {
			continue
		}
		var namespace string
		verb.Flags().StringVarP(&namespace, "app-namespace", "N", "", "namespace of the application (default: argocd)")
		verb.RunE = func(cmd *cobra.Command, args []string) error {
			if namespace == "" || len(args) == 0 {
				return do(cmd, args)
			}
			if given, _, has := strings.Cut(args[0], "/"); has && given != namespace {
				return usage.Errorf("the application %s is not in namespace %s; give one of both", args[0], namespace)
			} else if !has {
				args[0] = namespace + "/" + args[0]
			}
			return do(cmd, args)
		}
	}
	return app
}

// one makes a verb that is about one application.
func (a *app) one(use, short, example string, do func(cmd *cobra.Command, api *client.Client, namespace, name string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, Args: usage.Exactly("the name of an application"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			namespace, name := client.SplitName(args[0])
			return do(cmd, api, namespace, name)
		},
	}
}

func (a *app) appList() *cobra.Command {
	var params apimodel.ListApplicationsParams
	var projects, clusters, repos, sync, health []string
	var labels, name string
	c := &cobra.Command{
		Use: "list", Short: "List applications", Aliases: []string{"ls"}, Args: usage.Exactly(),
		Example: "  capstan app list\n  capstan app list --query 'health:degraded -cluster:prod' --sort=-changed\n" +
			"  capstan app list --facets health,project\n  capstan app list --sync OutOfSync --project shop -o wide",
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			params.Project, params.Cluster = projects, clusters
			if params.Sync, err = usage.AllAmong[apimodel.SyncStatusCode]("--sync", sync, "Synced", "OutOfSync", "Unknown"); err != nil {
				return err
			}
			if params.Health, err = usage.AllAmong[apimodel.HealthStatusCode]("--health", health, "Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"); err != nil {
				return err
			}
			params.Labels, params.Q, params.Repo = labels, name, repos
			if _, err := appquery.Parse(params.Query); err != nil {
				return fault.With(err, "--query", "")
			}
			if params.Facets != "" {
				return a.appFacets(cmd.Context(), api, params)
			}
			if a.Format != "json" && a.Format != "yaml" {
				params.View = apimodel.ListApplicationsParamsViewCompact
			}
			all, err := listAll(cmd.Context(), api, params)
			if err != nil {
				return err
			}
			raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": all})
			if err != nil {
				return err
			}
			return a.Print(raw, appTable(all))
		},
	}
	c.Flags().StringSliceVar(&projects, "project", nil, "of these projects")
	c.Flags().StringSliceVar(&clusters, "cluster", nil, "of these clusters")
	c.Flags().StringSliceVar(&repos, "repo", nil, "of these repositories, by URL")
	c.Flags().StringSliceVar(&sync, "sync", nil, "Synced, OutOfSync, Unknown")
	c.Flags().StringSliceVar(&health, "health", nil, "Healthy, Progressing, Degraded, Suspended, Missing, Unknown")
	c.Flags().StringVarP(&labels, "selector", "l", "", "label selector")
	c.Flags().StringVar(&name, "name", "", "part of the name")
	c.Flags().StringVar(&params.Query, "query", "", "a query, such as 'health:degraded label:team=shop'")
	c.Flags().StringVar(&params.Sort, "sort", "", "name, project, health, sync, state, changed or created; -health from the end")
	c.Flags().StringVar(&params.Facets, "facets", "", "count the applications by these fields instead, such as health,project,label:team")
	return c
}

// appFacets prints how many applications have each value of some fields.
func (a *app) appFacets(ctx context.Context, api *client.Client, params apimodel.ListApplicationsParams) error {
	params.Limit, params.View = 1, apimodel.ListApplicationsParamsViewRow
	page, _, err := client.Call[apimodel.ApplicationList](api.ListApplications(ctx, params))
	if err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]any{"total": page.Total, "facets": page.Facets})
	if err != nil {
		return err
	}
	t := output.Table{Head: []string{"FIELD", "VALUE", "COUNT"}}
	for _, f := range page.Facets {
		for _, v := range f.Values {
			t.Rows = append(t.Rows, []string{f.Field, output.Dash(v.Value), strconv.Itoa(v.Count)})
		}
		if f.More > 0 {
			t.Rows = append(t.Rows, []string{f.Field, fmt.Sprintf("(%d more values)", f.More), "-"})
		}
	}
	return a.Print(raw, t)
}

// listAll reads a list page by page.
func listAll(ctx context.Context, api *client.Client, params apimodel.ListApplicationsParams) ([]apimodel.Application, error) {
	params.Limit = 500
	all := []apimodel.Application{} // a list without items is [], not null
	for {
		page, _, err := client.Call[apimodel.ApplicationList](api.ListApplications(ctx, params))
		if err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, nil
		}
		params.Cursor = page.Metadata.Continue
	}
}

// appSpec is what tables show of a spec.
type appSpec struct {
	Project string `json:"project"`
	Source  struct {
		RepoURL        string `json:"repoURL"`
		Path           string `json:"path"`
		TargetRevision string `json:"targetRevision"`
	} `json:"source"`
	Destination struct {
		Server    string `json:"server"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"destination"`
}

func appTable(apps []apimodel.Application) output.Table {
	t := output.Table{
		Head: []string{"NAME", "PROJECT", "SYNC", "HEALTH", "OPERATION", "REVISION", "CLUSTER", "AS OF", "CONDITIONS", "NAMESPACE", "REPOSITORY", "PATH", "TARGET"},
		Wide: 4,
	}
	for _, x := range apps {
		var spec appSpec
		_ = json.Unmarshal(x.Spec, &spec)
		st := x.Status
		sync, health, revision, operation, cluster := "Unknown", "Unknown", "-", "-", cmp.Or(spec.Destination.Name, spec.Destination.Server)
		if st.Sync.Status != "" {
			sync, revision = string(st.Sync.Status), output.Dash(output.Short(st.Sync.Revision))
		}
		if st.Health.Status != "" {
			health = string(st.Health.Status)
		}
		if st.OperationState.Phase != "" {
			operation = string(st.OperationState.Phase)
		}
		cluster = cmp.Or(st.Capstan.Cluster, cluster)
		t.Rows = append(t.Rows, []string{
			client.QualifiedName(x.Metadata), cmp.Or(spec.Project, "default"), sync, health, operation, revision, output.Dash(cluster), asOf(st), output.Dash(conditionTypes(st)),
			output.Dash(spec.Destination.Namespace), output.Dash(spec.Source.RepoURL), output.Dash(spec.Source.Path), cmp.Or(spec.Source.TargetRevision, "HEAD"),
		})
		t.Names = append(t.Names, "application/"+client.QualifiedName(x.Metadata))
	}
	return t
}

// asOf is the age of a status. A status that is not current says so.
func asOf(st apimodel.ApplicationStatus) string {
	on := st.Capstan
	age := output.Ago(on.AsOf)
	if !client.Given(on.Stale) {
		return age
	}
	switch on.Stale.Reason {
	case apimodel.StaleReasonSourceError:
		if on.Stale.Since.IsZero() {
			return age
		}
		return output.Ago(on.Stale.Since) + " (source error)"
	case apimodel.StaleReasonAgentAway:
		if on.AsOf.IsZero() {
			return "never"
		}
		return age + " (agent away)"
	case apimodel.StaleReasonAgentBehind:
	}
	return age + " (agent behind)"
}

// conditionTypes names what is said of an application, each once.
func conditionTypes(st apimodel.ApplicationStatus) string {
	var types []string
	if client.Given(st.Capstan.Paused) {
		types = append(types, "Paused")
	}
	for _, c := range st.Conditions {
		types = append(types, c.Type)
	}
	slices.Sort(types)
	return strings.Join(slices.Compact(types), ",")
}

func (a *app) appGet() *cobra.Command {
	var refresh, hard, params, operation bool
	c := a.one("get NAME", "Show one application, its conditions and its objects", "  capstan app get shop\n  capstan app get shop -o yaml\n  capstan app get shop --hard-refresh",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			if refresh || hard {
				if _, err := a.watcher(api).Refreshed(cmd.Context(), namespace, name, hard, wait.LongRefresh); err != nil {
					return err
				}
			}
			x, raw, err := client.Call[apimodel.Application](api.GetApplication(cmd.Context(), namespace, name, apimodel.GetApplicationParams{}))
			if err != nil {
				return err
			}
			if a.Format != "table" && a.Format != "wide" {
				return a.Print(raw, output.Table{Names: []string{"application/" + client.QualifiedName(x.Metadata)}})
			}
			tree, _, err := client.Call[apimodel.Tree](api.GetApplicationTree(cmd.Context(), namespace, name))
			if err != nil {
				return err
			}
			if a.tree != "" {
				a.notePaused(tree.Paused)
				return a.Tabulate(a.treeOf(tree))
			}
			if err := a.describe(x, tree); err != nil {
				return err
			}
			return a.describeMore(x, params, operation)
		})
	c.Flags().BoolVar(&refresh, "refresh", false, "refresh the sources first, and wait for it")
	c.Flags().BoolVar(&hard, "hard-refresh", false, "the same, and render even if nothing changed")
	c.Flags().BoolVar(&params, "show-params", false, "show the parameters of its sources too")
	c.Flags().BoolVar(&operation, "show-operation", false, "show its last operation, object by object, too")
	return c
}

// describe prints an application for people.
func (a *app) describe(x apimodel.Application, tree apimodel.Tree) error {
	st := x.Status
	if err := a.Tabulate(appTable([]apimodel.Application{x})); err != nil {
		return err
	}
	out := a.Out
	if client.Given(st.Capstan.Stale) {
		fmt.Fprintf(out, "\nNot current: %s; %s\n", st.Capstan.Stale.Message, wait.LastKnown(x))
	}
	if st.Health.Message != "" {
		fmt.Fprintln(out, "\nHealth:", st.Health.Message)
	}
	if client.Given(st.Capstan.Parent) {
		fmt.Fprintf(out, "\nRendered by: application %s\n", client.QualifiedName(apimodel.Metadata{Namespace: st.Capstan.Parent.Namespace, Name: st.Capstan.Parent.Name}))
	}
	describePaused(out, st.Capstan.Paused, client.QualifiedName(x.Metadata))
	if st.Capstan.Hold != "" {
		fmt.Fprintln(out, "\nAutomation waits:", st.Capstan.Hold)
	}
	if op := st.OperationState; op.Message != "" {
		fmt.Fprintf(out, "\nLast operation: %s %s: %s\n", op.Kind, op.Phase, op.Message)
	}
	for _, c := range st.Conditions {
		fmt.Fprintf(out, "\n%s: %s\n", c.Type, c.Message)
	}
	if len(tree.Nodes) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	return a.Tabulate(treeTable(tree))
}

func treeTable(tree apimodel.Tree) output.Table {
	t := output.Table{Head: []string{"KIND", "NAMESPACE", "NAME", "SYNC", "HEALTH", "MESSAGE"}}
	for _, n := range tree.Nodes {
		if n.Orphaned {
			t.Rows = append(t.Rows, []string{n.Kind, output.Dash(n.Namespace), n.Name, "-", "-", "orphaned: no application manages it"})
			continue
		}
		// Child objects of a broken object, such as its pods, explain why it is
		// broken.
		if !n.Managed && n.Health != apimodel.HealthStatusCodeDegraded {
			continue
		}
		message := cmp.Or(n.Message, n.Diff)
		if n.RequiresPruning {
			message = cmp.Or(message, "to be pruned")
		}
		if n.Group == "argoproj.io" && n.Kind == "Application" {
			var says []string // its own sync and health
			for _, i := range n.Info {
				says = append(says, i.Value)
			}
			message = cmp.Or(message, strings.Join(says, ", "))
		}
		t.Rows = append(t.Rows, []string{
			n.Kind, output.Dash(n.Namespace), n.Name, output.Dash(string(n.Status)), output.Dash(string(n.Health)), message,
		})
	}
	return t
}

func (a *app) appTree() *cobra.Command {
	return a.one("tree NAME", "Show the objects of an application and what they own", "  capstan app tree shop\n  capstan app tree shop -o json",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			tree, raw, err := client.Call[apimodel.Tree](api.GetApplicationTree(cmd.Context(), namespace, name))
			if err != nil {
				return err
			}
			a.notePaused(tree.Paused)
			return a.Print(raw, ownershipTable(tree))
		})
}

// ownershipTable has each object below the one that owns it.
func ownershipTable(tree apimodel.Tree) output.Table {
	t := output.Table{Head: []string{"OBJECT", "NAMESPACE", "SYNC", "HEALTH", "MESSAGE"}}
	below := map[string][]apimodel.Node{}
	known := map[string]bool{}
	for _, n := range tree.Nodes {
		known[n.Uid] = true
	}
	for _, n := range tree.Nodes {
		parent := n.Parent
		if !known[parent] || parent == n.Uid {
			parent = ""
		}
		below[parent] = append(below[parent], n)
	}
	var add func(parent string, depth int)
	add = func(parent string, depth int) {
		nodes := below[parent]
		delete(below, parent) // an object that owns itself is shown once
		for _, n := range nodes {
			message := cmp.Or(n.Message, n.Diff)
			if n.Orphaned {
				message = "orphaned: no application manages it"
			}
			t.Rows = append(t.Rows, []string{
				strings.Repeat("  ", depth) + n.Kind + "/" + n.Name, output.Dash(n.Namespace), output.Dash(string(n.Status)), output.Dash(string(n.Health)), message,
			})
			t.Names = append(t.Names, strings.ToLower(n.Kind)+"/"+n.Name)
			if uid := n.Uid; uid != "" {
				add(uid, depth+1)
			}
		}
	}
	add("", 0)
	return t
}

// describePaused says why an application is paused, and how it goes on.
func describePaused(out io.Writer, p apimodel.Paused, name string) {
	switch {
	case !client.Given(p):
	case client.Given(p.Renderers):
		fmt.Fprintf(out, "\nPaused: %s.\n`capstan app diff %s --revision %s` shows what would change. `capstan app resume %s` ends the pause and lets automation apply it.\n",
			p.Message, name, output.Short(p.Skipped), name)
	default:
		fmt.Fprintf(out, "\nPaused: %s.\nAutomated sync resumes when Git renders something else than revision %s. `capstan app resume %s` ends the pause.\n",
			p.Message, output.Short(p.Skipped), name)
	}
}

// notePaused says that an application is paused, apart from the answer.
func (a *app) notePaused(p apimodel.Paused) {
	if !client.Given(p) {
		return
	}
	if client.Given(p.Renderers) {
		a.Note("capstan: %s. `%s` ends the pause and lets automation apply them.", p.Message, p.Resume)
		return
	}
	a.Note("capstan: %s; automation skips revision %s. `%s` ends the pause.", p.Message, output.Short(p.Skipped), p.Resume)
}

func (a *app) appRollback() *cobra.Command {
	var reason string
	var prune, async, hooks, dryRun bool
	var w wait.Goal
	c := &cobra.Command{
		Use: "rollback NAME ID", Short: "Apply what an entry of the history applied, and pause the application there",
		Long: "Apply what an entry of the history applied, and pause the application there. While it is paused, automation skips the revision that was rolled back " +
			"from, and everything that renders the same. The pause ends when Git renders something else, or with `capstan app sync` or `capstan app resume`. " +
			"Until then the application is OutOfSync, unless Git renders what is deployed.",
		Example: "  capstan app history shop\n  capstan app rollback shop 3 --reason 'checkout broken'\n  capstan app rollback shop 3 --dry-run",
		Args:    usage.Exactly("the name of an application", "an id of its history"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[1], 10, 64)
			if err != nil {
				return usage.Errorf("%q is no id of the history; see `capstan app history %s`", args[1], args[0])
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			namespace, name := client.SplitName(args[0])
			op, raw, err := client.Call[apimodel.Operation](api.RollbackApplication(cmd.Context(), namespace, name,
				rollbackRequest(cmd, id, prune, dryRun, hooks, reason)))
			if err != nil {
				return err
			}
			if async {
				return a.Print(raw, output.Table{Head: []string{"OPERATION", "PHASE"}, Rows: [][]string{{op.Id, string(op.Phase)}}, Names: []string{"operation/" + op.Id}})
			}
			w.Operation, w.Elsewhere = op.Id, true
			return a.await(cmd.Context(), api, namespace, name, w)
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "stored in the history and shown while the application is paused")
	c.Flags().BoolVar(&prune, "prune", true, "delete what the older entry did not have")
	c.Flags().BoolVar(&hooks, "hooks", false, "run the hooks of that entry, too; without the flag the application's annotation capstan.dev/rollback-hooks decides")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "ask the cluster what would happen, and change nothing")
	c.Flags().BoolVar(&async, "async", false, "do not wait")
	w.AddFlags(c.Flags())
	return c
}

// rollbackRequest leaves hooks out where nothing is said of them.
func rollbackRequest(cmd *cobra.Command, id int64, prune, dryRun, hooks bool, reason string) apimodel.RollbackApplicationJSONRequestBody {
	out := apimodel.RollbackApplicationJSONRequestBody{Id: id, Prune: prune, Reason: reason, DryRun: dryRun}
	if cmd.Flags().Changed("hooks") {
		out.Hooks = &hooks // false, too, goes before the annotation
	}
	return out
}

func (a *app) appResume() *cobra.Command {
	var reason string
	c := a.one("resume NAME", "End the pause of a rollback or of an upgrade of the renderers, and follow Git again", "  capstan app resume shop\n  capstan app resume shop --reason 'fixed by 4f2c1aa'",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			x, raw, err := client.Call[apimodel.Application](api.ResumeApplication(cmd.Context(), namespace, name, apimodel.ResumeApplicationJSONRequestBody{Reason: reason}))
			if err != nil {
				return err
			}
			return a.Print(raw, appTable([]apimodel.Application{x}))
		})
	c.Long = "End the pause that a rollback, or an upgrade of the renderers, began. With automation the newest revision of Git is applied; without it, `capstan app sync` applies it. " +
		"An application that is not paused stays as it is."
	c.Flags().StringVar(&reason, "reason", "", "stored in the audit log")
	return c
}

func (a *app) appRefresh() *cobra.Command {
	var hard, async bool
	var query string
	var timeout time.Duration
	c := a.one("refresh NAME", "Resolve the sources again, wait for it, and say what was found", "  capstan app refresh shop\n  capstan app refresh shop --hard\n  capstan app refresh --query 'sync:unknown' --yes",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			if async {
				_, err := client.Read(api.RefreshApplication(cmd.Context(), namespace, name, apimodel.RefreshApplicationParams{Hard: hard}))
				return err
			}
			r, err := a.watcher(api).Refreshed(cmd.Context(), namespace, name, hard, timeout)
			if err != nil {
				return err
			}
			return a.Print(r.Raw, r.Table())
		})
	exactlyOne, refresh := c.Args, c.RunE
	c.Args = func(cmd *cobra.Command, names []string) error {
		if query != "" {
			return nil // it says itself that names do not go with it
		}
		return exactlyOne(cmd, names)
	}
	c.RunE = func(cmd *cobra.Command, names []string) error {
		if query != "" {
			return a.byQuery(cmd, apimodel.BulkActionRefresh, query, names)
		}
		if cmd.Flags().Changed("dry-run") || cmd.Flags().Changed("yes") {
			return usage.Errorf("--dry-run and --yes go with --query")
		}
		return refresh(cmd, names)
	}
	f := c.Flags()
	addQuery(f, &query)
	f.BoolVar(&hard, "hard", false, "render even if nothing changed")
	f.BoolVar(&async, "async", false, "do not wait")
	f.DurationVar(&timeout, "timeout", wait.LongRefresh, "how long to wait")
	f.Bool("dry-run", false, "with --query: say what would be refreshed, and refresh nothing")
	f.BoolP("yes", "y", false, "with --query: do not ask")
	return c
}

func (a *app) appTerminate() *cobra.Command {
	c := a.one("terminate NAME", "End the operation that is in progress", "  capstan app terminate shop\n  capstan app terminate argocd/shop",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			_, err := client.Read(api.TerminateOperation(cmd.Context(), namespace, name))
			return err
		})
	c.Aliases = []string{"terminate-op"}
	return c
}

func (a *app) appManifests() *cobra.Command {
	var local string
	var sent upload
	var positions []int
	c := a.one("manifests NAME", "Print the objects that Git asks for, secrets masked", "  capstan app manifests shop\n  capstan app manifests shop -o json\n  capstan app manifests shop --local .",
		func(cmd *cobra.Command, api *client.Client, namespace, name string) error {
			m, raw, err := desired(cmd.Context(), api, namespace, name, local, sent, positions)
			if err != nil {
				return err
			}
			a.notePaused(m.Paused)
			if a.Format == "json" {
				return a.Print(raw, output.Table{})
			}
			for _, o := range m.Items {
				b, err := yaml.JSONToYAML(o)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.Out, "---\n%s", b)
			}
			return nil
		})
	f := c.Flags()
	f.StringVar(&local, "local", "", "those that the hub renders from this folder of the repository instead; nothing is stored")
	f.Bool("server-side-generate", true, "with --local: the hub renders; it always does")
	f.IntSliceVar(&positions, "source-positions", nil, "with --local: which source the folder is of; 1 is the first")
	sent.flags(f)
	return c
}

// manifests is the hub's answer.
type manifests struct {
	Items  []json.RawMessage `json:"items"`
	Paused apimodel.Paused   `json:"paused"`
}

// desired asks for the target's objects, or for those of a local folder.
func desired(ctx context.Context, api *client.Client, namespace, name, local string, sent upload, positions []int) (manifests, []byte, error) {
	if local == "" {
		if sent.root != "" || len(positions) > 0 {
			return manifests{}, nil, usage.Errorf("--local-repo-root and --source-positions go with --local")
		}
		return client.Call[manifests](api.GetManifests(ctx, namespace, name, apimodel.GetManifestsParams{}))
	}
	at, err := position(positions)
	if err != nil {
		return manifests{}, nil, err
	}
	body, done, err := sent.pack(local)
	if err != nil {
		return manifests{}, nil, err
	}
	defer done()
	return client.Call[manifests](api.RenderUpload(ctx, namespace, name, apimodel.RenderUploadParams{SourcePosition: at}, body))
}

// confirm asks before something is destroyed.
func (a *app) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !a.interactive() {
		return usage.Errorf("%s There is no terminal to ask; add --yes", question)
	}
	answer, err := a.promptFor(question + " [y/N] ")
	if err != nil {
		return err
	}
	if !strings.EqualFold(answer, "y") && !strings.EqualFold(answer, "yes") {
		return usage.Errorf("cancelled")
	}
	return nil
}
