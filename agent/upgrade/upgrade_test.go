package upgrade

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	one = "11111111-1111-4111-8111-111111111111"
	two = "22222222-2222-4222-8222-222222222222"

	v1 = "registry.example.com/capstan-agent:v1"
	v2 = "registry.example.com/capstan-agent:v2"
	v3 = "registry.example.com/capstan-agent:v3"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func order(id, image string) Order {
	return Order{ID: id, Image: image, Ordered: noon, BeginBefore: noon.Add(time.Hour), Deadline: 5 * time.Minute}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	running := Record{ID: one, Ordered: noon, From: v1, To: v2, Phase: Running, Begun: noon, Deadline: noon.Add(5 * time.Minute)}
	ended := running.end(noon, Succeeded, "")
	after := func(d time.Duration, s observation) observation { s.now = noon.Add(d); return s }
	cases := map[string]struct {
		why         string
		order       Order
		observation observation
		want        move
		from        string // of the record that is left
		phase       string
		message     string // a part of it
	}{
		"First":  {"nothing was done yet", order(one, v2), after(0, observation{image: v1}), begin, v1, Running, ""},
		"Waits":  {"it has time left", order(one, v2), after(time.Minute, observation{record: running, image: v2}), wait, v1, Running, ""},
		"Proved": {"the hub has let the new version in", order(one, v2), after(time.Minute, observation{record: running, image: v2, proved: one}), confirm, v1, Succeeded, "v2 runs and is connected"},
		"JustProved": {
			"a sign of life counts more than the clock", order(one, v2),
			after(time.Hour, observation{record: running, image: v2, proved: one}), confirm, v1, Succeeded, "",
		},
		"Silent": {"nobody said Hello", order(one, v2), after(5*time.Minute, observation{record: running, image: v2, proved: two}), back, v1, RolledBack, "within 5m0s; " + v1 + " was brought back"},
		"Crashes": {
			"nobody heals the cluster while the new version crashes", order(one, v2),
			after(time.Second, observation{record: running, image: v2, pods: state{restarts: 3, problem: "its process ended with code 2"}}),
			back, v1, RolledBack, "it ended 3 times (its process ended with code 2)",
		},
		"CrashedOnce":  {"one crash may be bad luck", order(one, v2), after(time.Second, observation{record: running, image: v2, pods: state{restarts: 1}}), wait, v1, Running, ""},
		"Over":         {"a second life of the updater, or an order that comes again", order(one, v2), after(time.Hour, observation{record: ended, image: v2}), leave, v1, Succeeded, ""},
		"TooLate":      {"people have forgotten it", order(one, v2), after(2*time.Hour, observation{image: v1}), leave, "", "", ""},
		"StaleOrder":   {"a restored hub orders what was ordered before", Order{ID: two, Image: v1, Ordered: noon.Add(-time.Minute), BeginBefore: noon.Add(time.Hour), Deadline: time.Minute}, after(0, observation{record: ended, image: v2}), leave, v1, Succeeded, ""},
		"AfterAnother": {"the image that runs has proved itself", Order{ID: two, Image: v3, Ordered: noon.Add(time.Minute), BeginBefore: noon.Add(time.Hour), Deadline: time.Minute}, after(time.Minute, observation{record: ended, image: v2, mark: one}), begin, v2, Running, ""},
		"InsteadOfAnother": {
			"what another upgrade left half way is not what is brought back",
			Order{ID: two, Image: v3, Ordered: noon.Add(time.Minute), BeginBefore: noon.Add(time.Hour), Deadline: time.Minute},
			after(time.Minute, observation{record: running, image: v2, mark: one}), begin, v1, Running, "",
		},
	}
	for name, c := range cases {
		t.Run("FT-A5 "+name, func(t *testing.T) {
			t.Parallel()
			got, r := decide(c.order, c.observation)
			if got != c.want || r.From != c.from || r.Phase != c.phase || !strings.Contains(r.Message, c.message) {
				t.Errorf("decide() = %d, %+v; want %d, from %q, phase %q, message %q: %s", got, r, c.want, c.from, c.phase, c.message, c.why)
			}
			if (r.Ended == nil) != (r.Phase == Running || r.Phase == "") {
				t.Errorf("ended %v in phase %q", r.Ended, r.Phase)
			}
		})
	}
}

