// Package integration_test holds the tests that look at the product as a
// whole. This file is the architecture: what may import what.
package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/capstan-cd/capstan"

// mayImport says what each part of the tree may import from this repository.
// The longest matching pattern decides; "*" stands for one path element. An
// entry of the list that ends in "/..." stands for everything below.
var mayImport = map[string][]string{
	"shared/apimodel":    {},
	"shared/fault":       {},
	"shared/logkey":      {},
	"shared/version":     {},
	"shared/encryption":  {"shared/fault"},
	"shared/hashchain":   {"shared/fault"},
	"shared/lifecycle":   {"shared/fault", "shared/logkey"},
	"shared/lifecycle/*": {"shared/lifecycle"},
	"shared/yamltext":    {"shared/fault", "shared/suggest"},
	"shared/manifest":    {"shared/fault", "shared/logkey", "shared/yamltext"},
	"shared/*":           {"shared/fault", "shared/logkey", "shared/manifest"},
	"shared/tunnel":      {"shared/clientip", "shared/fault", "shared/logkey", "shared/lifecycle", "shared/trace"},
	"shared/trace":       {"shared/fault", "shared/logkey", "shared/version"},
	"shared/telemetry":   {"shared/fault", "shared/logkey", "shared/lifecycle", "shared/trace", "shared/version"},
	"shared/appquery":    {"shared/fault", "shared/suggest"},
	"shared/selector":    {"shared/fault", "shared/manifest", "shared/suggest"},
	"shared/bundled":     {},
	"shared/rbac":        {"shared/fault", "shared/glob"},
	"shared/action":      {"shared/bundled", "shared/fault", "shared/lua"},
	"proto/*/*":          {},

	"shared/failpoint": {},

	"hub/repourl":  {"shared/fault"},
	"hub":          {"hub/repourl", "shared/auditlog", "shared/fault", "shared/glob", "shared/manifest", "shared/syncwindow"},
	"hub/*":        {"hub", "hub/repourl", "shared/*", "proto/*/*"},
	"hub/*/*":      {"hub", "hub/repourl", "hub/*", "hub/*/*", "shared/*", "proto/*/*"},
	"hub/relay":    {"hub", "hub/repourl", "hub/plan", "shared/*", "proto/*/*"},
	"hub/dispatch": {"hub", "hub/repourl", "hub/plan", "hub/dispatch/wire", "shared/*", "proto/*/*"},
	"hub/catalog":  {"hub", "hub/repourl", "hub/access", "hub/audit", "hub/catalog/...", "hub/generate/changes", "hub/plan", "hub/settings", "shared/*"},
	"hub/api":      {"hub", "hub/repourl", "hub/api/...", "hub/catalog/...", "hub/settings", "hub/identity", "hub/identity/connector", "hub/identity/connector/exchange", "hub/identity/sso", "hub/access", "hub/audit", "hub/deeplink", "hub/feed", "hub/notify", "hub/notify/stage", "hub/relay/...", "hub/signature", "hub/why", "shared/*", "proto/*/*"},
	"hub/deeplink": {"shared/fault"},
	"hub/notify":   {"hub", "hub/repourl", "shared/*"},
	"hub/lru":      {},

	"hub/notify/send":  {"hub", "hub/notify", "hub/source/guard", "shared/*"},
	"hub/notify/stage": {"hub", "hub/notify", "hub/notify/send", "shared/*"},
	"hub/settings":     {"hub", "hub/repourl", "hub/deeplink", "hub/notify", "hub/identity/connector/...", "hub/signature", "shared/*", "proto/*/*"},
	"hub/pacing":       {"hub", "hub/repourl"},

	"hub/identity/sso": {"hub", "hub/identity", "hub/identity/connector", "hub/identity/connector/...", "hub/lru", "hub/settings", "shared/*"},

	"hub/api/apitest":   {"hub", "hub/repourl", "hub/*", "hub/*/*", "hub/identity/connector/exchange", "shared/*", "proto/*/*"},
	"hub/api/openapi":   {"shared/fault"},
	"hub/api/scim":      {"hub", "shared/fault"},
	"hub/api/console":   {"shared/fault"},
	"hub/api/ratelimit": {},
	"hub/api/eventpack": {},
	"hub/api/fields":    {},
	"hub/api/recording": {},
	"hub/api/reference": {},
	"hub/api/labels":    {"hub", "shared/fault"},
	"hub/api/rootpath":  {"shared/fault"},
	"hub/api/patching":  {"hub/repourl", "shared/fault"},

	"hub/store":    {"hub", "hub/repourl", "hub/lru", "hub/store/...", "shared/*"},
	"hub/store/*":  {"hub", "hub/repourl", "hub/store", "hub/store/...", "shared/*"},
	"hub/render":   {"hub", "hub/repourl", "hub/lru", "hub/render/sandbox", "shared/*"},
	"hub/source":   {"hub", "hub/repourl", "hub/source/guard", "shared/*"},
	"hub/render/*": {"hub", "hub/repourl", "hub/render", "hub/render/...", "shared/*"},
	"hub/daemon":   {"hub", "hub/repourl", "hub/...", "shared/*", "proto/*/*", "web"},
	"hub/cmd/*":    {"hub", "hub/repourl", "hub/daemon", "hub/store", "hub/secret", "hub/render/...", "hub/render", "shared/*"},
	"hub/source/*": {"hub", "hub/repourl", "hub/lru", "hub/source", "hub/source/guard", "shared/*"},

	"hub/source/archives": {"hub", "hub/repourl", "hub/lru", "hub/source", "hub/source/charts", "shared/*"},
	"hub/source/helmrepo": {"hub", "hub/source/archives", "hub/source/charts", "shared/*"},
	"hub/source/oci":      {"hub", "hub/source/archives", "hub/source/charts", "shared/*"},

	"hub/source/guard":         {},
	"hub/source/git":           {"hub", "hub/repourl", "hub/signature", "hub/source", "hub/source/guard", "hub/source/git/packstore", "shared/*"},
	"hub/source/git/packstore": {"hub/lru", "shared/*"},

	"hub/source/charts/chartstest": {},

	"hub/generate":           {"hub", "hub/generate/scm", "hub/generate/template", "shared/*"},
	"hub/generate/template":  {"shared/*"},
	"hub/generate/inputs":    {"hub", "hub/repourl", "hub/plan", "hub/generate", "hub/generate/scm", "hub/generate/scmaccess", "shared/*"},
	"hub/generate/scm":       {"hub", "hub/lru", "hub/source/guard", "shared/*"},
	"hub/generate/scmaccess": {"hub", "hub/generate/scm", "hub/source/guard", "shared/*"},

	"hub/catalog/tenancy":    {"hub", "hub/repourl", "hub/access", "hub/audit", "hub/signature", "hub/catalog/transact", "hub/catalog/validation", "hub/settings", "shared/*"},
	"hub/catalog/listing":    {"hub", "hub/repourl", "hub/access", "shared/appquery", "shared/fault"},
	"hub/catalog/platform":   {"hub", "hub/repourl", "hub/access", "hub/audit", "hub/catalog/tenancy", "hub/catalog/transact", "hub/catalog/validation", "shared/*"},
	"hub/catalog/transact":   {"hub", "hub/repourl", "hub/access", "hub/audit", "hub/settings", "shared/*"},
	"hub/catalog/validation": {"hub", "hub/repourl", "hub/settings", "shared/*"},

	"hub/identity/connector":     {"hub/source/guard", "shared/fault"},
	"hub/identity/connector/*":   {"hub/identity/connector", "hub/identity/connector/oauth", "shared/*"},
	"hub/identity/connector/dex": {"hub/identity/connector", "hub/identity/connector/*", "shared/*"},

	"hub/render/explore":   {"hub", "hub/repourl", "hub/render", "hub/render/plugin", "shared/*"},
	"hub/render/plugin":    {"hub", "hub/repourl", "hub/render", "hub/render/sandbox", "hub/source/guard", "shared/*"},
	"hub/render/scheduler": {"hub", "hub/repourl", "hub/render", "shared/*"},
	"hub/dispatch/stream":  {"hub", "hub/repourl", "hub/batch", "hub/dispatch/wire", "shared/*", "proto/*/*"},
	"hub/dispatch/wire":    {"hub", "hub/repourl", "hub/plan", "shared/*", "proto/*/*"},

	"agent/*":             {"shared/*", "proto/*/*"},
	"agent/exclude":       {"shared/*"},
	"agent/health":        {"shared/*"},
	"agent/rule":          {"agent/health", "shared/*"},
	"agent/tracking":      {"shared/*"},
	"agent/wave":          {"agent/health", "shared/*"},
	"agent/wave/wavetest": {},
	"agent/secrets":       {"agent/secrets/...", "shared/*"},
	"agent/secrets/*":     {"shared/*"},
	"agent/apply": {
		"agent/apply/ownership", "agent/secrets", "agent/exclude", "agent/health", "agent/hubobjects", "agent/inventory", "agent/rule", "agent/tracking", "agent/wave", "shared/*", "proto/*/*",
	},

	"agent/settings": {"agent/exclude", "shared/*", "proto/*/*"},

	"agent/apply/ownership": {},

	"agent/daemon": {"agent/...", "shared/*", "proto/*/*"},
	"agent/cmd/*":  {"agent/daemon", "shared/*"},

	"cli":         {"cli/...", "shared/action", "shared/apimodel", "shared/appquery", "shared/auditlog", "shared/fault", "shared/version", "shared/yamltext"},
	"cli/*":       {"cli/...", "shared/apimodel", "shared/fault", "shared/suggest", "shared/version", "shared/yamltext"},
	"cli/cmd/*":   {"cli"},
	"cli/client":  {"shared/apimodel", "shared/fault"},
	"cli/usage":   {"shared/suggest"},
	"cli/tenancy": {"cli/...", "shared/apimodel", "shared/auditlog", "shared/fault"},
	"cli/rights":  {"cli/client", "cli/command", "cli/exit", "cli/output", "cli/usage", "shared/apimodel", "shared/fault", "shared/rbac"},

	"cli/actions":   {"cli/...", "shared/action", "shared/apimodel", "shared/fault"},
	"cli/overrides": {"shared/action", "shared/fault", "shared/yamltext"},

	"web": {},

	"integration":           {},
	"integration/tests/...": {"agent/...", "cli/...", "hub/...", "proto/...", "shared/...", "web", "integration/tests/...", "integration/rigs/..."},
	"integration/rigs/...":  {"agent/...", "cli/...", "hub/...", "proto/...", "shared/...", "web", "integration/rigs/..."},
	"integration/tools/...": {"agent/...", "cli/...", "hub/...", "proto/...", "shared/...", "web", "integration/tools/...", "integration/rigs/..."},
}

