package charts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"log/slog"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/agent/daemon"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
)

const leastAgent = `
image: {repository: registry.example.com/capstan-agent}
join: {token: once}
`

const agentDeployment = "Deployment/capstan-agent"

func TestAgentChart(t *testing.T) {
	t.Parallel()
	c := load(t, "capstan-agent")
	agent := func(text string) rendered { t.Helper(); return must(t, c, values(t, leastAgent, text)) }
	pod := []any{"spec", "template", "spec"}
	args := func(r rendered) string {
		return says(r.at(t, agentDeployment, append(pod, "containers", 0, "args")...))
	}

	t.Run("the pod is confined, and there is never a second one", func(t *testing.T) {
		r := agent("{}")
		for id, spec := range r.pods() {
			if bad := restricted(spec); len(bad) > 0 {
				t.Errorf("%s: %v", id, bad)
			}
		}
		if r.at(t, agentDeployment, "spec", "strategy", "type") != "Recreate" || says(r.at(t, agentDeployment, "spec", "replicas")) != "1" {
			t.Error("two agents could run at once")
		}
	})
	t.Run("11.9 mode cluster grants in the whole cluster", func(t *testing.T) {
		r := agent("{}")
		if got := verbs(r, "ClusterRole/ops:capstan", "*"); !slices.Equal(got, []string{"create", "delete", "get", "list", "patch", "update", "watch"}) {
			t.Errorf("verbs %v", got)
		}
		if !strings.Contains(args(r), "--mode=cluster") || strings.Contains(args(r), "--namespaces") {
			t.Errorf("args:\n%s", args(r))
		}
	})
	t.Run("11.9 mode namespaced grants in its namespaces only", func(t *testing.T) {
		r := agent("mode: namespaced\nnamespaces: [shop, pay]")
		if got := verbs(r, "ClusterRole/ops:capstan", "*"); got != nil {
			t.Errorf("it may %v everything in the cluster", got)
		}
		for _, space := range []string{"shop", "pay"} {
			if got := verbs(r, "Role/"+space+"/ops:capstan", "*"); len(got) != 7 || r["RoleBinding/"+space+"/ops:capstan"] == nil {
				t.Errorf("verbs in %s: %v", space, got)
			}
		}
		if !strings.Contains(args(r), "--mode=namespaced") || !strings.Contains(args(r), "--namespaces=shop,pay") {
			t.Errorf("args:\n%s", args(r))
		}
	})
	t.Run("11.9 mode observe grants no write but to its own Secret and Lease", func(t *testing.T) {
		for _, text := range []string{"mode: observe", "mode: observe\nnamespaces: [shop]"} {
			for id, o := range agent(text) {
				if !strings.Contains(id, "Role/") || id == "Role/capstan" {
					continue
				}
				rules, _ := o.Object["rules"].([]any)
				for _, rule := range rules {
					if got := says(dig(rule, "verbs")); got != "- get\n- list\n- watch" && got != "- get" {
						t.Errorf("%s may %s", id, got)
					}
				}
			}
		}
	})
	t.Run("the harness grants what the chart grants", func(t *testing.T) {
		for _, m := range []struct {
			mode, values string
			spaces       []string
		}{
			{"cluster", "{}", nil}, {"observe", "mode: observe", nil}, {"namespaced", "mode: namespaced\nnamespaces: [shop]", []string{"shop"}},
		} {
			text, err := kube.AgentRightsIn("ops", m.mode, m.spaces...)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for id, o := range agent(m.values) {
				if strings.Contains(id, "Role/") {
					want[o.GetKind()+" "+o.GetNamespace()] = says(o.Object["rules"])
				}
			}
			for _, o := range parse(t, text) {
				key := o.GetKind() + " " + o.GetNamespace()
				if rules, ok := o.Object["rules"]; ok && want[key] != says(rules) {
					t.Errorf("%s, %s: chart\n%s\nharness\n%s", m.mode, key, want[key], says(rules))
				} else if ok {
					delete(want, key)
				}
			}
			if len(want) > 0 {
				t.Errorf("%s: only the chart has %v", m.mode, want)
			}
		}
	})
	t.Run("rights can be restricted, and managed by others", func(t *testing.T) {
		r := agent("rbac: {manageRoles: false, rules: [{apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, patch]}]}")
		text := says(r["ClusterRole/ops:capstan"].Object["rules"])
		if strings.Contains(text, "'*'") || strings.Contains(text, "escalate") || !strings.Contains(text, "deployments") {
			t.Errorf("rules:\n%s", text)
		}
		for id := range agent("rbac: {create: false}\nserviceAccount: {create: false, name: someone}") {
			if strings.Contains(id, "Role") || strings.HasPrefix(id, "ServiceAccount") {
				t.Errorf("there is %s", id)
			}
		}
	})
	t.Run("SEC-K9 the agent gets the names of its own roles", func(t *testing.T) {
		if got := says(agent("rbac: {create: false, names: [deployers, agents]}").at(t, agentDeployment, "spec", "template", "spec", "containers")); !strings.Contains(got, "--own-roles=deployers,agents") {
			t.Errorf("the agent is started so:\n%s", got)
		}
		if got := says(agent("{}").at(t, agentDeployment, "spec", "template", "spec", "containers")); strings.Contains(got, "--own-roles") {
			t.Errorf("the agent is started so:\n%s", got)
		}
	})
	t.Run("SEC-K9 SEC-F6 the guard limits access to containers, which is disabled by default for commands and ports", func(t *testing.T) {
		r := agent("guard: {allowPrune: false, deny: [{kind: Secret, verbs: [edit]}], exec: {enabled: true, containers: [app], maxDuration: 1h}, portForward: {enabled: true, ports: [80]}}")
		text, _ := r.at(t, "ConfigMap/capstan-agent-guard", "data", "guard.yaml").(string)
		taken(t, text)
		for _, want := range []string{"allowPrune: false", "maxDuration: 1h", "- 80"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
		text, _ = agent("{}").at(t, "ConfigMap/capstan-agent-guard", "data", "guard.yaml").(string)
		taken(t, text)
		if strings.Count(text, "enabled: false") != 2 {
			t.Error(text)
		}
	})
	t.Run("SEC-K9 the agent accepts the guard, which protects the agent's rights", func(t *testing.T) {
		r := agent("guard: {allowDelete: false, namespaces: ['*', '!kube-*'], deny: [{kind: Secret}]}")
		text, _ := r.at(t, "ConfigMap/capstan-agent-guard", "data", "guard.yaml").(string)
		for _, w := range []string{"allowDelete: false", "'!kube-*'", "kind: Secret", "name: ops:capstan", "kind: ClusterRoleBinding"} {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in:\n%s", w, text)
			}
		}
		taken(t, text)
		if got := says(agent("guard: {allowOwnNamespace: true}").at(t, "ConfigMap/capstan-agent-guard", "data")); strings.Contains(got, "ops:capstan") {
			t.Errorf("the agent's rights are protected though its owner permits changes:\n%s", got)
		}
		sum := []any{"spec", "template", "metadata", "annotations", "checksum/guard"}
		if r.at(t, agentDeployment, sum...) == agent("{}").at(t, agentDeployment, sum...) {
			t.Error("a change of the guard does not restart the agent")
		}
	})
	t.Run("pain 22 the agent accepts the policy for secrets, and may read only the age keys that it names", func(t *testing.T) {
		r := agent(`secrets:
  policy:
    refresh: 1m
    vault: [{address: "https://vault.test:8200", role: capstan, permit: [{paths: ["secret/data/{namespace}/*"]}]}]
    sops: {age: [{secret: keys}, {secret: keys, key: other}, {secret: more}]}
  vaultAudience: vault
`)
		text, _ := r.at(t, "ConfigMap/capstan-agent-guard", "data", "secrets.yaml").(string)
		for _, w := range []string{"refresh: 1m", "tokenFile: /var/run/secrets/capstan/vault/token", "secret/data/{namespace}/*"} {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in:\n%s", w, text)
			}
		}
		file := filepath.Join(t.TempDir(), "secrets.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := daemon.Run(t.Context(), daemon.Config{
			StateDir: file, Namespace: "ops", Log: slog.New(slog.DiscardHandler), REST: &rest.Config{Host: "http://127.0.0.1:1"}, SecretsFile: file,
		})
		if err == nil || strings.Contains(err.Error(), "the secrets policy") {
			t.Errorf("the agent says %v of\n%s", err, text)
		}
		if got := args(r); !strings.Contains(got, "--secrets-file=/etc/capstan/guard/secrets.yaml") {
			t.Errorf("args:\n%s", got)
		}
		volumes := says(r.at(t, agentDeployment, append(pod, "volumes")...))
		if !strings.Contains(volumes, "audience: vault") {
			t.Errorf("volumes:\n%s", volumes)
		}
		var names []any
		rules, _ := r["Role/capstan"].Object["rules"].([]any)
		for _, rule := range rules {
			if says(dig(rule, "resources")) == "- secrets" && says(dig(rule, "verbs")) == "- get" {
				names, _ = dig(rule, "resourceNames").([]any)
			}
		}
		if says(names) != "- keys\n- more" {
			t.Errorf("it may read %v", names)
		}
		if got := agent("{}"); strings.Contains(args(got), "--secrets-file") || got.at(t, "ConfigMap/capstan-agent-guard", "data").(map[string]any)["secrets.yaml"] != nil {
			t.Error("without a policy there is one")
		}
	})
	t.Run("state in a volume, in an existing claim, or in the pod", func(t *testing.T) {
		if r := agent("state: {size: 2Gi, storageClass: fast, keep: true}"); says(r.at(t, "PersistentVolumeClaim/capstan-agent-state", "spec", "storageClassName")) != "fast" ||
			r["PersistentVolumeClaim/capstan-agent-state"].GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Error("the claim is not what the values say")
		}
		r := agent("state: {existingClaim: mine}")
		if text := says(r.at(t, agentDeployment, append(pod, "volumes", 0)...)); !strings.Contains(text, "claimName: mine") || r["PersistentVolumeClaim/capstan-agent-state"] != nil {
			t.Errorf("volume:\n%s", text)
		}
		r = agent("state: {persistent: false}")
		if text := says(r.at(t, agentDeployment, append(pod, "volumes", 0)...)); !strings.Contains(text, "emptyDir") || r["PersistentVolumeClaim/capstan-agent-state"] != nil {
			t.Errorf("volume:\n%s", text)
		}
	})
	t.Run("outgoing connections: proxy and authorities", func(t *testing.T) {
		env := func(text string) string {
			return says(agent(text).at(t, agentDeployment, append(pod, "containers", 0, "env")...))
		}
		if got := env("{}"); strings.Contains(got, "PROXY") || strings.Contains(got, "SSL_CERT") {
			t.Errorf("without being asked:\n%s", got)
		}
		got := env("proxy: {https: 'http://proxy:3128', noProxy: 10.0.0.0/8}\ncaBundle: {existingConfigMap: company}")
		for _, w := range []string{"value: http://proxy:3128", "$(KUBERNETES_SERVICE_HOST),.svc,.cluster.local,10.0.0.0/8", "/etc/ssl/certs:/etc/capstan/ca", "value: /etc/capstan/ca/ca.crt"} {
			if !strings.Contains(got, w) {
				t.Errorf("%q is not in:\n%s", w, got)
			}
		}
		if got := env("proxy: {existingSecret: out}"); !strings.Contains(got, "key: HTTPS_PROXY") || !strings.Contains(got, "NO_PROXY") {
			t.Errorf("from a Secret:\n%s", got)
		}
	})
	t.Run("the join token is a value, or in an existing Secret", func(t *testing.T) {
		if r := agent("join: {token: '', existingSecret: mine}"); r["Secret/capstan-agent-join"] != nil || !strings.Contains(says(r.at(t, agentDeployment)), "secretName: mine") {
			t.Error("the Secret is not used")
		}
		if agent("{}").at(t, "Secret/capstan-agent-join", "stringData", "join-token") != "once" {
			t.Error("the token is lost")
		}
	})
	t.Run("nobody can reach the agent", func(t *testing.T) {
		r := agent("networkPolicy: {egressPorts: [443]}")
		if got := says(r.at(t, "NetworkPolicy/capstan-agent", "spec")); !strings.Contains(got, "ingress: []") || strings.Contains(got, "8443") {
			t.Errorf("%s", got)
		}
		if agent("networkPolicy: {enabled: false}")["NetworkPolicy/capstan-agent"] != nil {
			t.Error("it cannot be switched off")
		}
	})
	t.Run("probes use paths that the agent serves", func(t *testing.T) {
		r := agent("metrics: {port: 9000}\nprobes: {liveness: {periodSeconds: 7}}")
		container := append(pod, "containers", 0)
		for probe, want := range map[string]string{"startupProbe": "/livez", "readinessProbe": "/readyz", "livenessProbe": "/livez"} {
			get := r.at(t, agentDeployment, append(container, probe, "httpGet")...)
			if dig(get, "path") != want || dig(get, "port") != "metrics" {
				t.Errorf("%s asks %v", probe, get)
			}
		}
		if got := says(r.at(t, agentDeployment, append(container, "livenessProbe", "periodSeconds")...)); got != "7" {
			t.Errorf("period %v", got)
		}
		if got := says(r.at(t, agentDeployment, append(container, "ports")...)); !strings.Contains(got, "containerPort: 9000") || !strings.Contains(args(r), "--listen=:9000") {
			t.Errorf("ports:\n%s\nargs:\n%s", got, args(r))
		}
		if strings.Contains(args(r), "--profiles") || !strings.Contains(args(agent("metrics: {profiles: true}")), "--profiles") {
			t.Error("profiles are not what the values say")
		}
	})
	t.Run("OBS-10 metrics: no access by default, Prometheus where it is permitted", func(t *testing.T) {
		for id := range agent("{}") {
			if strings.Contains(id, "Service/") || strings.Contains(id, "Monitor") || strings.Contains(id, "PrometheusRule") {
				t.Errorf("there is %s", id)
			}
		}
		r := agent("metrics: {enabled: true, serviceMonitor: {enabled: true, interval: 10s, labels: {release: prom}}, rules: {enabled: true, labels: {release: prom}}}\nnetworkPolicy: {metricsFrom: [{namespaceSelector: {matchLabels: {name: monitoring}}}], ingress: [{ports: [{port: 1}]}]}")
		m := r["ServiceMonitor/capstan-agent"]
		if m == nil || m.GetLabels()["release"] != "prom" || r.at(t, "ServiceMonitor/capstan-agent", "spec", "endpoints", 0, "interval") != "10s" {
			t.Errorf("monitor %v", m)
		}
		chosen, _ := r.at(t, "ServiceMonitor/capstan-agent", "spec", "selector", "matchLabels").(map[string]any)
		for k, v := range chosen {
			if r["Service/capstan-agent-metrics"].GetLabels()[k] != v {
				t.Errorf("the monitor's label %s=%v is not on the Service", k, v)
			}
		}
		labels, _ := r.at(t, agentDeployment, "spec", "template", "metadata", "labels").(map[string]any)
		selector, _ := r.at(t, "Service/capstan-agent-metrics", "spec", "selector").(map[string]any)
		for k, v := range selector {
			if labels[k] != v {
				t.Errorf("the Service's selector %s=%v is not on the pod", k, v)
			}
		}
		in := says(r.at(t, "NetworkPolicy/capstan-agent", "spec", "ingress"))
		for _, w := range []string{"port: metrics", "name: monitoring", "port: 1"} {
			if !strings.Contains(in, w) {
				t.Errorf("%q is not in:\n%s", w, in)
			}
		}
		if r["PrometheusRule/capstan-agent"].GetLabels()["release"] != "prom" || r.at(t, "PrometheusRule/capstan-agent", "spec", "groups", 0, "rules", 0, "alert") == nil {
			t.Error("there are no rules")
		}
		refused(t, c, values(t, leastAgent, "metrics: {serviceMonitor: {enabled: true}}"), "needs metrics.enabled")
	})
	t.Run("the rest of the values arrives", func(t *testing.T) {
		text := says(agent(`
image: {tag: v9, pullPolicy: Always}
fieldManager: second
logLevel: debug
`+podValues).at(t, agentDeployment))
		for _, w := range append(podWords(), "capstan-agent:v9", "--field-manager=second", "--log-level=debug") {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in:\n%s", w, text)
			}
		}
	})
	t.Run("FT-A5 the hub may upgrade the agent only if its owner permits it, by an account of its own", func(t *testing.T) {
		for id, o := range agent("{}") {
			if text := says(o.Object); strings.Contains(id, "updater") || strings.Contains(text, "upgrade") || strings.Contains(text, "jobs") {
				t.Errorf("without being asked: %s\n%s", id, text)
			}
		}
		r := agent("upgrades: {enabled: true, repositories: [mirror.example.com/capstan-agent]}\nmode: observe")
		if got := args(r); !strings.Contains(got, "--upgrades") || !strings.Contains(got, "--upgrade-repositories=mirror.example.com/capstan-agent") {
			t.Errorf("args:\n%s", got)
		}
		if got := says(r.at(t, agentDeployment, append(pod, "containers", 0, "env")...)); !strings.Contains(got, "metadata.annotations['capstan.dev/upgrade']") {
			t.Errorf("env:\n%s", got)
		}
		own, updater := says(r.at(t, "Role/capstan", "rules")), says(r.at(t, "Role/capstan-agent-updater", "rules"))
		if strings.Contains(own, "patch") || strings.Contains(own, "delete") || !strings.Contains(own, "jobs") {
			t.Errorf("the agent may\n%s", own)
		}
		if want := parseList(t, filepath.Join("files", "updater.yaml")); updater != want || !strings.Contains(updater, "resourceNames:\n  - capstan-agent\n") {
			t.Errorf("the updater may\n%s\nwant\n%s", updater, want)
		}
		if got := says(r.at(t, "RoleBinding/capstan-agent-updater", "subjects")); strings.Count(got, "name:") != 1 || !strings.Contains(got, "name: capstan-agent-updater") {
			t.Errorf("subjects:\n%s", got)
		}
		if r["NetworkPolicy/capstan-agent-updater"] == nil || agent("upgrades: {enabled: true}\nnetworkPolicy: {enabled: false}")["NetworkPolicy/capstan-agent-updater"] != nil {
			t.Error("the updater's network policy is not what the values say")
		}
		if r := agent("upgrades: {enabled: true}\nrbac: {create: false}"); r["Role/capstan-agent-updater"] != nil || r["ServiceAccount/capstan-agent-updater"] == nil {
			t.Error("rights are made though others make them")
		}
	})
	t.Run("API-20 the right to write events is granted only on request", func(t *testing.T) {
		const bounded = "rbac: {manageRoles: false, rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]}\n"
		for id, o := range agent(bounded) {
			if text := says(o.Object); strings.Contains(id, "Role") && strings.Contains(text, "- events") {
				t.Errorf("without being asked: %s\n%s", id, text)
			}
		}
		r := agent(bounded + "events: {enabled: true}")
		for _, id := range []string{"Role/capstan", "ClusterRole/ops:capstan"} {
			if got := says(r.at(t, id, "rules")); !strings.Contains(got, "- events") {
				t.Errorf("%s grants\n%s", id, got)
			}
		}
		for id, o := range agent("mode: observe\nevents: {enabled: true}") {
			if text := says(o.Object); strings.Contains(id, "Role") && strings.Contains(text, "- events") {
				t.Errorf("an agent that only observes: %s\n%s", id, text)
			}
		}
	})
	for name, bad := range map[string]struct {
		text  string
		words []string
	}{
		"repository":         {"upgrades: {enabled: true, repositories: ['A,B']}", []string{"upgrades"}},
		"unknown key":        {"namespace: shop", []string{"namespace"}},
		"unknown secret":     {"secrets: {policy: {sops: {pgp: []}}}", []string{"pgp"}},
		"unknown guard rule": {"guard: {allowDeletes: false}", []string{"allowDeletes"}},
		"mode":               {"mode: all", []string{"mode"}},
		"privileged port":    {"metrics: {port: 80}", []string{"metrics", "port"}},
		"unknown probe":      {"probes: {live: {}}", []string{"probes", "live"}},
		"no namespaces":      {"mode: namespaced", []string{"namespaces is needed"}},
		"too many":           {"namespaces: [shop]", []string{"mode=cluster"}},
		"namespace glob":     {"mode: namespaced\nnamespaces: ['*']", []string{"namespaces"}},
		"no token":           {"join: {token: ''}", []string{"join.token is needed"}},
		"no image":           {"image: {repository: ''}", []string{"image.repository is needed"}},
		"log level":          {"logLevel: loud", []string{"logLevel"}},
		"field manager":      {"fieldManager: 'A B'", []string{"fieldManager"}},
		"nobody's account":   {"serviceAccount: {create: false}", []string{"serviceAccount.name is needed"}},
	} {
		t.Run("refused: "+name, func(t *testing.T) { refused(t, c, values(t, leastAgent, bad.text), bad.words...) })
	}
}

// parseList returns a file of the agent's chart as says would.
func parseList(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", "capstan-agent", file))
	if err != nil {
		t.Fatal(err)
	}
	var list []any
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return says(list)
}

// verbs are those that a role grants on everything, or on a resource.
func verbs(r rendered, id, resource string) []string {
	o := r[id]
	if o == nil {
		return nil
	}
	var out []string
	rules, _ := o.Object["rules"].([]any)
	for _, rule := range rules {
		if says(dig(rule, "resources")) != "- '"+resource+"'" {
			continue
		}
		list, _ := dig(rule, "verbs").([]any)
		for _, v := range list {
			out = append(out, v.(string))
		}
	}
	slices.Sort(out)
	return out
}

// taken has the agent itself read a guard file.
func taken(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "guard.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := daemon.CheckGuard(file); err != nil {
		t.Errorf("the agent says %v of\n%s", err, text)
	}
}
