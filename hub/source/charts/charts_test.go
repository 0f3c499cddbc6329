package charts_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	tenant  = hub.TenantID("0198c0de-0000-7000-8000-000000000001")
	other   = hub.TenantID("0198c0de-0000-7000-8000-000000000002")
	project = "shop"
)

// known is what the hub knows of repositories, by tenant.
type known struct {
	access map[hub.TenantID]charts.Access
	names  map[string]string // by project and name
}

func (k known) ChartAccess(_ context.Context, tenant hub.TenantID, _, _ string) (charts.Access, error) {
	return k.access[tenant], nil
}

func (k known) ChartRepository(_ context.Context, _ hub.TenantID, project, name string) (string, error) {
	if url, ok := k.names[project+"/"+name]; ok {
		return url, nil
	}
	return "", fault.New(fault.Missing, "there is no chart repository %q", name)
}

// A clock is moved by the test.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

// trusting opens a server for one tenant with a credential.
func trusting(s *chartstest.Server, cred hub.Credential) known {
	return known{access: map[hub.TenantID]charts.Access{tenant: {Authorities: s.Authority(), Credential: cred}, other: {Authorities: s.Authority()}}}
}

func TestChartRepository(t *testing.T) {
	t.Parallel()
	s := chartstest.NewRepository()
	t.Cleanup(s.Close)
	digests := map[string]string{}
	for _, v := range []string{"1.2.0", "1.10.0", "2.0.0-rc.1", "1.9.3"} {
		digests[v] = s.Publish("redis", v, nil)
	}
	s.Publish("redis-cluster", "9.0.0", nil)
	at := &clock{at: time.Now()}
	c := charts.New(charts.Config{AllowedNetworks: loopback(), Now: at.now}, trusting(s, hub.Credential{}))
	get := func(who hub.TenantID, version, known string) (hub.ChartArchive, error) {
		return c.Chart(t.Context(), who, project, hub.ChartRef{Repository: s.URL, Name: "redis", Version: version}, known)
	}
	for asked, want := range map[string]string{"1.2.0": "1.2.0", "^1.2": "1.10.0", "": "1.10.0", "~1.9": "1.9.3", ">=2.0.0-0": "2.0.0-rc.1", "v1.2.0": "1.2.0", "1.x": "1.10.0"} {
		t.Run("HELM-15 the version "+asked, func(t *testing.T) {
			a, err := get(tenant, asked, "")
			if err != nil || a.Version != want || a.Digest != digests[want] || chartstest.Digest(a.Data) != a.Digest {
				t.Errorf("%q gives %s %s, %v; want %s", asked, a.Version, a.Digest, err, want)
			}
		})
	}
	t.Run("HELM-15 index and archives are read once, and the index again with its validators", func(t *testing.T) {
		if n := s.Asked("/index.yaml"); n != 1 {
			t.Errorf("the index was asked for %d times", n)
		}
		for v, path := range map[string]string{"1.2.0": "/charts/redis-1.2.0.tgz", "1.10.0": "/charts/redis-1.10.0.tgz"} {
			if n := s.Asked(path); n != 1 {
				t.Errorf("the archive of %s was asked for %d times", v, n)
			}
		}
		at.pass(time.Minute)
		before := s.Requests()
		a, err := get(tenant, "^1.2", "")
		if err != nil || a.Version != "1.10.0" || s.Requests() != before+1 {
			t.Errorf("a look after a minute: %d requests, %v", s.Requests()-before, err)
		}
		digest := s.Publish("redis", "1.11.0", nil)
		at.pass(time.Minute)
		if a, err = get(tenant, "^1.2", ""); err != nil || a.Digest != digest {
			t.Errorf("after a new version was published: %s, %v", a.Version, err)
		}
	})
	t.Run("HELM-15 a known archive is not sent again", func(t *testing.T) {
		fresh := charts.New(charts.Config{AllowedNetworks: loopback()}, trusting(s, hub.Credential{}))
		before := s.Requests()
		a, err := fresh.Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL, Name: "redis", Version: "1.2.0"}, digests["1.2.0"])
		if err != nil || a.Data != nil || a.Digest != digests["1.2.0"] || s.Requests() != before {
			t.Errorf("an exact version that is known: %d requests, %v", s.Requests()-before, err)
		}
		a, err = fresh.Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL, Name: "redis", Version: "~1.9"}, digests["1.9.3"])
		if err != nil || a.Data != nil || a.Digest != digests["1.9.3"] || s.Requests() != before+1 {
			t.Errorf("a range whose version is known: %d requests, %v", s.Requests()-before, err)
		}
	})
	t.Run("HELM-15 parallel reads of one chart cause two requests", func(t *testing.T) {
		fresh := charts.New(charts.Config{AllowedNetworks: loopback()}, trusting(s, hub.Credential{}))
		before := s.Requests()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := fresh.Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL, Name: "redis", Version: "^1"}, ""); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := s.Requests() - before; n != 2 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("ISO-7 a tenant reads nothing that another one fetched", func(t *testing.T) {
		s.Protect("me", "s3cret")
		if _, err := get(other, "1.2.0", ""); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "refuses") {
			t.Errorf("another tenant got %v", err)
		}
	})
}

