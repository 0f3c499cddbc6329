package settings_test

import (
	"cmp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// body compiles settings of argocd-cm for a cluster that is called prod.
func body(t *testing.T, values map[string]string, names ...string) *linkv1.Settings {
	t.Helper()
	var all []hub.Setting
	for k, v := range values {
		all = append(all, hub.Setting{Map: "argocd-cm", Key: k, Value: v})
	}
	c, err := settings.Compile(all)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := c.Body(3, append(names, "prod"))
	if err != nil {
		t.Fatal(err)
	}
	var out linkv1.Settings
	if err := proto.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func expect(t *testing.T, got *linkv1.Settings, want string) {
	t.Helper()
	var w linkv1.Settings
	if err := prototext.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, &w) {
		t.Errorf("got\n%swant\n%s", prototext.Format(got), prototext.Format(&w))
	}
}

func TestCompile(t *testing.T) {
	t.Parallel()
	t.Run("CFG-03 keys of one kind, the map form, and the single key wins", func(t *testing.T) {
		t.Parallel()
		got := body(t, map[string]string{
			"resource.customizations": "cert-manager.io/Certificate:\n  health.lua: |\n    return 1\n  health.lua.useOpenLibs: true\n" +
				"'*.example.com/*':\n  ignoreDifferences: |\n    jsonPointers: [/spec/a]\nConfigMap:\n  ignoreDifferences:\n    jsonPointers: [/data/x]\n",
			"resource.customizations.health.cert-manager.io_Certificate":    "return 2",
			"resource.customizations.ignoreDifferences.all":                 "managedFieldsManagers: [hpa]",
			"resource.customizations.ignoreResourceUpdates.apps_Deployment": "jqPathExpressions:\n- .metadata.annotations\n",
			"resource.customizations.knownTypeFields.example.com_Thing":     "- field: spec.template\n  type: core/v1/PodTemplateSpec\n",
			"resource.customizations.actions.Pod":                           "discovery.lua: return {}\nmergeBuiltinActions: true\ndefinitions:\n- name: x\n  action.lua: return obj\n",
			"resource.compareoptions":                                       "ignoreAggregatedRoles: true\nignoreResourceStatusField: off\nignoreDifferencesOnResourceUpdates: false\n",
			"resource.ignoreResourceUpdatesEnabled":                         "false",
			"resource.customLabels":                                         "a, b,",
			"application.instanceLabelKey":                                  "example.com/app",
			"application.resourceTrackingMethod":                            "annotation+label",
			"installationID":                                                "one",
			"url":                                                           "https://cd.example.com",
		})
		expect(t, got, `version: 3
			customizations { kind: "ConfigMap" ignore_differences { json_pointers: "/data/x" } }
			customizations { kind: "Pod" actions { discovery_lua: "return {}" merge_builtin: true definitions { name: "x" lua: "return obj" } } }
			customizations { group: "*" kind: "*" ignore_differences { managers: "hpa" } }
			customizations { group: "*.example.com" kind: "*" ignore_differences { json_pointers: "/spec/a" } }
			customizations { group: "apps" kind: "Deployment" ignore_resource_updates { jq: ".metadata.annotations" } }
			customizations { group: "cert-manager.io" kind: "Certificate" health_lua: "return 2" use_open_libs: true }
			customizations { group: "example.com" kind: "Thing" known_type_fields { field: "spec.template" type: "core/v1/PodTemplateSpec" } }
			compare { ignore_aggregated_roles: true ignore_status: "none" differences_on_updates: true }
			ignore_resource_updates_disabled: true custom_labels: "a" custom_labels: "b"
			instance_label_key: "example.com/app" tracking_method: "annotation+label" installation_id: "one"`)
	})
	t.Run("CLU-13 rules for other clusters do not reach a cluster", func(t *testing.T) {
		t.Parallel()
		values := map[string]string{
			"resource.exclusions": "- kinds: [A]\n  clusters: ['https://*.prod.example.com']\n- kinds: [B]\n  clusters: [staging]\n- kinds: [C]\n- kinds: [D]\n  clusters: ['*']\n",
			"resource.inclusions": "- apiGroups: [x]\n  clusters: [staging]\n",
		}
		expect(t, body(t, values, "https://eu.prod.example.com"), `version: 3 exclusions_given: true
			exclusions { kinds: "A" } exclusions { kinds: "C" } exclusions { kinds: "D" } inclusions { groups: "-" kinds: "-" }`)
		expect(t, body(t, values, "staging"), `version: 3 exclusions_given: true
			exclusions { kinds: "B" } exclusions { kinds: "C" } exclusions { kinds: "D" } inclusions { groups: "x" }`)
	})
	t.Run("an empty list of exclusions is not the same as none", func(t *testing.T) {
		t.Parallel()
		expect(t, body(t, map[string]string{"resource.exclusions": "[]"}), `version: 3 exclusions_given: true`)
		expect(t, body(t, nil), `version: 3`)
	})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		why, name, key, value string
		kind                  fault.Kind
		says                  []string
	}{
		"Broken":   {"a person must find the place", "argocd-cm", "resource.exclusions", "- kinds: [A]\n- kinds: [\n", fault.Invalid, []string{"ConfigMap argocd-cm, key resource.exclusions", "line 2", "not YAML"}},
		"NoList":   {"", "argocd-cm", "resource.exclusions", "kinds: [A]", fault.Invalid, []string{"line 1", "must be a list"}},
		"Misspelt": {"the rule would mean every kind", "argocd-cm", "resource.inclusions", "- apiGroups: [a]\n  kind: [B]\n", fault.Invalid, []string{"line 2", `"kind"`, "apiGroups, clusters, kinds", `did you mean "kinds"?`}},
		"Every":    {"the rule would mean every kind", "argocd-cm", "resource.exclusions", "- clusters: [a]\n", fault.Invalid, []string{"line 1", "every kind"}},
		"Scalar":   {"", "argocd-cm", "resource.exclusions", "- clusters: [a]\n  kinds: A\n", fault.Invalid, []string{"line 2", "kinds must be a list, and is a text"}},
		"Number":   {"", "argocd-cm", "resource.exclusions", "- kinds: [[A]]\n", fault.Invalid, []string{"text"}},
		"Pattern":  {"", "argocd-cm", "resource.exclusions", "- kinds:\n  - '[a'\n", fault.Invalid, []string{"line 2", "pattern"}},
		"Braces":   {"they would match nothing", "argocd-cm", "resource.exclusions", "- apiGroups: ['{a,b}']\n", fault.Invalid, []string{"pattern"}},
		"Alias":    {"aliases make small texts large", "argocd-cm", "resource.exclusions", "- &a {kinds: [A]}\n- *a\n", fault.Invalid, []string{"line 2", "alias"}},
		"Twice":    {"", "argocd-cm", "resource.compareoptions", "ignoreAggregatedRoles: true\nignoreAggregatedRoles: false\n", fault.Invalid, []string{"line 2"}},
		"Word":     {"", "argocd-cm", "resource.compareoptions", "\nignoreResourceStatusField: some\n", fault.Invalid, []string{"line 2", "all, crd"}},
		"Method":   {"", "argocd-cm", "application.resourceTrackingMethod", "labels", fault.Invalid, []string{"key application.resourceTrackingMethod", "annotation+label"}},
		"Label":    {"", "argocd-cm", "application.instanceLabelKey", "not a label", fault.Invalid, []string{"label"}},
		"NoKind":   {"", "argocd-cm", "resource.customizations.health.a_b_c", "return 1", fault.Invalid, []string{"a_b_c", "group_Kind"}},
		"JQ":       {"", "argocd-cm", "resource.customizations.ignoreDifferences.apps_Deployment", "jsonPointers: []\njqPathExpressions: ['.a[']\n", fault.Invalid, []string{"line 2"}},
		"Pointer":  {"", "argocd-cm", "resource.customizations.ignoreDifferences.apps_Deployment", "jsonPointers: [spec]\n", fault.Invalid, []string{"line 1"}},
		"Nested": {"lines are those of the whole value", "argocd-cm", "resource.customizations", "a/B:\n  ignoreDifferences: |\n    jsonPointers:\n      - /a\n    jqPaths: []\n",
			fault.Invalid, []string{"line 5", `"jqPaths"`}},
		"Action":   {"", "argocd-cm", "resource.customizations.actions.a_B", "definitions:\n- name: x\n", fault.Invalid, []string{"line 2", "action.lua"}},
		"Switch":   {"", "argocd-cm", "resource.customizations.useOpenLibs.a_B", "yes please", fault.Invalid, []string{"neither true nor false"}},
		"Types":    {"", "argocd-cm", "resource.customizations.knownTypeFields.a_B", "- field: x\n", fault.Invalid, []string{"line 1", "type"}},
		"BadKey":   {"", "argocd-cm", "a key", "x", fault.Invalid, []string{"key"}},
		"BadMap":   {"settings do not belong to other ConfigMaps", "kube-root-ca.crt", "a", "x", fault.Invalid, []string{"no settings"}},
		"Large":    {"", "argocd-cm", "url", strings.Repeat("x", settings.MaxValue+1), fault.Exceeded, []string{"bytes"}},
		"Secret":   {"the value must not be in the error", "argocd-secret", "a b", "hunter2", fault.Invalid, []string{"Secret argocd-secret"}},
		"Unknown":  {"a misspelt key would do nothing in silence", "argocd-cm", "some.new.key", "x: [", fault.Invalid, []string{"key some.new.key", "no setting of that name", "settings get --known"}},
		"Params":   {"", "argocd-cmd-params-cm", "controller.status.processors", "50", "", nil},
		"Replace":  {"", "argocd-cmd-params-cm", "server.sync.replace.allowed", "never", fault.Invalid, []string{"neither true nor false"}},
		"Rollback": {"", "argocd-cm", "server.rbac.rollback.enforce.enable", "maybe", fault.Invalid, []string{"neither true nor false"}},
		"Empty":    {"", "argocd-cm", "resource.exclusions", "", "", nil},
		"Comment":  {"", "argocd-cm", "resource.exclusions", "# nothing\n", "", nil},
	} {
		t.Run("CFG-03 "+name, func(t *testing.T) {
			t.Parallel()
			err := settings.Check(c.name, c.key, c.value)
			if kind := fault.KindOf(err); kind != c.kind {
				t.Fatalf("error %v of kind %q, want %q: %s", err, kind, c.kind, c.why)
			}
			for _, word := range c.says {
				if e, _ := fault.As(err); !strings.Contains(err.Error()+e.Fix, word) {
					t.Errorf("%q does not say %q: %s", err, word, c.why)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Error("SEC-C1 the value of a secret is in the error")
			}
		})
	}
	t.Run("UI-20 a style sheet is one of the operator, and the reply says that others are not loaded", func(t *testing.T) {
		t.Parallel()
		style := func(value string) string {
			return settings.ForClients(map[string]map[string]string{"argocd-cm": {"ui.cssurl": value}}).Style
		}
		for value, want := range map[string]string{
			"./custom/acme.css": "/custom/acme.css", "custom/acme.css": "/custom/acme.css", " /custom/a-b_1.2.css ": "/custom/a-b_1.2.css", "": "",
			"https://cdn.example.com/x.css": "", "./custom/../index.css": "", "./custom/a/b.css": "", "./custom/.css": "", "./custom/a.js": "", "./assets/a.css": "", "//custom/a.css": "",
			"./custom/a.css?x": "", "./custom/a.css\n": "/custom/a.css", "./custom/%2e.css": "", "data:text/css,*{}": "",
		} {
			if got := style(value); got != want {
				t.Errorf("%q is %q, want %q", value, got, want)
			}
		}
		for value, says := range map[string]string{"./custom/acme.css": "", "": "", "https://cdn.example.com/x.css": "of its own hub alone"} {
			if got := settings.Foreign("argocd-cm", "ui.cssurl", value); !strings.Contains(got, says) || (got == "") != (says == "") {
				t.Errorf("%q: %q", value, got)
			}
			if err := settings.Check("argocd-cm", "ui.cssurl", value); err != nil {
				t.Errorf("%q: %v", value, err)
			}
		}
		for _, value := range []string{"javascript:alert(1)", "data:text/css,*{}", "./custom/../x.css", "body { color: red }"} {
			if err := settings.Check("argocd-cm", "ui.cssurl", value); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%q: %v", value, err)
			}
		}
	})
	t.Run("UI-23 analytics are stored, and the reply says that the console reports nothing", func(t *testing.T) {
		t.Parallel()
		for _, key := range []string{"ga.trackingid", "ga.anonymizeusers"} {
			if got := settings.Unused("argocd-cm", key); !strings.Contains(got, "reports nothing about its users") {
				t.Errorf("%s: %q", key, got)
			}
		}
	})
	t.Run("CFG-03 for a key without effect the reply explains what happens instead", func(t *testing.T) {
		t.Parallel()
		for key, says := range map[string]string{
			"resource.exclusions": "", "installationID": "", "resource.customizations.ignoreDifferences.all": "",
			"resource.compareoptions":                     "without effect: status",
			"application.resourceTrackingMethod":          "",
			"resource.customizations.knownTypeFields.a_B": "without effect: values are compared",
			"resource.customizations.health.a_B":          "",
			"resource.customizations.useOpenLibs.a_B":     "",
			"resource.customizations.actions.a_B":         "",
			"commit.author.name":                          "not used yet",
			"statusbadge.enabled":                         "",
		} {
			if got := settings.Unused("argocd-cm", key); !strings.Contains(got, says) || (got == "") != (says == "") {
				t.Errorf("%s: %q", key, got)
			}
		}
		for _, key := range []string{
			"webhook.github.secret", "webhook.gitlab.secret", "webhook.bitbucket.uuid", "webhook.bitbucketserver.secret", "webhook.gogs.secret",
			"webhook.azuredevops.username", "webhook.azuredevops.password", "webhook.harbor.secret", "webhook.registry.secret", "webhook.generic.secret",
			"webhook.repository.018f3c6e-0000-7000-8000-000000000002",
		} {
			if got := settings.Unused("argocd-secret", key); got != "" {
				t.Errorf("HOOKW-03 %s of a tenant's webhooks: %q", key, got)
			}
		}
		for _, k := range settings.Catalogue() {
			if k.Used && k.Instead != "" {
				t.Errorf("%s acts, and says that it does not", k.Key)
			}
		}
	})
	t.Run("samples are fine", func(t *testing.T) {
		t.Parallel()
		for _, k := range settings.Catalogue() {
			key := k.Key
			if strings.HasSuffix(key, ".") {
				key += cmp.Or(k.Example, "example.com_Thing")
			}
			if key == "*" {
				key = map[string]string{hub.GPGKeysMap: "D83EABE7E2474348"}[k.Map]
				key = cmp.Or(key, "git.example.com")
			}
			if err := settings.Check(k.Map, key, k.Sample); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			if k.About == "" {
				t.Errorf("%s: nothing says what it does", key)
			}
		}
	})
}

// What people write must end in a value or in one clear error.
func FuzzCheck(f *testing.F) {
	for _, k := range settings.Catalogue() {
		f.Add(k.Key, k.Sample)
		f.Add(k.Key+"a_B", "a: &x [*x]\n---\n")
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		err := settings.Check("argocd-cm", key, value)
		if err != nil && fault.KindOf(err) == fault.Internal {
			t.Errorf("%q: %v is not classified", key, err)
		}
		if err == nil {
			c, err := settings.Compile([]hub.Setting{{Map: "argocd-cm", Key: key, Value: value}})
			if err != nil {
				t.Fatalf("%q passed the check: %v", key, err)
			}
			if _, err := c.Body(1, nil); err != nil && !strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("%q: %v", key, err)
			}
		}
	})
}