// homes are the packages that a heavy library may be imported from.
var homes = map[string][]string{
	"github.com/jackc/pgx/v5":                {"hub/store/...", "integration/..."},
	"github.com/labstack/echo/v4":            {"hub/api/..."},
	"github.com/go-git/go-git/v5":            {"hub/source/git/..."},
	"helm.sh/helm/v3":                        {"hub/render/helm"},
	"sigs.k8s.io/kustomize":                  {"hub/render/kustomize"},
	"github.com/google/go-jsonnet":           {"hub/render/jsonnet"},
	"github.com/casbin/casbin/v2":            {"integration/tools/bench"}, // the reference, and of tests
	"github.com/hashicorp/yamux":             {"shared/tunnel"},
	"github.com/coder/websocket":             {"shared/tunnel", "hub/api/socket", "cli/live", "integration/..."},
	"k8s.io/client-go":                       {"agent/...", "integration/..."},
	"github.com/pressly/goose/v3":            {"hub/store/..."},
	"github.com/gosimple/slug":               {"hub/generate/scm"},
	"github.com/google/go-containerregistry": {"integration/tools/image", "hub/source/charts/chartstest"},
	"oras.land/oras-go/v2":                   {"hub/source/charts/..."},
	"github.com/yuin/gopher-lua":             {"shared/lua"},
	"github.com/argoproj/argo-cd/v3":         {"shared/bundled"},
	"github.com/prometheus/client_golang":    {"shared/telemetry", "hub/metrics", "hub/daemon", "agent/metrics", "agent/daemon", "integration/..."},
	"go.opentelemetry.io/otel":               {"shared/trace", "integration/..."},
	"go.etcd.io/bbolt":                       {"agent/inventory"},
	"filippo.io/age":                         {"agent/secrets/...", "integration/..."},
	"github.com/pires/go-proxyproto":         {"hub/daemon", "integration/..."},
	"github.com/go-ldap/ldap/v3":             {"hub/identity/connector/ldap", "integration/..."},
	"github.com/crewjam/saml":                {"hub/identity/connector/saml"},
	"github.com/beevik/etree":                {"hub/identity/connector/saml"},
	"github.com/coreos/go-oidc/v3":           {"hub/identity/connector/..."},
	"github.com/russellhaering/goxmldsig":    {"hub/identity/connector/saml"},
	"golang.org/x/oauth2":                    {"hub/identity/connector/..."},
	"github.com/expr-lang/expr":              {"hub/deeplink", "hub/notify"},
	"github.com/wneessen/go-mail":            {"hub/notify/send"},
	"github.com/alexedwards/argon2id":        {"hub/identity", "hub/catalog"},
	// The hub starts its own binary alone: nothing of a source is a command.
	"os/exec": {"hub/render/scheduler", "hub/render/plugin", "cli/...", "hub/store/storetest", "integration/..."},
}