func TestChartCredentials(t *testing.T) {
	t.Parallel()
	far := chartstest.NewRepository()
	t.Cleanup(far.Close)
	s := chartstest.NewRepository()
	t.Cleanup(s.Close)
	s.Publish("redis", "1.0.0", nil)
	s.Protect("me", "s3cret")
	leaked := make(chan string, 1)
	far.Answer("/redis-1.0.0.tgz", func(_ http.ResponseWriter, r *http.Request) { leaked <- r.Header.Get("Authorization") })
	ref := hub.ChartRef{Repository: s.URL, Name: "redis", Version: "1.0.0"}
	with := func(cred hub.Credential) *charts.Client {
		return charts.New(charts.Config{AllowedNetworks: loopback()}, trusting(s, cred))
	}
	t.Run("HELM-15 a credential opens the repository", func(t *testing.T) {
		if _, err := with(hub.Credential{Username: "me", Password: "s3cret"}).Chart(t.Context(), tenant, project, ref, ""); err != nil {
			t.Error(err)
		}
	})
	t.Run("HELM-15 without one the error says what to do", func(t *testing.T) {
		_, err := with(hub.Credential{Username: "me", Password: "wr0ng"}).Chart(t.Context(), tenant, project, ref, "")
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "register the repository") || strings.Contains(fault.Sentence(err), "wr0ng") {
			t.Errorf("%v", fault.Sentence(err))
		}
	})
	t.Run("SEC-A5 a credential goes to no other host that the index names", func(t *testing.T) {
		s.Answer("/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "apiVersion: v1\nentries:\n  redis:\n  - version: 1.0.0\n    urls: [%q]\n", far.URL+"/redis-1.0.0.tgz")
		})
		both := trusting(s, hub.Credential{Username: "me", Password: "s3cret"})
		a := both.access[tenant]
		a.Insecure = true // of another server, whose authority is not known
		both.access[tenant] = a
		_, _ = charts.New(charts.Config{AllowedNetworks: loopback()}, both).Chart(t.Context(), tenant, project, ref, "")
		select {
		case header := <-leaked:
			if header != "" {
				t.Errorf("the other host was sent %q", header)
			}
		default:
			t.Error("the other host was not asked")
		}
	})
	t.Run("SEC-A5 a credential follows no redirect to another server, be it of the same address", func(t *testing.T) {
		var sent []string // the two servers share an address, but not a port
		far.Answer("/index.yaml", func(w http.ResponseWriter, r *http.Request) {
			sent = append(sent, r.Header.Get("Authorization"))
			_, _ = fmt.Fprint(w, "entries: {}\n")
		})
		s.Answer("/moved/index.yaml", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, far.URL+"/index.yaml", http.StatusFound)
		})
		moved := hub.ChartRef{Repository: s.URL + "/moved", Name: "redis", Version: "1.0.0"}
		_, err := with(hub.Credential{Username: "me", Password: "s3cret"}).Chart(t.Context(), tenant, project, moved, "")
		if diff := cmp.Diff([]string{""}, sent); diff != "" {
			t.Errorf("the other server was sent (-want +got):\n%s\n%v", diff, err)
		}
	})
}