func TestOrderIsChecked(t *testing.T) {
	t.Parallel()
	good := order(one, v2)
	for name, change := range map[string]func(*Order){
		"NoID":       func(o *Order) { o.ID = "x" },
		"Latest":     func(o *Order) { o.Image = "registry.example.com/capstan-agent" },
		"PortOnly":   func(o *Order) { o.Image = "registry.example.com:5000/capstan-agent" },
		"Space":      func(o *Order) { o.Image = "a b:c" },
		"Flag":       func(o *Order) { o.Image = "--kubeconfig=/x:y" },
		"BadDigest":  func(o *Order) { o.Image = "registry.example.com/capstan-agent@sha256:12" },
		"Long":       func(o *Order) { o.Image = strings.Repeat("a", 2000) + ":b" },
		"NoTime":     func(o *Order) { o.Ordered = time.Time{} },
		"NoDeadline": func(o *Order) { o.Deadline = 0 },
		"ForEver":    func(o *Order) { o.Deadline = 24 * time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := good
			change(&o)
			if err := o.Validate(); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%+v: error %v, want an invalid order", o, err)
			}
		})
	}
	for _, image := range []string{v2, "localhost:5000/a/b:c", v2 + "@sha256:" + strings.Repeat("0a", 32), "a@sha256:" + strings.Repeat("0a", 32)} {
		good.Image = image
		if err := good.Validate(); err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
}

func TestRepository(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		v1: "registry.example.com/capstan-agent", "localhost:5000/agent:v1": "localhost:5000/agent", "localhost:5000/agent": "localhost:5000/agent",
		"localhost:5000/agent:v1@sha256:00": "localhost:5000/agent", "agent@sha256:00": "agent", "agent": "agent",
	} {
		if got := repository(image); got != want {
			t.Errorf("repository(%q) = %q, want %q", image, got, want)
		}
	}
}

func TestProblemOfAPod(t *testing.T) {
	t.Parallel()
	status := func(c map[string]any) *unstructured.Unstructured {
		c["name"] = Container
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"containerStatuses": []any{c}}}}
	}
	end := map[string]any{"terminated": map[string]any{"exitCode": int64(2), "message": "panic: no\n  such\x01flag \xff"}}
	for name, c := range map[string]struct {
		pod  *unstructured.Unstructured
		want state
	}{
		"Runs":    {status(map[string]any{"state": map[string]any{"running": map[string]any{}}}), state{}},
		"Crashed": {status(map[string]any{"restartCount": int64(2), "lastState": end}), state{2, "its process ended with code 2: panic: no such\x01flag "}},
		"NoImage": {status(map[string]any{"state": map[string]any{"waiting": map[string]any{"reason": "ErrImagePull", "message": "not found"}}}), state{0, "ErrImagePull: not found"}},
		"NoNode": {&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "PodScheduled", "status": "False", "message": "0 of 3"}}}}},
			state{0, "no node accepts its pod: 0 of 3"}},
		"New": {&unstructured.Unstructured{Object: map[string]any{}}, state{}},
	} {
		if diff := cmp.Diff(c.want, stateOf(c.pod), cmp.AllowUnexported(state{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// deployment is one of the chart, in short.
func deployment(image string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": Deployment, "resourceVersion": "7"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"imagePullSecrets": []any{map[string]any{"name": "pull"}}, "nodeSelector": map[string]any{"disk": "ssd"},
			"volumes": []any{map[string]any{"name": "state"}}, "serviceAccountName": "capstan-agent",
			"securityContext": map[string]any{"runAsNonRoot": true},
			"containers": []any{map[string]any{
				"name": Container, "image": image, "args": []any{"run"}, "env": []any{map[string]any{"name": "SECRET"}},
				"securityContext": map[string]any{"readOnlyRootFilesystem": true}, "volumeMounts": []any{map[string]any{"name": "state"}},
			}},
		}}},
	}}
}

func TestTheUpdatersJob(t *testing.T) {
	t.Parallel()
	job, err := newJob(order(one, v2), deployment(v1), "ops")
	if err != nil {
		t.Fatal(err)
	}
	text, err := job.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"image":"` + v1 + `"`, `"serviceAccountName":"` + Account + `"`, `"--image=` + v2 + `"`, `"disk":"ssd"`, `"name":"pull"`, `"runAsNonRoot":true`, `"readOnlyRootFilesystem":true`, `"--namespace=ops"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	for _, not := range []string{"volumeMounts", "SECRET", `"run"`} {
		if strings.Contains(string(text), not) {
			t.Errorf("%s is in\n%s", not, text)
		}
	}
	if len(job.GetName()) > 63 {
		t.Errorf("the name %q is too long for a label", job.GetName())
	}
}
