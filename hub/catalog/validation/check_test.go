package validation

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func app(name, spec string) *hub.Application {
	return &hub.Application{Meta: hub.Meta{Name: name}, Spec: json.RawMessage(spec)}
}

const minimal = `{"destination":{"name":"prod"},"source":{"repoURL":"https://git.example.com/a/b","path":"."}}`

func TestCheckApplication(t *testing.T) {
	t.Parallel()
	t.Run("APP-06 namespace and project are filled in", func(t *testing.T) {
		t.Parallel()
		a := app("web", minimal)
		if _, warnings, err := CheckApplication(a); err != nil || a.Namespace != "argocd" || a.Project != "default" || len(warnings) != 0 {
			t.Errorf("checkApplication() = %v, %v; %+v", warnings, err, a)
		}
	})
	for name, c := range map[string]struct{ why, name, spec, says string }{
		"NoSpec":          {"an object without a spec is no application", "web", ``, "no spec"},
		"NullSpec":        {"null is none", "web", `null`, "no spec"},
		"ListSpec":        {"a list is none", "web", `[]`, "spec is a list where an object is needed"},
		"UpperName":       {"names are DNS names", "Web", minimal, "no DNS name"},
		"SlashName":       {"a slash would name a namespace", "a/b", minimal, "no DNS name"},
		"DotsName":        {"no empty parts", "a..b", minimal, "no DNS name"},
		"LongName":        {"253 is the limit", strings.Repeat("a", 254), minimal, "no DNS name"},
		"RefTwice":        {"a ref names one source", "web", `{"destination":{"name":"p"},"sources":[{"repoURL":"https://x/a/b","ref":"v"},{"repoURL":"https://x/a/c","ref":"v"}]}`, "ref"},
		"OwnOption":       {"an option of ours can be read", "web", `{"destination":{"name":"p"},"source":{"repoURL":"https://x/a/b","path":"."},"syncPolicy":{"syncOptions":["PruneLimit=0"]}}`, "prune limit"},
		"NegativeHistory": {"a length is not below zero", "web", `{"destination":{"name":"p"},"source":{"repoURL":"https://x/a/b","path":"."},"revisionHistoryLimit":-1}`, "below 0"},
		"ZeroFactor":      {"waits would never grow, or shrink", "web", `{"destination":{"name":"p"},"source":{"repoURL":"https://x/a/b","path":"."},"syncPolicy":{"retry":{"backoff":{"factor":0}}}}`, "below 1"},
		"BadNamespace":    {"a namespace is a DNS label", "web", `{"destination":{"name":"p","namespace":"A B"},"source":{"repoURL":"https://x/a/b","path":"."}}`, "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := CheckApplication(app(c.name, c.spec))
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.says) {
				t.Errorf("checkApplication() = %v, want it to say %q: %s", err, c.says, c.why)
			}
		})
	}
	t.Run("labels are those of Kubernetes", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []map[string]string{{"": "x"}, {"a b": "x"}, {"a": "b c"}, {"a": "-b"}, {"a/b/c": "x"}, {"A_/b": "x"}, {"a": strings.Repeat("x", 64)}} {
			a := app("web", minimal)
			a.Labels = bad
			if _, _, err := CheckApplication(a); fault.KindOf(err) != fault.Invalid {
				t.Errorf("labels %v give %v", bad, err)
			}
		}
		a := app("web", minimal)
		a.Annotations = map[string]string{"a": strings.Repeat("x", maxMetadata)}
		if _, _, err := CheckApplication(a); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("a huge annotation gives %v", err)
		}
	})
}

