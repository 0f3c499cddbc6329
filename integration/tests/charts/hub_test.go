package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub/daemon"
	"github.com/capstan-cd/capstan/hub/render/plugin"
)

const leastHub = `
image: {repository: registry.example.com/capstan-hub}
publicURL: https://capstan.example.com
agentHosts: ["agents.example.com:443"]
masterKey: {existingSecret: master}
database: {existingSecret: db}
`

const hubDeployment = "Deployment/capstan-capstan-hub"

func TestHubChart(t *testing.T) {
	t.Parallel()
	c := load(t, "capstan-hub")
	hub := func(text string) rendered { t.Helper(); return must(t, c, values(t, leastHub, text)) }
	pod := []any{"spec", "template", "spec"}
	container := append(pod, "containers", 0)

	t.Run("every pod is confined", func(t *testing.T) {
		for _, text := range []string{"{}", "postgres: {bundled: true}\ndatabase: {existingSecret: ''}"} {
			for id, spec := range must(t, c, values(t, leastHub, text)).pods() {
				if bad := restricted(spec); len(bad) > 0 {
					t.Errorf("%s: %v", id, bad)
				}
				if spec["automountServiceAccountToken"] != false {
					t.Errorf("%s gets a token for the API server", id)
				}
			}
		}
	})
	t.Run("the hub has no right in the cluster", func(t *testing.T) {
		for id := range hub("{}") {
			if strings.Contains(id, "Role") {
				t.Errorf("there is %s", id)
			}
		}
	})
	t.Run("the hub accepts the configuration", func(t *testing.T) {
		r := hub("config: {sources: {allowPrivate: [10.0.0.0/8]}, log: {level: debug}, database: {idleTimeout: 30s}}\nwebhook: {existingSecret: hooks}\ndatabase: {maxConns: 20}")
		cfg := configuration(t, r, "ConfigMap/capstan-capstan-hub")
		switch {
		case cfg.Listen.HTTP != "0.0.0.0:8080", cfg.Listen.Link != "0.0.0.0:8443", cfg.Listen.Metrics != "0.0.0.0:9090":
			t.Errorf("listen %+v", cfg.Listen)
		case cfg.PublicURL != "https://capstan.example.com", cfg.AgentHosts[0] != "agents.example.com:443":
			t.Errorf("addresses %q %v", cfg.PublicURL, cfg.AgentHosts)
		case cfg.Log != daemon.Log{Format: "json", Level: "debug"}, cfg.Sources.AllowPrivate[0] != "10.0.0.0/8":
			t.Errorf("merged %+v %+v", cfg.Log, cfg.Sources)
		case cfg.Database.MaxConns != 20, time.Duration(cfg.Database.IdleTimeout) != 30*time.Second, cfg.Webhook.GitHubSecretFile != "/etc/capstan/webhook/github":
			t.Errorf("database %+v, webhook %+v", cfg.Database, cfg.Webhook)
		case cfg.AgentChart.Image != "registry.example.com/capstan-agent":
			t.Errorf("the command to install an agent names the image %q", cfg.AgentChart.Image)
		}
	})
	t.Run("SEC-E8 TM07 the ingress whose forwarded addresses are trusted can be configured", func(t *testing.T) {
		if cfg := configuration(t, hub("{}"), "ConfigMap/capstan-capstan-hub"); len(cfg.TrustedProxies)+len(cfg.ProxyProtocol) != 0 {
			t.Errorf("unasked: %v %v", cfg.TrustedProxies, cfg.ProxyProtocol)
		}
		const all = "trustedProxies: [10.42.0.0/16, 192.0.2.7, '2001:db8::/64']\nproxyProtocol: [link]"
		cfg := configuration(t, hub(all), "ConfigMap/capstan-capstan-hub")
		if got := says([]any{cfg.TrustedProxies, cfg.ProxyProtocol}); got != "- - 10.42.0.0/16\n  - 192.0.2.7\n  - 2001:db8::/64\n- - link" {
			t.Errorf("the hub reads\n%s", got)
		}
		cfg = configuration(t, hub("trustedProxies: [10.42.0.0/16]\nconfig: {trustedProxies: [192.0.2.7], proxyProtocol: [http]}"), "ConfigMap/capstan-capstan-hub")
		if len(cfg.TrustedProxies) != 1 || cfg.TrustedProxies[0] != "192.0.2.7" || cfg.ProxyProtocol[0] != "http" {
			t.Errorf("config does not win: %v %v", cfg.TrustedProxies, cfg.ProxyProtocol)
		}
	})
	t.Run("SEC-E8 TM07 the release's notes warn of an ingress that is not trusted", func(t *testing.T) {
		const ingress = "ingress: {enabled: true, hosts: [{host: c.example.com}]}\n"
		for text, warns := range map[string]bool{"{}": false, ingress: true, ingress + "trustedProxies: [192.0.2.7]": false, ingress + "config: {trustedProxies: [192.0.2.7]}": false} {
			if gotText := notes(t, c, values(t, leastHub, text)); strings.Contains(gotText, "NO PROXY IS TRUSTED") != warns {
				t.Errorf("%s: want a warning: %v, notes:\n%s", text, warns, gotText)
			}
		}
	})
	t.Run("CMP-01 plugins are declared by values, and their secrets mounted", func(t *testing.T) {
		const definition = "plugins: {existingSecret: tokens, definitions: {cue.yaml: {apiVersion: argoproj.io/v1alpha1, kind: ConfigManagementPlugin, metadata: {name: cue}, spec: {generate: {command: [cue, export]}}}}}\nconfig: {render: {plugins: {timeout: 30s}}}"
		r := hub(definition)
		cfg := configuration(t, r, "ConfigMap/capstan-capstan-hub")
		if p := cfg.Render.Plugins; p.Folder != "/etc/capstan/plugins" || time.Duration(p.Timeout) != 30*time.Second {
			t.Errorf("%+v", p)
		}
		text, _ := r.at(t, "ConfigMap/capstan-capstan-hub-plugins", "data", "cue.yaml").(string)
		if all, err := plugin.Parse("cue.yaml", []byte(text)); err != nil || len(all) != 1 || all[0].FullName() != "cue" {
			t.Errorf("%v, %v in %q", all, err, text)
		}
		mounts := says(r.at(t, hubDeployment, append(container, "volumeMounts")...))
		if !strings.Contains(mounts, "/etc/capstan/plugins") || !strings.Contains(mounts, "/etc/capstan/plugin-secrets") {
			t.Errorf("mounts %s", mounts)
		}
		if none := says(hub("{}").at(t, hubDeployment, append(container, "volumeMounts")...)); strings.Contains(none, "plugin") {
			t.Errorf("without plugins: %s", none)
		}
	})
	t.Run("a running hub does not hold the owner's URL where a Job migrates", func(t *testing.T) {
		r := hub("{}")
		if cfg := configuration(t, r, "ConfigMap/capstan-capstan-hub"); cfg.Database.OwnerFile != "" {
			t.Error("its configuration names the owner")
		}
		if text := says(r.at(t, hubDeployment, append(pod, "volumes")...)); strings.Contains(text, "owner") {
			t.Errorf("the owner's URL is mounted:\n%s", text)
		}
		if cfg := configuration(t, r, "ConfigMap/capstan-capstan-hub-migrate"); cfg.Database.OwnerFile == "" {
			t.Error("the Job cannot migrate")
		}
		if hook := r["Job/capstan-capstan-hub-migrate"].GetAnnotations()["helm.sh/hook"]; hook != "pre-install,pre-upgrade" {
			t.Errorf("hook %q", hook)
		}
	})
	t.Run("migrations at the hub's start, or not at all", func(t *testing.T) {
		r := hub("migrations: {mode: start}")
		if cfg := configuration(t, r, "ConfigMap/capstan-capstan-hub"); cfg.Database.OwnerFile == "" || r["Job/capstan-capstan-hub-migrate"] != nil {
			t.Error("start: the hub must migrate, and no Job")
		}
		r = hub("migrations: {mode: none}")
		if cfg := configuration(t, r, "ConfigMap/capstan-capstan-hub"); cfg.Database.OwnerFile != "" || r["Job/capstan-capstan-hub-migrate"] != nil {
			t.Error("none: nobody must migrate")
		}
	})
	t.Run("probes use paths that the hub serves", func(t *testing.T) {
		r := hub("probes: {readiness: {periodSeconds: 7}}")
		for probe, want := range map[string]string{"startupProbe": "/livez", "readinessProbe": "/readyz", "livenessProbe": "/livez"} {
			if got := r.at(t, hubDeployment, append(container, probe, "httpGet", "path")...); got != want {
				t.Errorf("%s asks %v", probe, got)
			}
		}
		if got := says(r.at(t, hubDeployment, append(container, "readinessProbe", "periodSeconds")...)); got != "7" {
			t.Errorf("period %v", got)
		}
	})
	t.Run("replicas reach each other and their port is closed to others", func(t *testing.T) {
		r := hub("extraEnv: [{name: GOMEMLIMIT, value: 1GiB}]")
		if cfg := configuration(t, r, "ConfigMap/capstan-capstan-hub"); cfg.Advertise != "192.0.2.7:9443" {
			t.Errorf("other replicas dial %q", cfg.Advertise)
		}
		// The Job reads the same configuration, so it needs the same around it.
		for _, id := range []string{hubDeployment, "Job/capstan-capstan-hub-migrate"} {
			env := says(r.at(t, id, append(container, "env")...))
			if !strings.Contains(env, "fieldPath: status.podIP") || !strings.Contains(env, "name: GOMEMLIMIT") {
				t.Errorf("%s: environment\n%s", id, env)
			}
		}
		rules, _ := r.at(t, "NetworkPolicy/capstan-capstan-hub", "spec", "ingress").([]any)
		for _, rule := range rules {
			if text := says(rule); strings.Contains(text, "port: internal") && !strings.Contains(text, "app.kubernetes.io/component: hub") {
				t.Errorf("the internal port is open to\n%s", text)
			}
		}
		for id, o := range r {
			if text := says(o.Object); strings.HasPrefix(id, "Service/") && (strings.Contains(text, "internal") || strings.Contains(text, "9443")) {
				t.Errorf("%s leads to the internal port", id)
			}
		}
	})
	t.Run("the root is read-only and what is written has a limit", func(t *testing.T) {
		text := says(hub("cache: {sizeLimit: 5Gi}").at(t, hubDeployment, append(pod, "volumes")...))
		if !strings.Contains(text, "sizeLimit: 5Gi") || !strings.Contains(text, "sizeLimit: 2Gi") {
			t.Errorf("volumes:\n%s", text)
		}
	})
	t.Run("several replicas have a budget and are spread", func(t *testing.T) {
		if hub("{}")["PodDisruptionBudget/capstan-capstan-hub"] != nil {
			t.Error("a budget for one replica would hold up every drain")
		}
		r := hub("replicas: 3")
		if got := says(r.at(t, "PodDisruptionBudget/capstan-capstan-hub", "spec", "maxUnavailable")); got != "1" {
			t.Errorf("budget %v", got)
		}
		if got := r.at(t, hubDeployment, append(pod, "topologySpreadConstraints", 0, "topologyKey")...); got != "kubernetes.io/hostname" {
			t.Errorf("spread over %v", got)
		}
		r = hub("replicas: 3\npodDisruptionBudget: {enabled: false}\ntopologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]")
		if r["PodDisruptionBudget/capstan-capstan-hub"] != nil || r.at(t, hubDeployment, append(pod, "topologySpreadConstraints", 0, "topologyKey")...) != "zone" {
			t.Error("what the values say does not win")
		}
	})
	t.Run("agents have a TCP port of their own", func(t *testing.T) {
		r := hub("link: {service: {type: NodePort, nodePort: 30443, externalTrafficPolicy: Local, annotations: {a: b}}}")
		if got := says(r.at(t, "Service/capstan-capstan-hub-link", "spec")); !strings.Contains(got, "nodePort: 30443") || !strings.Contains(got, "externalTrafficPolicy: Local") || !strings.Contains(got, "targetPort: link") {
			t.Errorf("%s", got)
		}
		r = hub("link: {service: {loadBalancerClass: x, loadBalancerSourceRanges: [192.0.2.0/24]}}")
		if got := says(r.at(t, "Service/capstan-capstan-hub-link", "spec")); !strings.Contains(got, "type: LoadBalancer") || !strings.Contains(got, "loadBalancerClass: x") || !strings.Contains(got, "192.0.2.0/24") {
			t.Errorf("%s", got)
		}
	})
	t.Run("the console has an ingress on request", func(t *testing.T) {
		if hub("{}")["Ingress/capstan-capstan-hub"] != nil {
			t.Error("there is one unasked")
		}
		r := hub("ingress: {enabled: true, className: nginx, hosts: [{host: c.example.com}], tls: [{secretName: tls, hosts: [c.example.com]}]}")
		got := says(r.at(t, "Ingress/capstan-capstan-hub", "spec"))
		for _, w := range []string{"ingressClassName: nginx", "host: c.example.com", "path: /", "pathType: Prefix", "name: capstan-capstan-hub", "secretName: tls"} {
			if !strings.Contains(got, w) {
				t.Errorf("%q is not in:\n%s", w, got)
			}
		}
	})
	t.Run("the network policy permits the needed connections", func(t *testing.T) {
		r := hub("networkPolicy: {egressPorts: [443], metricsFrom: [{namespaceSelector: {matchLabels: {name: monitoring}}}], extraEgress: [{to: [{ipBlock: {cidr: 192.0.2.1/32}}]}]}")
		got := says(r.at(t, "NetworkPolicy/capstan-capstan-hub", "spec"))
		for _, w := range []string{"port: link", "port: http", "port: metrics", "name: monitoring", "port: 53", "port: 443", "192.0.2.1/32"} {
			if !strings.Contains(got, w) {
				t.Errorf("%q is not in:\n%s", w, got)
			}
		}
		if strings.Contains(got, "5432") {
			t.Error("a port that is not listed is open")
		}
		if hub("networkPolicy: {enabled: false}")["NetworkPolicy/capstan-capstan-hub"] != nil {
			t.Error("it cannot be switched off")
		}
	})
	t.Run("SEC-J4 metrics need a token, and only clients in the values reach them", func(t *testing.T) {
		r := hub("metrics: {serviceMonitor: {enabled: true}}")
		if cfg := configuration(t, r, "ConfigMap/capstan-capstan-hub"); cfg.Metrics.TokenFile != "/etc/capstan/metrics/token" {
			t.Errorf("token file %q", cfg.Metrics.TokenFile)
		}
		if text := says(r.at(t, hubDeployment, append(pod, "volumes")...)); !strings.Contains(text, "capstan-capstan-hub-metrics-token") || r["Secret/capstan-capstan-hub-metrics-token"] == nil {
			t.Errorf("the token is not there: %s", text)
		}
		if got := says(r.at(t, "ServiceMonitor/capstan-capstan-hub", "spec", "endpoints", 0, "authorization")); !strings.Contains(got, "capstan-capstan-hub-metrics-token") || !strings.Contains(got, "Bearer") {
			t.Errorf("authorization %s", got)
		}
		if got := says(r.at(t, "NetworkPolicy/capstan-capstan-hub", "spec", "ingress")); strings.Contains(got, "port: metrics") {
			t.Errorf("the metrics are open:\n%s", got)
		}
		r = hub("metrics: {token: {existingSecret: mine}}")
		if text := says(r.at(t, hubDeployment, append(pod, "volumes")...)); !strings.Contains(text, "mine") || r["Secret/capstan-capstan-hub-metrics-token"] != nil {
			t.Errorf("a token of one's own: %s", text)
		}
		if cfg := configuration(t, hub("config: {metrics: {public: true}}"), "ConfigMap/capstan-capstan-hub"); cfg.Metrics.TokenFile != "" || !cfg.Metrics.Public {
			t.Errorf("public metrics: %+v", cfg.Metrics)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		r := hub("metrics: {serviceMonitor: {enabled: true, interval: 10s, labels: {release: prom}}}")
		m := r["ServiceMonitor/capstan-capstan-hub"]
		if m == nil || m.GetLabels()["release"] != "prom" || r.at(t, "ServiceMonitor/capstan-capstan-hub", "spec", "endpoints", 0, "interval") != "10s" {
			t.Errorf("monitor %v", m)
		}
		chosen, _ := r.at(t, "ServiceMonitor/capstan-capstan-hub", "spec", "selector", "matchLabels").(map[string]any)
		for k, v := range chosen {
			if r["Service/capstan-capstan-hub-metrics"].GetLabels()[k] != v {
				t.Errorf("the monitor's label %s=%v is not on the Service", k, v)
			}
			if k == "capstan.dev/service" && r["Service/capstan-capstan-hub"].GetLabels()[k] == v {
				t.Error("the monitor would read the console's Service as well")
			}
		}
		r = hub("metrics: {enabled: false}")
		if r["Service/capstan-capstan-hub-metrics"] != nil || configuration(t, r, "ConfigMap/capstan-capstan-hub").Listen.Metrics != "" {
			t.Error("metrics are served though they are off")
		}
		refused(t, c, values(t, leastHub, "metrics: {enabled: false, serviceMonitor: {enabled: true}}"), "needs metrics.enabled")
	})
	t.Run("OBS-10 alert rules and dashboard are complete", func(t *testing.T) {
		r := hub("metrics: {rules: {enabled: true, labels: {a: b}}, dashboard: {enabled: true}}")
		if rules := r.at(t, "PrometheusRule/capstan-capstan-hub", "spec", "groups", 0, "rules", 0, "alert"); rules == nil || r["PrometheusRule/capstan-capstan-hub"].GetLabels()["a"] != "b" {
			t.Errorf("the first rule is %v", rules)
		}
		board := map[string]any{}
		text, _ := r.at(t, "ConfigMap/capstan-capstan-hub-dashboard", "data", "capstan.json").(string)
		if err := json.Unmarshal([]byte(text), &board); err != nil || board["uid"] != "capstan" {
			t.Errorf("the dashboard is %.60s: %v", text, err)
		}
	})
	t.Run("the master key is in an existing Secret, or generated once", func(t *testing.T) {
		if text := says(hub("{}").at(t, hubDeployment, append(pod, "volumes")...)); !strings.Contains(text, "secretName: master\n") || !strings.Contains(text, "defaultMode: 288") {
			t.Errorf("volumes:\n%s", text)
		}
		r := hub("masterKey: {existingSecret: '', generate: true}")
		o := r["Secret/capstan-capstan-hub-master-key"]
		if o == nil || o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
			t.Errorf("the Secret is %v", o)
		}
		refused(t, c, values(t, leastHub, "masterKey: {existingSecret: ''}"), "masterKey.existingSecret is needed")
	})
	t.Run("the bundled Postgres is for trials", func(t *testing.T) {
		r := hub("postgres: {bundled: true, size: 3Gi, storageClass: fast}\ndatabase: {existingSecret: ''}")
		claim := says(r.at(t, "StatefulSet/capstan-capstan-hub-postgres", "spec", "volumeClaimTemplates", 0))
		if !strings.Contains(claim, "storage: 3Gi") || !strings.Contains(claim, "storageClassName: fast") {
			t.Errorf("claim:\n%s", claim)
		}
		if url, _ := r.at(t, "Secret/capstan-capstan-hub-database", "stringData", "system").(string); !strings.HasPrefix(url, "postgres://capstan_system:") {
			t.Error("the hub gets no URL")
		}
		if r["Job/capstan-capstan-hub-migrate"] != nil || configuration(t, r, "ConfigMap/capstan-capstan-hub").Database.OwnerFile == "" {
			t.Error("a Job cannot migrate a database that is not there yet")
		}
		if r["NetworkPolicy/capstan-capstan-hub-postgres"] == nil {
			t.Error("everybody may reach the database")
		}
		refused(t, c, values(t, leastHub, "postgres: {bundled: true}"), "exclude each other")
		refused(t, c, values(t, leastHub, "postgres: {bundled: true}\ndatabase: {existingSecret: ''}\nmigrations: {mode: job}"), "use start")
	})
	t.Run("the rest of the values arrives", func(t *testing.T) {
		r := hub(`
image: {digest: "sha256:` + strings.Repeat("a", 64) + `", pullPolicy: Always}
resources: {requests: {cpu: 2}, limits: {memory: 4Gi}}
fullnameOverride: other
` + podValues)
		text := says(r.at(t, "Deployment/other"))
		for _, w := range append(podWords(), "registry.example.com/capstan-hub@sha256:aaa", "memory: 4Gi") {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in:\n%s", w, text)
			}
		}
		if r["ServiceAccount/someone"] == nil || hub("serviceAccount: {create: false}").at(t, hubDeployment, append(pod, "serviceAccountName")...) != "default" {
			t.Error("the account is not what the values say")
		}
	})
	t.Run("a change of the configuration replaces the pods", func(t *testing.T) {
		sum := append(pod[:2:2], "metadata", "annotations", "checksum/config")
		if hub("{}").at(t, hubDeployment, sum...) == hub("config: {heartbeat: 5s}").at(t, hubDeployment, sum...) {
			t.Error("the checksum is the same")
		}
	})
}

