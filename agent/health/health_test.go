package health_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/capstan-cd/capstan/agent/health"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// TestRules reads testdata/*.yaml: each document is a live object with two
// extra fields, "row" (a row of the contract and what it shows) and "want"
// ("State" or "State: part of the message"; "none" for no health).
func TestRules(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range files {
		data, err := os.ReadFile("testdata/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i, doc := range strings.Split(string(data), "\n---\n") {
			text, err := yaml.ToJSON([]byte(doc))
			if err != nil {
				t.Fatalf("%s, document %d: %v", f.Name(), i+1, err)
			}
			o, err := manifest.FromCanonical(text)
			if err != nil {
				t.Fatalf("%s, document %d: %v", f.Name(), i+1, err)
			}
			row, _ := o.Object["row"].(string)
			want, _ := o.Object["want"].(string)
			if row == "" || want == "" {
				t.Fatalf("%s, document %d has no row or want", f.Name(), i+1)
			}
			delete(o.Object, "row")
			delete(o.Object, "want")
			seen[strings.Fields(row)[0]] = true
			t.Run(row, func(t *testing.T) {
				t.Parallel()
				check(t, o, want)
			})
		}
	}
	for _, row := range strings.Fields("HLT-05 HLT-06 HLT-10 HLT-11 HLT-12 HLT-13 HLT-14 HLT-15 HLT-16 HLT-17 HLT-18 HLT-19 HLT-20 HLT-21 HLT-22 HLT-23 HLTX-01") {
		if !seen[row] {
			t.Errorf("no document shows %s", row)
		}
	}
}

func check(t *testing.T, o *manifest.Object, want string) {
	t.Helper()
	before, err := manifest.Canonical(o)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := health.Of(o)
	state, message, _ := strings.Cut(want, ": ")
	if state == "none" {
		if ok || got != (health.Status{}) {
			t.Errorf("Of() = %+v, %v; want no health", got, ok)
		}
		return
	}
	if !ok || got.State != state || !strings.Contains(got.Message, message) {
		t.Errorf("Of() = %+v, %v; want %s", got, ok, want)
	}
	if got.State != health.Healthy && got.Message == "" {
		t.Error("no reason is given")
	}
	if after, _ := manifest.Canonical(o); string(after) != string(before) {
		t.Error("the object was changed")
	}
}

func TestWorst(t *testing.T) {
	t.Parallel()
	order := []string{"", "Healthy", "Suspended", "Progressing", "Missing", "Degraded", "Unknown"}
	for i, a := range order {
		for j, b := range order {
			if got, want := health.Worst(a, b), order[max(i, j)]; got != want {
				t.Errorf("HLT-01: Worst(%q, %q) = %q, want %q", a, b, got, want)
			}
		}
	}
	if health.Worst("Degraded", "Odd") != "Odd" {
		t.Error("HLT-01: a word that is no state does not count as Unknown")
	}
}

func FuzzOf(f *testing.F) {
	f.Add("apps/v1", "Deployment", `{"status":{"conditions":[1,{"type":3}]},"metadata":{"generation":"x","finalizers":{}}}`)
	f.Add("v1", "Pod", `{"status":{"containerStatuses":[{"state":{"waiting":"x"}}],"phase":"Failed"}}`)
	f.Add("autoscaling/v1", "HorizontalPodAutoscaler", `{"metadata":{"annotations":{"autoscaling.alpha.kubernetes.io/conditions":"{"}}}`)
	f.Fuzz(func(t *testing.T, version, kind, body string) {
		o, err := manifest.FromCanonical([]byte(body))
		if err != nil {
			return
		}
		o.Object["apiVersion"], o.Object["kind"] = version, kind
		if s, ok := health.Of(o); ok && health.Worst(s.State, "") != s.State {
			t.Errorf("Of() = %+v", s)
		}
	})
}

func BenchmarkOf(b *testing.B) {
	o, err := manifest.FromCanonical([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","generation":2},"spec":{"replicas":3},` +
		`"status":{"observedGeneration":2,"replicas":3,"updatedReplicas":3,"availableReplicas":3,"conditions":[{"type":"Available","status":"True"},{"type":"Progressing","status":"True","reason":"NewReplicaSetAvailable"}]}}`))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if s, ok := health.Of(o); !ok || s.State != health.Healthy {
			b.Fatal(s)
		}
	}
}