// agentFree are libraries that the agent binary must not link.
var agentFree = []string{
	"github.com/jackc/pgx/v5", "github.com/labstack/echo/v4", "github.com/casbin/casbin/v2",
	"github.com/go-git/go-git/v5", "helm.sh/helm/v3", "sigs.k8s.io/kustomize/api",
}

type goPackage struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// goList asks the go command; test imports are not looked at, because a test
// may use whatever proves its point.
func goList(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Imports,Deps"}, args...)...)
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	for _, pkg := range goList(t, "./...") {
		name := strings.TrimPrefix(strings.TrimPrefix(pkg.ImportPath, module), "/")
		if name == "warm" {
			continue // names libraries so that caches hold them; nothing may import it
		}
		rule, known := longestMatch(name)
		if !known {
			t.Errorf("%s: no rule; say in mayImport what it may import", name)
			continue
		}
		for _, imported := range pkg.Imports {
			if to, ours := strings.CutPrefix(imported, module+"/"); ours {
				if !slices.ContainsFunc(mayImport[rule], func(p string) bool { return matches(p, to) }) {
					t.Errorf("%s imports %s, which rule %q does not allow", name, to, rule)
				}
				continue
			}
			for library, home := range homes {
				if imported != library && !strings.HasPrefix(imported, library+"/") {
					continue
				}
				if !slices.ContainsFunc(home, func(p string) bool { return matches(p, name) }) {
					t.Errorf("%s imports %s, whose home is %v", name, imported, home)
				}
			}
		}
	}
}