func TestHubChartRefuses(t *testing.T) {
	t.Parallel()
	c := load(t, "capstan-hub")
	for name, bad := range map[string]struct {
		text  string
		words []string
	}{
		"unknown key":       {"replica: 2", []string{"replica"}},
		"unknown inner key": {"ingress: {enable: true}", []string{"ingress", "enable"}},
		"text for number":   {"replicas: two", []string{"replicas"}},
		"no replicas":       {"replicas: 0", []string{"replicas"}},
		"kind of Service":   {"link: {service: {type: External}}", []string{"link", "type"}},
		"port":              {"service: {port: 70000}", []string{"port"}},
		"agent host":        {"agentHosts: [capstan.example.com]", []string{"agentHosts"}},
		"address":           {"publicURL: capstan.example.com", []string{"publicURL"}},
		"no address":        {"publicURL: ''", []string{"publicURL is needed"}},
		"no agent hosts":    {"agentHosts: []", []string{"agentHosts is needed"}},
		"no image":          {"image: {repository: ''}", []string{"image.repository is needed"}},
		"digest":            {"image: {digest: latest}", []string{"digest"}},
		"no database":       {"database: {existingSecret: ''}", []string{"database.existingSecret is needed"}},
		"quantity":          {"cache: {sizeLimit: big}", []string{"sizeLimit"}},
		"migrations":        {"migrations: {mode: later}", []string{"mode"}},
		"no ingress hosts":  {"ingress: {enabled: true}", []string{"ingress.hosts is needed"}},
		"trusted proxy":     {"trustedProxies: [ingress.example.com]", []string{"trustedProxies"}},
		"PROXY protocol":    {"proxyProtocol: [metrics]", []string{"proxyProtocol"}},
		"PROXY of nobody":   {"proxyProtocol: [link]", []string{"trustedProxies is needed"}},
		"ingress without":   {"ingress: {enabled: true, hosts: [{path: /}]}", []string{"host"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, c, values(t, leastHub, bad.text), bad.words...)
		})
	}
}