func TestUnknownFields(t *testing.T) {
	t.Parallel()
	many := `{"a0":0`
	for i := range 50 {
		many += `,"field` + strings.Repeat("x", i+1) + `":1`
	}
	for name, c := range map[string]struct {
		spec string
		want int
	}{
		"None":            {minimal, 0},
		"FreeForm":        {`{"source":{"helm":{"valuesObject":{"anything":{"goes":1}}}}}`, 0},
		"Maps":            {`{"source":{"kustomize":{"commonLabels":{"any":"key"}}}}`, 0},
		"Deep":            {`{"sources":[{"helm":{"valuesFiles":[]}},{"helm":{"valueFiles":[]}}],"syncPolicy":{"automatic":{}}}`, 2},
		"ManyAreCutShort": {many + "}", maxUnknown + 1},
		"NotJSON":         {`{`, 0},
	} {
		if got := unknown(json.RawMessage(c.spec), hub.ApplicationSpec{}); len(got) != c.want {
			t.Errorf("%s: %d warnings, want %d: %q", name, len(got), c.want, got)
		}
	}
}

func TestCheckProject(t *testing.T) {
	t.Parallel()
	roles := func(name string, spec hub.ProjectSpec) error {
		_, _, err := access.ParseProject(name, spec, false)
		return err
	}
	for name, spec := range map[string]string{
		"DenyAll":        `{"sourceRepos":["!*"]}`,
		"DestinationNo":  `{"destinations":[{"namespace":"x"}]}`,
		"DestinationTwo": `{"destinations":[{"server":"*","namespace":"x"},{"server":"*","namespace":"x"}]}`,
		"ForeignRole":    `{"roles":[{"name":"a","policies":["p, proj:other:a, applications, get, other/*, allow"]}]}`,
		"NoRule":         `{"roles":[{"name":"a","policies":["hello"]}]}`,
		"DestinationAll": `{"destinations":[{"server":"*","namespace":"!*"}]}`,
		"DestinationAny": `{"destinations":[{"server":"!*","namespace":"*"}]}`,
		"RepoTwice":      `{"sourceRepos":["a","b","a"]}`,
		"SpaceTwice":     `{"sourceNamespaces":["a","a"]}`,
		"RoleTwice":      `{"roles":[{"name":"a"},{"name":"a"}]}`,
		"RoleName":       `{"roles":[{"name":"a b"}]}`,
		"WindowKind":     `{"syncWindows":[{"kind":"maybe","schedule":"* * * * *","duration":"1h","applications":["*"]}]}`,
		"WindowSchedule": `{"syncWindows":[{"kind":"deny","schedule":"never","duration":"1h","applications":["*"]}]}`,
		"WindowDuration": `{"syncWindows":[{"kind":"deny","schedule":"* * * * *","duration":"long","applications":["*"]}]}`,
		"AccountDenied":  `{"destinationServiceAccounts":[{"server":"!https://a","namespace":"*","defaultServiceAccount":"a"}]}`,
		"AccountSpace":   `{"destinationServiceAccounts":[{"server":"*","namespace":"!a","defaultServiceAccount":"a"}]}`,
		"AccountNone":    `{"destinationServiceAccounts":[{"server":"*","namespace":"*","defaultServiceAccount":" "}]}`,
		"AccountStar":    `{"destinationServiceAccounts":[{"server":"*","namespace":"*","defaultServiceAccount":"*"}]}`,
		"AccountParts":   `{"destinationServiceAccounts":[{"server":"*","namespace":"*","defaultServiceAccount":"a:b:c"}]}`,
		"AccountTwice":   `{"destinationServiceAccounts":[{"server":"*","namespace":"a","defaultServiceAccount":"a"},{"server":"*","namespace":"a","defaultServiceAccount":"b"}]}`,
		"Type":           `{"sourceRepos":"*"}`,
		"PatternRepo":    `{"sourceRepos":["*","!https://git.example.com/{a,b"]}`,
		"PatternPlace":   `{"destinations":[{"server":"*","namespace":"*"},{"server":"*","namespace":"![kube"}]}`,
		"PatternSpace":   `{"sourceNamespaces":["{team-a"]}`,
		"PatternRegexp":  `{"sourceNamespaces":["/team-(a/"]}`,
		"PatternKind":    `{"namespaceResourceBlacklist":[{"group":"","kind":"{Secret,ConfigMap"}]}`,
		"PatternWindow":  `{"syncWindows":[{"kind":"deny","schedule":"* * * * *","duration":"1h","applications":["{a"]}]}`,
	} {
		p := &hub.Project{Meta: hub.Meta{Name: "shop"}, Spec: json.RawMessage(spec)}
		if _, _, err := CheckProject(p, roles); fault.KindOf(err) != fault.Invalid {
			t.Errorf("PROJ-21 %s gives %v", name, err)
		}
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	one := []hub.Cluster{{ID: "1", Meta: hub.Meta{Name: "prod"}, Server: "https://prod.example.com"}}
	two := append(one, hub.Cluster{ID: "2", Meta: hub.Meta{Name: "in-cluster"}})
	other := append(one, hub.Cluster{ID: "3", Meta: hub.Meta{Name: "dev"}})
	for name, c := range map[string]struct {
		why  string
		d    hub.Destination
		all  []hub.Cluster
		want hub.ClusterID
	}{
		"ByName":          {"a name is a name", hub.Destination{Name: "prod"}, two, "1"},
		"ByServer":        {"the alias, however it ends", hub.Destination{Server: "https://prod.example.com/"}, two, "1"},
		"Unknown":         {"nothing is guessed", hub.Destination{Name: "staging"}, one, ""},
		"UnknownServer":   {"nothing is guessed", hub.Destination{Server: "https://x"}, one, ""},
		"APP-05 OnlyOne":  {"Argo CD's own cluster is the only one", hub.Destination{Server: hub.InCluster}, one, "1"},
		"APP-05 Called":   {"or the one called so", hub.Destination{Server: hub.InCluster}, two, "2"},
		"APP-05 ByName":   {"by its name too", hub.Destination{Name: hub.InClusterName}, one, "1"},
		"APP-05 Several":  {"among several it is not guessed", hub.Destination{Server: hub.InCluster}, other, ""},
		"NoneThere":       {"there is none", hub.Destination{Server: hub.InCluster}, nil, ""},
		"EmptyMatchesNot": {"a cluster without alias is not the empty server", hub.Destination{Name: "x"}, two, ""},
	} {
		var got hub.ClusterID
		if on := PickCluster(c.d, c.all); on != nil {
			got = on.ID
		}
		if got != c.want {
			t.Errorf("%s: pick() = %q, want %q: %s", name, got, c.want, c.why)
		}
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"5s": 5 * time.Second, "3m": 3 * time.Minute, "30d": 720 * time.Hour, "90": 90 * time.Second, "1h30m": 90 * time.Minute} {
		if got, err := ParseDuration(text); got != want || err != nil {
			t.Errorf("ParseDuration(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "soon", "-1h", "-5", "99999999d", "1e9", "9223372036854775808"} {
		if got, err := ParseDuration(text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("ParseDuration(%q) = %v, %v", text, got, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		if d, err := ParseDuration(rapid.String().Draw(t, "text")); err == nil && d < 0 {
			t.Fatalf("a duration below zero: %v", d)
		}
	})
}

// Whatever object comes, it is read or refused with a classified error, and
// what another writer left in it stays behind.
func TestRead(t *testing.T) {
	t.Parallel()
	parse := func(text string) *manifest.Object {
		objects, err := manifest.Parse("x.yaml", []byte(text), manifest.Limits{})
		if err != nil || len(objects) != 1 {
			t.Fatal(objects, err)
		}
		return objects[0]
	}
	o := parse(`
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: web
  uid: abc
  resourceVersion: "12"
  managedFields: [{manager: kubectl}]
  annotations: {kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec: {destination: {name: a}}
status: {sync: {status: Synced}}
`)
	meta, spec, warnings, err := ReadObject(o)
	if err != nil || len(warnings) != 0 || meta.Annotations != nil || meta.Name != "web" || string(spec) != `{"destination":{"name":"a"}}` {
		t.Errorf("read() = %+v, %s, %v, %v", meta, spec, warnings, err)
	}
	for _, text := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {a: 1}",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\nstringData: text",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: {a: '!!!'}",
	} {
		if _, err := SecretValues(parse(text)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%q gives %v", text, err)
		}
	}
}