// TestImportsOfSharedComeFromTwoSides keeps shared/ small: what hub, agent or
// command line alone uses lives there. What only tests use counts for nobody.
func TestImportsOfSharedComeFromTwoSides(t *testing.T) {
	sides := map[string]map[string]bool{} // of each package, who imports it, also through others of shared/
	var add func(to, side string)
	imports := map[string][]string{}
	add = func(to, side string) {
		if sides[to] == nil {
			sides[to] = map[string]bool{}
		}
		if sides[to][side] {
			return
		}
		sides[to][side] = true
		for _, next := range imports[to] {
			add(next, side)
		}
	}
	all := goList(t, "./agent/...", "./hub/...", "./cli/...", "./shared/...")
	for _, pkg := range all {
		name := strings.TrimPrefix(pkg.ImportPath, module+"/")
		for _, imported := range pkg.Imports {
			if to, ours := strings.CutPrefix(imported, module+"/"); ours && strings.HasPrefix(to, "shared/") {
				imports[name] = append(imports[name], to)
			}
		}
	}
	for name, to := range imports {
		side, _, _ := strings.Cut(name, "/")
		for _, shared := range to {
			if side != "shared" {
				add(shared, side)
			}
		}
	}
	for _, pkg := range all {
		name := strings.TrimPrefix(pkg.ImportPath, module+"/")
		if strings.HasPrefix(name, "shared/") && len(sides[name]) == 1 && !strings.HasSuffix(name, "test") {
			t.Errorf("%s is used by %v alone: move it there", name, slices.Collect(maps.Keys(sides[name])))
		}
	}
}

// TestImportsAreRuledByWhatExists finds rules and homes that name nothing.
func TestImportsAreRuledByWhatExists(t *testing.T) {
	all := goList(t, "./...")
	for pattern := range mayImport {
		if !slices.ContainsFunc(all, func(p goPackage) bool {
			return matches(pattern, strings.TrimPrefix(p.ImportPath, module+"/"))
		}) {
			t.Errorf("mayImport has a rule for %s, which does not exist", pattern)
		}
	}
	for library := range homes {
		if !slices.ContainsFunc(all, func(p goPackage) bool {
			return slices.ContainsFunc(p.Imports, func(i string) bool { return i == library || strings.HasPrefix(i, library+"/") })
		}) {
			t.Errorf("homes names %s, which nothing imports", library)
		}
	}
}

func TestTheAgentCarriesNoServerLibraries(t *testing.T) {
	for _, pkg := range goList(t, "./agent/cmd/capstan-agent") {
		for _, dep := range pkg.Deps {
			for _, library := range agentFree {
				if dep == library || strings.HasPrefix(dep, library+"/") {
					t.Errorf("the agent links %s", dep)
				}
			}
		}
	}
}

func TestTheCommandLineIsAClientOnly(t *testing.T) {
	for _, pkg := range goList(t, "./cli/cmd/capstan") {
		for _, dep := range pkg.Deps {
			if strings.HasPrefix(dep, "k8s.io/") || strings.HasPrefix(dep, module+"/hub") || strings.HasPrefix(dep, module+"/agent") {
				t.Errorf("the command line links %s", dep)
			}
		}
	}
}

func longestMatch(name string) (rule string, known bool) {
	for pattern := range mayImport {
		if !matches(pattern, name) {
			continue
		}
		// An exact rule beats a pattern of the same length.
		if !known || weight(pattern) > weight(rule) {
			rule, known = pattern, true
		}
	}
	return rule, known
}

func weight(pattern string) int {
	n := strings.Count(pattern, "/") * 10
	if strings.HasSuffix(pattern, "...") {
		return n - 15
	}
	return n - strings.Count(pattern, "*")
}

func matches(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return name == below || strings.HasPrefix(name, below+"/")
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