// configuration has the hub itself read a rendered configuration, with files
// of this test in place of the mounted ones.
func configuration(t *testing.T, r rendered, id string) daemon.Config {
	t.Helper()
	text, _ := r.at(t, id, "data", "hub.yaml").(string)
	dir := t.TempDir()
	for _, role := range []string{"app", "system", "owner"} {
		if err := os.WriteFile(filepath.Join(dir, role), []byte("postgres://"+role+"@db/capstan"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "hub.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/etc/capstan/database/", dir+"/")), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := daemon.Load(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return c
}

// TestChartsAreOneRelease keeps chart and product together.
func TestChartsAreOneRelease(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"capstan-hub", "capstan-agent"} {
		c := load(t, name)
		if c.Metadata.Version != c.Metadata.AppVersion {
			t.Errorf("%s: chart %s, product %s", name, c.Metadata.Version, c.Metadata.AppVersion)
		}
		var schema struct {
			AdditionalProperties *bool `json:"additionalProperties"`
		}
		if err := yaml.Unmarshal(c.Schema, &schema); err != nil || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
			t.Errorf("%s: its schema lets unknown keys pass", name)
		}
	}
}

// podValues are values that both charts pass to their pods as they are.
const podValues = `imagePullSecrets: [{name: pull}]
priorityClassName: high
podAnnotations: {note: x}
podLabels: {team: shop}
nodeSelector: {disk: ssd}
tolerations: [{key: only}]
affinity: {nodeAffinity: {}}
extraEnv: [{name: GOMEMLIMIT, value: 1GiB}]
extraVolumes: [{name: more, emptyDir: {}}]
extraVolumeMounts: [{name: more, mountPath: /more}]
terminationGracePeriodSeconds: 90
serviceAccount: {name: someone, annotations: {role: z}}
`

// podWords are found in a pod with podValues and pullPolicy Always.
func podWords() []string {
	return []string{
		"imagePullPolicy: Always", "name: pull", "priorityClassName: high", "note: x", "team: shop", "disk: ssd", "key: only", "nodeAffinity",
		"GOMEMLIMIT", "mountPath: /more", "terminationGracePeriodSeconds: 90", "serviceAccountName: someone",
	}
}
