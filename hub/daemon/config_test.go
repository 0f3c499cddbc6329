package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

const least = `
database: {app: postgres://app@db/capstan, system: postgres://system@db/capstan}
stateDir: /var/lib/capstan
masterKey: /etc/capstan/master.key
`

func load(t *testing.T, text string) (Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hub.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(file)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, err := load(t, least)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.HTTP != "127.0.0.1:8080" || c.Listen.Link != "127.0.0.1:8443" || c.Listen.Metrics != "" {
		t.Errorf("listen %+v", c.Listen)
	}
	if time.Duration(c.Sources.PollInterval) != 3*time.Minute || c.Sources.Parallel != 16 || time.Duration(c.Heartbeat) != 10*time.Second {
		t.Errorf("sources %+v, heartbeat %v", c.Sources, c.Heartbeat)
	}
	if time.Duration(c.Lease) != 15*time.Second || time.Duration(c.Drain) != 5*time.Second || c.Listen.Internal != "" || c.Advertise != "" {
		t.Errorf("a hub that is alone: lease %v, drain %v, internal %q, advertise %q", c.Lease, c.Drain, c.Listen.Internal, c.Advertise)
	}
	if c, err = load(t, least+"listen: {internal: 10.0.0.1:9443}\n"); err != nil || c.Advertise != "10.0.0.1:9443" {
		t.Errorf("internal port at one address: advertise %q, %v", c.Advertise, err)
	}
	if c, err = load(t, least); err != nil {
		t.Fatal(err)
	}
	if c.Replica == "" || c.Log != (Log{"text", "info"}) || c.Limits != (RateLimits{100, 300, 100, 600, 1024}) {
		t.Errorf("replica %q, log %+v, limits %+v", c.Replica, c.Log, c.Limits)
	}
	if got := c.publicURL(); got != "http://127.0.0.1:8080" {
		t.Errorf("public URL %q", got)
	}
	if c.PublicURL = "https://capstan.example.com/"; c.publicURL() != "https://capstan.example.com" {
		t.Errorf("public URL %q", c.publicURL())
	}
	if c, err = load(t, least+"publicURL: https://example.com/capstan/\n"); err != nil || c.publicURL() != "https://example.com/capstan" {
		t.Errorf("public URL with a path: %q %v", c.publicURL(), err)
	}
}

func TestAdvertise(t *testing.T) {
	t.Setenv("POD_IP", "10.1.2.3")
	for text, want := range map[string]string{
		"":                                    "",
		"listen: {internal: \":9443\"}\n":     "10.1.2.3:9443",
		"listen: {internal: \"[::]:9443\"}\n": "10.1.2.3:9443",
		"listen: {internal: 10.9.9.9:1}\n":    "10.9.9.9:1",
		"listen: {internal: \":9443\"}\nadvertise: hub-0.hub:9443\n": "hub-0.hub:9443",
	} {
		if c, err := load(t, least+text); err != nil || c.Advertise != want {
			t.Errorf("%q: advertise %q, %v, want %q", text, c.Advertise, err, want)
		}
	}
}

func TestConfigIsRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		why  string
		text string
		says string
	}{
		"unknown key":          {"a typo must not be a default", least + "stateDirectory: /x\n", "stateDirectory"},
		"unknown inner key":    {"a typo must not be a default", least + "listen: {htp: 1.2.3.4:80}\n", "htp"},
		"key twice":            {"one of the two would be lost", least + "stateDir: /other\n", "stateDir"},
		"no YAML":              {"half a file", "listen: {", "not valid"},
		"empty":                {"nothing has a default database", "", "database"},
		"address":              {"no port", least + "listen: {http: localhost}\n", "listen.http"},
		"metrics address":      {"found at start, not later", least + "listen: {metrics: localhost}\n", "listen.metrics"},
		"relative state":       {"it would depend on where the hub starts", strings.Replace(least, "/var/lib", "lib", 1), "stateDir"},
		"relative styles":      {"it would depend on where the hub starts", least + "consoleStyles: styles\n", "consoleStyles"},
		"no master key":        {"nothing could be sealed", strings.Replace(least, "masterKey: /etc/capstan/master.key", "", 1), "capstan-hub master-key"},
		"network":              {"no prefix length", least + "sources: {allowPrivate: [10.0.0.1]}\n", "10.0.0.1"},
		"sandbox":              {"off must be said exactly", least + "render: {sandbox: off}\n", "render.sandbox"},
		"duration":             {"a bare number has no unit", least + "heartbeat: 10\n", "duration"},
		"negative duration":    {"it would poll without pause", least + "heartbeat: -1s\n", "heartbeat"},
		"negative interval":    {"it would fetch without pause", least + "sources: {pollInterval: -3m}\n", "sources.pollInterval"},
		"negative parallel":    {"nothing would be fetched", least + "sources: {parallel: -1}\n", "sources.parallel"},
		"a second before":      {"nothing would be rendered", least + "render: {timeout: -1s}\n", "render.timeout"},
		"a renderer of 1 MiB":  {"it could not start", least + "render: {memoryMiB: 1}\n", "render.memoryMiB"},
		"negative workers":     {"nothing would be rendered", least + "render: {workers: -1}\n", "render.workers"},
		"negative limit":       {"every request would be refused", least + "limits: {burst: -1}\n", "limits"},
		"log level":            {"a typo would hide what was asked for", least + "log: {level: verbose}\n", "log.level"},
		"log format":           {"a typo would be text", least + "log: {format: xml}\n", "log.format"},
		"internal address":     {"no port", least + "listen: {internal: localhost}\n", "listen.internal"},
		"no address to tell":   {"others could not dial it", least + "listen: {internal: \"0.0.0.0:9443\"}\n", "advertise is needed"},
		"advertise":            {"no port", least + "advertise: hub-0\n", "advertise"},
		"first tenant":         {"nothing in the clusters would be its own", least + "tenants: {firstID: default}\n", "tenants.firstID"},
		"short lease":          {"work would move while it is done", least + "lease: 10ms\n", "lease"},
		"long drain":           {"it would be killed before its end", least + "drain: 1m\n", "drain"},
		"URL twice":            {"one of the two would be lost", strings.Replace(least, "{app:", "{appFile: /x, app:", 1), "both set"},
		"no URL file":          {"a Secret that is not mounted", strings.Replace(least, "app: postgres://app@db/capstan", "appFile: /nowhere/app", 1), "/nowhere/app"},
		"agent chart":          {"people paste the command into a shell", least + "agentChart: {chart: 'a; rm -rf b'}\n", "agentChart.chart"},
		"agent host":           {"agents could not dial it", least + "agentHosts: [capstan.example.com]\n", "agentHosts"},
		"public URL":           {"links would lead nowhere", least + "publicURL: capstan.example.com\n", "publicURL"},
		"public URL and query": {"links would be cut", least + "publicURL: https://example.com/capstan?x=1\n", "publicURL"},
		"public URL of agents": {"agents and people would have one address", least + "publicURL: https://example.com/link/x\n", "publicURL"},
		"negative connection":  {"no connection could be made", strings.Replace(least, "{app:", "{maxConns: -1, app:", 1), "database.maxConns"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, c.text)
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.why, err)
			}
		})
	}
	t.Run("every bad value is named at once", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "listen: {http: a, link: b}\nrender: {sandbox: off}\nsources: {allowPrivate: [x]}\n")
		for _, says := range []string{"listen.http", "listen.link", "database", "stateDir", "masterKey", "allowPrivate", "sandbox"} {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%q is not named: %v", says, err)
			}
		}
	})
	t.Run("SEC-A1 a password in a URL is not repeated", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "database: {app: 'postgres://app:hunter2@db/capstan'}\n")
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("CFG-03 a misspelt field is named with its line and what was meant", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, least+"listen:\n  htp: 127.0.0.1:80\n")
		if err == nil || !strings.Contains(err.Error(), `hub.yaml, line `) || !strings.Contains(err.Error(), `there is no field "htp" in listen; did you mean "http"?`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("CFG-03 a value of a wrong type is named with its line", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, least+"lease: 30\n")
		if err == nil || !strings.Contains(err.Error(), "lease: 30 is no duration; write it like") || !strings.Contains(err.Error(), "hub.yaml, line ") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a file that is not there", func(t *testing.T) {
		t.Parallel()
		if _, err := Load("/nonexistent/hub.yaml"); fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "/nonexistent/hub.yaml") {
			t.Errorf("error %v", err)
		}
	})
}

func TestWebhookSecret(t *testing.T) {
	t.Parallel()
	write := func(text string) Config {
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return Config{Webhook: Webhook{GitHubSecretFile: file}}
	}
	if s, err := write("s3cret\n").webhookSecret(); s != "s3cret" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
	if _, err := write(" \n").webhookSecret(); err == nil {
		t.Error("SEC: an empty secret would accept unsigned events")
	}
	if _, err := (Config{Webhook: Webhook{GitHubSecretFile: "/nonexistent"}}).webhookSecret(); err == nil {
		t.Error("SEC: a missing file would accept unsigned events")
	}
	if s, err := (Config{}).webhookSecret(); s != "" || err != nil {
		t.Errorf("%q, %v", s, err)
	}
}

func TestDatabaseFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app")
	text := strings.Replace(least, "app: postgres://app@db/capstan", "appFile: "+file, 1)
	if err := os.WriteFile(file, []byte("  \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty file: %v", err)
	}
	if err := os.WriteFile(file, []byte("postgres://app:s3cret@db/capstan\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := load(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if c.Database.App != "postgres://app:s3cret@db/capstan" {
		t.Errorf("the URL is %q", c.Database.App)
	}
}

func TestInstallCommand(t *testing.T) {
	t.Parallel()
	for want, chart := range map[string]AgentChart{
		"helm install capstan-agent charts/capstan-agent --namespace capstan-system --create-namespace --set image.repository=YOUR-REGISTRY/capstan-agent --set join.token={token}":                     {},
		"helm install capstan-agent oci://r.example/charts/capstan-agent --version 1.2.3 --namespace capstan-system --create-namespace --set image.repository=r.example/agent --set join.token={token}": {"oci://r.example/charts/capstan-agent", "1.2.3", "r.example/agent"},
	} {
		if got := chart.install(); got != want {
			t.Errorf("%+v:\n%s\nwant\n%s", chart, got, want)
		}
	}
}
