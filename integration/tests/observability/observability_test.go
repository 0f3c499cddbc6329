// Package observability_test looks at what the real hub and agent tell of
// themselves: metrics, traces and health, against the dashboard, the alert
// rules and the documentation that go with them.
package observability_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

var update = flag.Bool("update", false, "write the list of metrics in docs/observability.md anew")

// canary is in every place where a secret may be.
const canary = "canary-5b1c0f"

func begin(t *testing.T, c *stack.Collector) *stack.Stack {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s, err := suite.Installed(ctx, dir, stack.Options{
		Clusters: []string{"in-cluster"},
		Settings: map[string]any{"metrics": map[string]any{"perTenant": true, "applicationLabels": []string{"team"}}},
		HubEnv:   []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.Endpoint, "OTEL_BSP_SCHEDULE_DELAY=200"},
		AgentEnv: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.Endpoint, "OTEL_BSP_SCHEDULE_DELAY=200"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

const application = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: seen, namespace: argocd, labels: {team: core}}
spec:
  project: default
  source: {repoURL: %q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: seen}
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [CreateNamespace=true]
`

func files(v string) map[string]string {
	return map[string]string{
		"app/map.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {v: " + v + "}\n",
		"app/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: " + canary + "-" + v + "}\n",
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", url, res.Status, err, b)
	}
	return string(b)
}

func TestObservability(t *testing.T) {
	collector, err := stack.StartCollector(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer collector.Stop()
	s := begin(t, collector)
	repo, err := s.Repository(t.Context(), "seen", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if _, err := repo.Commit(ctx, "begin", files("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(ctx, fmt.Sprintf(application, repo.URL())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Wait(ctx, "seen", stack.Settled); err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(ctx, "two", files("two")); err != nil {
		t.Fatal(err)
	}
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	if _, err := s.Clusters["in-cluster"].WaitFor(ctx, maps, "seen", "a", func(o *unstructured.Unstructured) error {
		if v, _, _ := unstructured.NestedString(o.Object, "data", "v"); v != "two" {
			return fmt.Errorf("the value is %q", v)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}

	t.Run("OBS-07 one push is one connected trace from the webhook to the outcome, through the agent", func(t *testing.T) {
		if err := poll.Until(ctx, func(context.Context) error { return connected(collector.Spans()) }); err != nil {
			t.Fatal(err)
		}
	})
	scrape := func() string { return get(t, s.Hub.Metrics()) + get(t, s.Agents["in-cluster"].Port("/metrics")) }
	var scraped string
	t.Run("OBS-01 hub and agent serve their metrics, with Argo CD's names", func(t *testing.T) {
		err := poll.Until(ctx, func(context.Context) error {
			scraped = scrape()
			for _, want := range []string{
				`argocd_app_info{autosync_enabled="true",dest_namespace="seen"`, `health_status="Healthy"`, `argocd_app_labels{label_team="core"`,
				`argocd_app_sync_total{`, `argocd_git_request_total{`, `capstan_operations_total{phase="Succeeded"}`, `capstan_agent_objects_total{doing="apply",result="changed"}`,
				`capstan_agent_connected 1`, `capstan_desired_rows_sent_total{kind="operation"}`, `capstan_tenant_applications{tenant="default"} 1`,
				`capstan_enrolments_total{stage="issued"} 1`, `capstan_webhooks_total{result="ok"}`, `capstan_agent_lease_held 1`, "process_resident_memory_bytes", "go_goroutines",
			} {
				if !strings.Contains(scraped, want) {
					return fmt.Errorf("there is no %s", want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	t.Run("ISO-1 no metric and no span holds a secret", func(t *testing.T) {
		shown := scraped + fmt.Sprint(collector.Spans())
		for _, secret := range []string{canary, s.API.Token, s.Hub.Secret(), s.Password()} {
			if strings.Contains(shown, secret) {
				t.Errorf("%.6s… is told", secret)
			}
		}
	})
	t.Run("hub and agent report that they are live and ready", func(t *testing.T) {
		for _, url := range []string{s.Hub.Port("/livez"), s.Hub.Port("/readyz"), s.Agents["in-cluster"].Port("/livez"), s.Agents["in-cluster"].Port("/readyz")} {
			get(t, url)
		}
	})
	t.Run("OBS-10 dashboard and alert rules refer to metrics that are there", func(t *testing.T) { refers(t, scrape) })
	t.Run("docs/observability.md lists every metric", func(t *testing.T) { documented(t, metrics(scrape())) })
	t.Run("an agent that has lost its hub continues", func(t *testing.T) {
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		agent := s.Agents["in-cluster"]
		err := poll.Until(ctx, func(context.Context) error {
			if !strings.Contains(get(t, agent.Port("/metrics")), "capstan_agent_connected 0") {
				return fmt.Errorf("the agent has not noticed")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		get(t, agent.Port("/livez"))
		get(t, agent.Port("/readyz"))
		if err := s.Hub.Start(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

// connected looks for a trace that has all steps of a push, each of whose
// spans hangs on another one of it.
func connected(spans []stack.Span) error {
	want := []string{
		"capstan-hub request", "capstan-hub fetch", "capstan-hub render", "capstan-hub accept", "capstan-agent operation",
		"capstan-agent apply ConfigMap", "capstan-agent apply Secret", "capstan-hub report", "capstan-hub outcome",
	}
	traces := map[string][]stack.Span{}
	for _, s := range spans {
		traces[s.Trace] = append(traces[s.Trace], s)
	}
	best := want
	for _, trace := range traces {
		ids, names, loose := map[string]bool{}, map[string]bool{}, 0
		for _, s := range trace {
			ids[s.ID], names[s.Service+" "+s.Name] = true, true
		}
		for _, s := range trace {
			if s.Parent != "" && !ids[s.Parent] {
				loose++
			}
		}
		webhook := slices.ContainsFunc(trace, func(s stack.Span) bool { return s.Attributes["http.route"] == "/api/webhook" })
		missing := slices.DeleteFunc(slices.Clone(want), func(n string) bool { return names[n] })
		if len(missing) == 0 && loose == 0 && webhook {
			return nil
		}
		if len(missing) < len(best) {
			best = missing
		}
	}
	return fmt.Errorf("of %d traces none is whole; the best lacks %v", len(traces), best)
}

var typeLine = regexp.MustCompile(`(?m)^# (HELP|TYPE) (\S+) (.*)$`)

type metric struct{ kind, help string }

// metrics returns the metrics of the product in a scrape.
func metrics(scraped string) map[string]metric {
	out := map[string]metric{}
	for _, m := range typeLine.FindAllStringSubmatch(scraped, -1) {
		if !strings.HasPrefix(m[2], "capstan_") && !strings.HasPrefix(m[2], "argocd_") {
			continue
		}
		v := out[m[2]]
		if m[1] == "HELP" {
			v.help = m[3]
		} else {
			v.kind = m[3]
		}
		out[m[2]] = v
	}
	return out
}

var (
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	braces = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]|\b(by|without|on|ignoring)\s*\([^)]*\)`)
	word   = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
)

// used are the metrics that an expression refers to.
func used(expr string) []string {
	expr = braces.ReplaceAllString(quoted.ReplaceAllString(expr, `""`), " ")
	var out []string
	for _, at := range word.FindAllStringIndex(expr, -1) {
		if name := expr[at[0]:at[1]]; strings.Contains(name, "_") && !strings.HasPrefix(strings.TrimSpace(expr[at[1]:]), "(") {
			out = append(out, name)
		}
	}
	return out
}

func chart(t *testing.T, of, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", of, "files", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// An expression is one of the dashboard or of an alert rule.
type expression struct{ where, text string }

// expressions reads the dashboard and the alert rules of both charts.
func expressions(t *testing.T) (out []expression) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(chart(t, "capstan-hub", "dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out = append(out, expression{"panel " + p.Title, target.Expr})
		}
	}
	for _, of := range []string{"capstan-hub", "capstan-agent"} {
		var rules struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr string
					Annotations map[string]string
				}
			}
		}
		if err := yaml.Unmarshal(chart(t, of, "alerts.yaml"), &rules); err != nil {
			t.Fatal(err)
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				out = append(out, expression{"alert " + r.Alert, r.Expr})
				if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
					t.Errorf("alert %s does not say what to do", r.Alert)
				}
				if of == "capstan-hub" && strings.Contains(r.Expr, "capstan_agent_") {
					t.Errorf("alert %s of the hub's chart is about an agent", r.Alert)
				}
			}
		}
	}
	return out
}

// known reports whether a name in an expression is that of a metric, or of one of
// the series of a histogram.
func known(names map[string]metric, name string) bool {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if names[strings.TrimSuffix(name, suffix)].kind == "histogram" {
			return true
		}
	}
	_, ok := names[name]
	return ok || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "go_")
}

// refers checks what the expressions refer to. Some metrics appear only when
// something has happened, so it looks again for a while.
func refers(t *testing.T, scrape func() string) {
	t.Helper()
	list := expressions(t)
	found := 0
	for _, e := range list {
		in := used(e.text)
		if found += len(in); len(in) == 0 || strings.Count(e.text, "(") != strings.Count(e.text, ")") {
			t.Errorf("%s: %q refers to nothing, or is not balanced", e.where, e.text)
		}
	}
	if found < 30 {
		t.Errorf("only %d references were found", found)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := poll.Until(ctx, func(context.Context) error {
		names := metrics(scrape())
		var missing []error
		for _, e := range list {
			for _, name := range used(e.text) {
				if !known(names, name) {
					missing = append(missing, fmt.Errorf("%s: there is no metric %s", e.where, name))
				}
			}
		}
		return errors.Join(missing...)
	})
	if err != nil {
		t.Error(err)
	}
}

const (
	listBegin = "<!-- metrics: generated by go test ./integration/tests/observability -update -->\n"
	listEnd   = "<!-- end of metrics -->\n"
)

func documented(t *testing.T, names map[string]metric) {
	path := filepath.Join("..", "..", "..", "docs", "observability.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(page, []byte(listBegin))
	list, after, ok2 := bytes.Cut(rest, []byte(listEnd))
	if !ok || !ok2 {
		t.Fatal("docs/observability.md has no place for the list of metrics")
	}
	rows := map[string]string{}
	for row := range strings.Lines(string(list)) {
		if name, found := strings.CutPrefix(row, "| `"); found { // it may be one that this scrape has not
			name, _, _ = strings.Cut(name, "`")
			rows[name] = row
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	for _, n := range sorted {
		rows[n] = fmt.Sprintf("| `%s` | %s | %s |\n", n, names[n].kind, names[n].help)
	}
	var want strings.Builder
	want.WriteString("| Metric | Type | What |\n| --- | --- | --- |\n")
	for _, n := range slices.Sorted(maps.Keys(rows)) {
		want.WriteString(rows[n])
	}
	if *update {
		if err := os.WriteFile(path, slices.Concat(before, []byte(listBegin), []byte(want.String()), []byte(listEnd), after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	// A metric whose series appear only after something happened, such as a
	// failed fetch, may be in the list and not in this scrape.
	for _, n := range sorted {
		if !bytes.Contains(list, []byte("| `"+n+"` |")) {
			t.Errorf("docs/observability.md lacks %s; write it with -update", n)
		}
	}
}