func TestChartRegistry(t *testing.T) {
	t.Parallel()
	s := chartstest.NewRegistry()
	t.Cleanup(s.Close)
	s.Protect("me", "s3cret")
	digests := map[string]string{}
	for _, v := range []string{"1.2.0", "1.10.0", "2.0.0+build.1"} {
		var err error
		if digests[v], err = s.Push(t.Context(), "team/charts", "redis", v, nil); err != nil {
			t.Fatal(err)
		}
	}
	address := strings.Replace(s.URL, "https://", "oci://", 1) + "/team/charts"
	var requests sync.Map
	observe := func(kind, repository string, err error, _ time.Duration) {
		if repository != address || err != nil {
			t.Errorf("%s of %s: %v", kind, repository, err)
		}
		n, _ := requests.LoadOrStore(kind, new(atomic.Int64))
		if counter, is := n.(*atomic.Int64); is {
			counter.Add(1)
		}
	}
	c := charts.New(charts.Config{AllowedNetworks: loopback(), Observe: observe}, trusting(s, hub.Credential{Username: "me", Password: "s3cret"}))
	for asked, want := range map[string]string{"1.2.0": "1.2.0", "^1.2": "1.10.0", "2.0.0+build.1": "2.0.0+build.1", "": "2.0.0+build.1"} {
		t.Run("HELM-15 HELM-16 the version "+asked+" of a registry", func(t *testing.T) {
			a, err := c.Chart(t.Context(), tenant, project, hub.ChartRef{Repository: address, Name: "redis", Version: asked}, "")
			if err != nil || a.Version != want || a.Digest != digests[want] || chartstest.Digest(a.Data) != a.Digest {
				t.Errorf("%q gives %s %s, %v; want %s", asked, a.Version, a.Digest, err, want)
			}
		})
	}
	t.Run("OBS-04 requests are counted by type", func(t *testing.T) {
		for kind, want := range map[string]int64{"get-tags": 2, "resolve-revision": 4, "extract": 3} {
			n, ok := requests.Load(kind)
			if counted, is := n.(*atomic.Int64); !ok || !is || counted.Load() != want {
				t.Errorf("%d requests %s, want %d", counted.Load(), kind, want)
			}
		}
	})
	for name, c := range map[string]struct {
		who  hub.TenantID
		ref  hub.ChartRef
		says string
	}{
		"HELM-15 a version that a registry does not have": {tenant, hub.ChartRef{Repository: address, Name: "redis", Version: "3.0.0"}, `has no version "3.0.0"`},
		"HELM-15 a range that a registry does not have":   {tenant, hub.ChartRef{Repository: address, Name: "redis", Version: "^3"}, `has no version "^3"`},
		"HELM-15 a chart that a registry does not have":   {tenant, hub.ChartRef{Repository: address, Name: "mysql", Version: "^3"}, "does not exist"},
		"HELM-15 a registry without a credential":         {other, hub.ChartRef{Repository: address, Name: "redis", Version: "1.2.0"}, "refuses"},
	} {
		t.Run(name, func(t *testing.T) {
			fresh := charts.New(charts.Config{AllowedNetworks: loopback()}, trusting(s, hub.Credential{Username: "me", Password: "s3cret"}))
			_, err := fresh.Chart(t.Context(), c.who, project, c.ref, "")
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) || strings.Contains(fault.Sentence(err), "s3cret") {
				t.Errorf("%v; want %q", fault.Sentence(err), c.says)
			}
		})
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	c := charts.New(charts.Config{}, known{names: map[string]string{"shop/stable": "https://charts.example.com/stable"}})
	for written, want := range map[string]string{
		"https://Charts.example.com/stable/": "https://charts.example.com/stable",
		"@stable":                            "https://charts.example.com/stable",
		"alias:stable":                       "https://charts.example.com/stable",
		"oci://registry.example.com/charts":  "oci://registry.example.com/charts",
	} {
		t.Run("HELM-15 the repository "+written, func(t *testing.T) {
			t.Parallel()
			got, err := c.Locate(t.Context(), tenant, project, hub.ChartRef{Repository: written, Name: "redis"})
			if err != nil || got != want {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
	for written, says := range map[string]string{
		"@unknown": "none is registered under that name", "git@example.com:charts": "which is none of charts", "file:///etc": "no usable repository", "": "no usable repository",
	} {
		t.Run("HELM-15 no repository: "+written, func(t *testing.T) {
			t.Parallel()
			_, err := c.Locate(t.Context(), tenant, project, hub.ChartRef{Repository: written, Name: "redis"})
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), says) {
				t.Errorf("%v; want %q", fault.Sentence(err), says)
			}
		})
	}
}

func TestBadChartRepositories(t *testing.T) {
	t.Parallel()
	s := chartstest.NewRepository()
	t.Cleanup(s.Close)
	s.Publish("redis", "1.0.0", map[string]string{"values.yaml": strings.Repeat("# long\n", 10)})
	index := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, text) }
	}
	for path, with := range map[string]http.HandlerFunc{
		"/list/index.yaml":   index("apiVersion: v1\nentries:\n  redis: hello\n"),
		"/html/index.yaml":   index("<html>not found</html>"),
		"/flow/index.yaml":   index("apiVersion: v1\nentries: {redis: [{version: 1.0.0, urls: [a.tgz]}]}\n"),
		"/digest/index.yaml": index("entries:\n  redis:\n  - version: 1.0.0\n    digest: " + strings.Repeat("a", 64) + "\n    urls: [/charts/redis-1.0.0.tgz]\n"),
		"/ssh/index.yaml":    index("entries:\n  redis:\n  - version: 1.0.0\n    urls: ['ssh://me:s3cret@example.com/x']\n"),
		"/down/index.yaml":   index("entries:\n  redis:\n  - version: 1.0.0\n    urls: ['http://127.0.0.1:1/x']\n"),
		"/none/index.yaml":   index("entries: {}\n"),
		"/away/index.yaml": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "ftp://example.com/?s3cret", http.StatusFound)
		},
		"/broken/index.yaml": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"/long/index.yaml":   index("entries:\n  redis:\n" + strings.Repeat("  - version: 1.0.0\n    urls: [x]\n", 100_000)),
		"/bomb/index.yaml":   index("entries:\n  redis:\n" + bomb()),
	} {
		s.Answer(path, with)
	}
	for name, c := range map[string]struct {
		below, chart, version string
		kind                  fault.Kind
		says                  string
	}{
		"HELM-15 a chart that the index does not name":     {"", "mysql", "1.0.0", fault.Invalid, `has no chart "mysql"`},
		"HELM-15 a version that the index does not name":   {"", "redis", "^2", fault.Invalid, `has no version "^2"`},
		"HELM-15 a version that is none":                   {"", "redis", "newest", fault.Invalid, "neither a version nor a range"},
		"HELM-15 a name that is none":                      {"", "../redis", "1.0.0", fault.Invalid, "not the name of a chart"},
		"SEC-B7 a page instead of an index":                {"/html", "redis", "1.0.0", fault.Invalid, `has no chart "redis"`},
		"SEC-B7 an index with other content":               {"/list", "redis", "1.0.0", fault.Invalid, `has no chart "redis"`},
		"HELM-15 an index in another style":                {"/flow", "redis", "1.0.0", fault.Invalid, "a style that is not read"},
		"HELM-15 an index without charts":                  {"/none", "redis", "1.0.0", fault.Invalid, `has no chart "redis"`},
		"HELM-15 an archive with another digest":           {"/digest", "redis", "1.0.0", fault.Invalid, "another digest"},
		"SEC-A6 an index that names another kind of place": {"/ssh", "redis", "1.0.0", fault.Invalid, "which is no address of one"},
		"SEC-A6 an index that leads from https to http":    {"/down", "redis", "1.0.0", fault.Invalid, "from https to http"},
		"SEC-A6 a redirect to another scheme":              {"/away", "redis", "1.0.0", fault.Invalid, "neither http nor https"},
		"HELM-15 a server that is down":                    {"/broken", "redis", "1.0.0", fault.Offline, "status 502"},
		"HELM-15 a repository that does not exist":         {"/nowhere", "redis", "1.0.0", fault.Invalid, "does not exist"},
		"SEC-B7 an index that is too large":                {"/long", "redis", "1.0.0", fault.Exceeded, "more than 1048576 bytes"},
		"SEC-B1 an index that unfolds":                     {"/bomb", "redis", "1.0.0", fault.Invalid, "no index of charts"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := charts.New(charts.Config{AllowedNetworks: loopback(), IndexBytes: 1 << 20}, trusting(s, hub.Credential{}))
			_, err := client.Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL + c.below, Name: c.chart, Version: c.version}, "")
			if fault.KindOf(err) != c.kind || !strings.Contains(fault.Sentence(err), c.says) || strings.Contains(fault.Sentence(err), "s3cret") {
				t.Errorf("%v (kind %q); want %q (kind %q)", fault.Sentence(err), fault.KindOf(err), c.says, c.kind)
			}
		})
	}
	t.Run("SEC-B7 an index that never ends", func(t *testing.T) {
		t.Parallel()
		s.Answer("/slow/index.yaml", func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, "entries:\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		client := charts.New(charts.Config{AllowedNetworks: loopback(), Timeout: 100 * time.Millisecond}, trusting(s, hub.Credential{}))
		_, err := client.Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL + "/slow", Name: "redis"}, "")
		if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "did not answer in time") {
			t.Errorf("%v", fault.Sentence(err))
		}
	})
	t.Run("SEC-B3 an archive that is too large", func(t *testing.T) {
		t.Parallel()
		client := charts.New(charts.Config{AllowedNetworks: loopback(), ArchiveBytes: 10}, trusting(s, hub.Credential{}))
		_, err := client.Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL, Name: "redis"}, "")
		if fault.KindOf(err) != fault.Exceeded {
			t.Errorf("%v", err)
		}
	})
	t.Run("SEC-A6 a repository inside the operator's network", func(t *testing.T) {
		t.Parallel()
		_, err := charts.New(charts.Config{}, trusting(s, hub.Credential{})).Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL, Name: "redis"}, "")
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "leads into an internal network") {
			t.Errorf("%v", fault.Sentence(err))
		}
	})
	t.Run("HELM-15 an authority that is not trusted", func(t *testing.T) {
		t.Parallel()
		_, err := charts.New(charts.Config{AllowedNetworks: loopback()}, known{}).Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL, Name: "redis"}, "")
		if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "not trusted") {
			t.Errorf("%v", fault.Sentence(err))
		}
	})
	t.Run("HELM-15 an index in JSON", func(t *testing.T) {
		t.Parallel()
		s.Answer("/json/index.yaml", index(`{"apiVersion":"v1","more":[{"a":1},[2]],"entries":{"mysql":[{"version":"3.0.0"}],"redis":[{"version":"1.0.0","urls":["/charts/redis-1.0.0.tgz"]}]}}`))
		client := charts.New(charts.Config{AllowedNetworks: loopback()}, trusting(s, hub.Credential{}))
		if a, err := client.Chart(t.Context(), tenant, project, hub.ChartRef{Repository: s.URL + "/json", Name: "redis"}, ""); err != nil || a.Version != "1.0.0" {
			t.Errorf("%s, %v", a.Version, err)
		}
	})
}

// bomb is a list of aliases that expands to a billion values.
func bomb() string {
	var b strings.Builder
	b.WriteString("  - &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "  - &a%d [%s]\n", i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return b.String()
}
