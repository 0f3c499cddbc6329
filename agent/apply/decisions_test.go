package apply

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestPermit(t *testing.T) {
	t.Parallel()
	secret := manifest.Key{Kind: "Secret", Namespace: "shop", Name: "x"}
	role := manifest.Key{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "x"}
	all := []*linkv1.KindRule{{Group: "*", Kind: "*"}}
	cases := map[string]struct {
		why        string
		limits     *linkv1.Limits
		key        manifest.Key
		namespaced bool
		want       bool
	}{
		"NoLimits":                      {"a hub that sends none has checked all", nil, role, false, true},
		"PROJ-06 ClusterNotListed":      {"cluster-scoped kinds need a list that has them", &linkv1.Limits{}, role, false, false},
		"PROJ-06 ClusterListed":         {"", &linkv1.Limits{ClusterAllow: all}, role, false, true},
		"PROJ-06 ClusterByName":         {"a rule may name one object", &linkv1.Limits{ClusterAllow: []*linkv1.KindRule{{Group: "*", Kind: "ClusterRole", Name: "y*"}}}, role, false, false},
		"PROJ-07 ClusterDenied":         {"a denial wins", &linkv1.Limits{ClusterAllow: all, ClusterDeny: []*linkv1.KindRule{{Group: "rbac.authorization.k8s.io", Kind: "*"}}}, role, false, false},
		"PROJ-08 NamespacedByDefault":   {"without a list every kind is permitted", &linkv1.Limits{}, secret, true, true},
		"PROJ-08 EmptyList":             {"a list that is there and empty permits none", &linkv1.Limits{NamespacedAllowSet: true}, secret, true, false},
		"PROJ-09 Denied":                {"", &linkv1.Limits{NamespacedDeny: []*linkv1.KindRule{{Kind: "Secret"}}}, secret, true, false},
		"PROJ-09 OtherGroup":            {"a kind is more than its name", &linkv1.Limits{NamespacedDeny: []*linkv1.KindRule{{Group: "example.com", Kind: "Secret"}}}, secret, true, true},
		"CLU-06 Managed":                {"", &linkv1.Limits{ManagedNamespaces: []string{"bank", "shop"}}, secret, true, true},
		"CLU-06 ClusterResources":       {"unless the registration says so", &linkv1.Limits{ClusterAllow: all, ManagedNamespaces: []string{"shop"}, ClusterResources: true}, role, false, true},
		"PROJ-03 NoDestination":         {"what the hub sends without an entry for the cluster", &linkv1.Limits{Namespaces: []string{"!*"}}, secret, true, false},
		"PROJ-03 Namespace":             {"", &linkv1.Limits{Namespaces: []string{"sh*"}}, secret, true, true},
		"PROJ-03 OtherNamespace":        {"", &linkv1.Limits{Namespaces: []string{"pay-*"}}, secret, true, false},
		"PROJ-03 DeniedNamespace":       {"a denial wins wherever it stands", &linkv1.Limits{Namespaces: []string{"!shop", "*"}}, secret, true, false},
		"PROJ-03 DeniedNamespaceIsLast": {"", &linkv1.Limits{Namespaces: []string{"*", "!sh?p"}}, secret, true, false},
		"BadGlob":                       {"a glob that cannot be read permits nothing", &linkv1.Limits{Namespaces: []string{"[shop"}}, secret, true, false},
	}
	for name, c := range cases {
		t.Run("ENG-16 "+name, func(t *testing.T) {
			t.Parallel()
			err := permit(c.limits, "team", c.key, c.namespaced)
			if (err == nil) != c.want {
				t.Errorf("permit: %v, want permitted %v: %s", err, c.want, c.why)
			}
			if err != nil && (fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "project team does not permit")) {
				t.Errorf("error is not clear: %v", err)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	gk := schema.GroupKind{Kind: "ConfigMap"}
	key := manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	status := func(code int, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(code), Reason: reason, Message: message, Details: &metav1.StatusDetails{Causes: causes}}}
	}
	cases := map[string]struct {
		err  error
		kind fault.Kind
		has  string
	}{
		"Forbidden":  {apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "web", errors.New("no rights")), fault.Denied, "no rights"},
		"Invalid":    {apierrors.NewInvalid(gk, "web", nil), fault.Invalid, "correct the manifest"},
		"Immutable":  {status(422, metav1.StatusReasonInvalid, "x", metav1.StatusCause{Message: "field is immutable"}), fault.Invalid, "Replace=true,Force=true"},
		"Missing":    {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop"), fault.Missing, "create what is missing"},
		"Conflict":   {apierrors.NewConflict(schema.GroupResource{}, "web", errors.New("changed")), fault.Conflict, "changed"},
		"TooMany":    {apierrors.NewTooManyRequestsError("slow down"), fault.Offline, "slow down"},
		"Webhook":    {apierrors.NewInternalError(errors.New("failed calling webhook")), fault.Offline, "webhook"},
		"NoAnswer":   {http.ErrHandlerTimeout, fault.Internal, ""},
		"Own":        {fault.New(fault.Exceeded, "too much"), fault.Exceeded, "too much"},
		"Unreadable": {status(418, "Teapot", "short and stout"), fault.Invalid, "short and stout"},
	}
	for name, c := range cases {
		t.Run("ENG-18 "+name, func(t *testing.T) {
			t.Parallel()
			err := explain(c.err, key, "apply")
			if kind := fault.KindOf(err); kind != c.kind {
				t.Errorf("kind %q, want %q", kind, c.kind)
			}
			if s := fault.Sentence(err); c.has != "" && (!strings.Contains(s, c.has) || !strings.Contains(s, "ConfigMap shop/web")) {
				t.Errorf("sentence %q", s)
			}
		})
	}
	t.Run("SEC a refusal of a Secret quotes no value", func(t *testing.T) {
		t.Parallel()
		err := explain(status(422, metav1.StatusReasonInvalid, "data: Invalid value: \"hunter2\"", metav1.StatusCause{Field: "data[tls.crt]", Message: "hunter2"}),
			manifest.Key{Kind: "Secret", Namespace: "shop", Name: "login"}, "apply")
		if text := err.Error() + fault.Sentence(err); strings.Contains(text, "hunter2") || !strings.Contains(text, "data[tls.crt]") {
			t.Errorf("error %q", text)
		}
	})
}

func TestFightBackoff(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	make := func(editor string) *object {
		a := &app{e: &Engine{}, warnings: map[string]string{}, closed: true}
		return &object{app: a, key: manifest.Key{Kind: "Deployment", Namespace: "shop", Name: "web"}, live: live{known: true, found: true, editor: editor},
			comparison: diff.Result{Fields: []string{"spec.replicas"}}}
	}
	t.Run("FT-K2 self-heal backs off after three changes by a program in ten seconds, longer each time", func(t *testing.T) {
		t.Parallel()
		x, at := make("hpa"), now
		for i := range 3 {
			if d := x.backoff(at); d != 0 {
				t.Fatalf("healing %d waits %s", i, d)
			}
			at = at.Add(time.Second)
		}
		for _, want := range []time.Duration{
			200 * time.Millisecond, 600 * time.Millisecond, 1800 * time.Millisecond, 5400 * time.Millisecond, 16200 * time.Millisecond,
			48600 * time.Millisecond, 145800 * time.Millisecond, 300 * time.Second, 300 * time.Second,
		} {
			if d := x.backoff(at); d != want {
				t.Fatalf("waits %s, want %s", d, want)
			}
			at = at.Add(want)
			if d := x.backoff(at); d != 0 {
				t.Fatalf("after its wait it waits %s more", d)
			}
			at = at.Add(10 * time.Millisecond)
		}
		if got := x.app.warnings["fight "+x.key.String()]; got != "Deployment shop/web: spec.replicas is repeatedly changed by hpa" {
			t.Errorf("warning %q", got)
		}
		at = at.Add(time.Hour)
		if d := x.backoff(at); d != 0 || len(x.app.warnings) != 0 {
			t.Errorf("after an hour of peace: waits %s, warnings %v", d, x.app.warnings)
		}
	})
	t.Run("AUTO-08 a person's edits are healed at once each time", func(t *testing.T) {
		t.Parallel()
		x := make("kubectl-edit")
		for range 50 {
			if d := x.backoff(now); d != 0 {
				t.Fatalf("waits %s", d)
			}
		}
	})
	t.Run("AUTO-08 the first five edits by an unknown tool are healed within a second each", func(t *testing.T) {
		t.Parallel()
		x, at := make("curl"), now
		var waits []time.Duration
		for range 5 {
			d := x.backoff(at)
			if d > 0 {
				at = at.Add(d)
				if more := x.backoff(at); more != 0 {
					t.Fatalf("after its wait it waits %s more", more)
				}
			}
			waits = append(waits, d)
		}
		if want := []time.Duration{0, 0, 0, 200 * time.Millisecond, 600 * time.Millisecond}; !slices.Equal(waits, want) {
			t.Errorf("waits %v, want %v", waits, want)
		}
	})
	t.Run("AUTO-08 the manager of the field counts, not the last writer of the object", func(t *testing.T) {
		t.Parallel()
		x := make("kube-controller-manager") // it writes an annotation of its own after each edit
		x.live.writers = []string{"kubectl-edit"}
		for range 50 {
			if d := x.backoff(now); d != 0 {
				t.Fatalf("waits %s", d)
			}
		}
		x.live.editor, x.live.writers = "kubectl-edit", []string{"hpa"}
		for range 3 {
			x.backoff(now)
		}
		if d := x.backoff(now); d == 0 || x.app.warnings["fight "+x.key.String()] != "Deployment shop/web: spec.replicas is repeatedly changed by hpa" {
			t.Errorf("a program whose field was edited by nobody else waits %s; warnings %v", d, x.app.warnings)
		}
	})
	t.Run("slow edits of a program are not a fight", func(t *testing.T) {
		t.Parallel()
		x, at := make("robot"), now
		for range 20 {
			if d := x.backoff(at); d != 0 {
				t.Fatalf("waits %s", d)
			}
			at = at.Add(6 * time.Second)
		}
	})
	t.Run("edits of other fields are not delayed", func(t *testing.T) {
		t.Parallel()
		x := make("robot")
		for range 3 {
			x.backoff(now)
		}
		x.comparison.Fields = []string{"spec.paused"}
		if d := x.backoff(now); d != 0 {
			t.Errorf("waits %s", d)
		}
	})
}

// A long wait of one fight does not hold up what is to be healed sooner.
func TestHealAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &app{e: &Engine{Config: Config{Clock: lifecycle.System{}}, begun: true, life: t.Context()}, warnings: map[string]string{}}
		x := &object{app: a, key: manifest.Key{Kind: "ConfigMap", Namespace: "shop", Name: "web"}}
		a.objects = map[manifest.Key]*object{x.key: x}
		planned := func() time.Duration {
			a.mu.Lock()
			defer a.mu.Unlock()
			if x.timed.IsZero() {
				return 0
			}
			return time.Until(x.timed)
		}
		a.mu.Lock()
		for _, wait := range []time.Duration{5 * time.Minute, 200 * time.Millisecond, time.Minute} {
			a.healAfter(x, wait)
		}
		a.mu.Unlock()
		if got := planned(); got != 200*time.Millisecond {
			t.Errorf("it is looked at again after %s", got)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		if got := planned(); got != 0 {
			t.Errorf("after that look another one is planned in %s", got)
		}
		a.e.workers.Wait()
	})
}

func TestEditor(t *testing.T) {
	t.Parallel()
	entry := func(manager, operation, sub, at string) any {
		return map[string]any{"manager": manager, "operation": operation, "subresource": sub, "time": at}
	}
	o := &manifest.Object{Object: map[string]any{"metadata": map[string]any{"managedFields": []any{
		entry("capstan", "Apply", "", "2026-01-01T00:00:05Z"), entry("kubectl-edit", "Update", "", "2026-01-01T00:00:03Z"),
		entry("hpa", "Update", "scale", "2026-01-01T00:00:04Z"), entry("kubelet", "Update", "status", "2026-01-01T00:00:09Z"),
	}}}}
	if name, applied := editor(o, Manager); name != "hpa" || !applied {
		t.Errorf("editor %q, applied %v", name, applied)
	}
	if name, applied := editor(&manifest.Object{Object: map[string]any{"metadata": "odd"}}, Manager); name != "" || applied {
		t.Errorf("editor of an odd object: %q, %v", name, applied)
	}
}

func TestWithin(t *testing.T) {
	t.Parallel()
	live := map[string]any{"a": int64(1), "b": []any{"x", map[string]any{"c": 2.0, "d": "e"}}, "more": true}
	cases := map[string]struct {
		part any
		want bool
	}{
		"Part":      {map[string]any{"a": int64(1)}, true},
		"Deep":      {map[string]any{"b": []any{"x", map[string]any{"c": int64(2)}}}, true},
		"Other":     {map[string]any{"a": int64(2)}, false},
		"Missing":   {map[string]any{"z": nil, "y": int64(1)}, false},
		"Longer":    {map[string]any{"b": []any{"x"}}, false},
		"OtherKind": {map[string]any{"a": []any{}}, false},
	}
	for name, c := range cases {
		if got := within(c.part, live); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestTransient(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		err                  error
		transient, ambiguous bool
	}{
		"429":      {apierrors.NewTooManyRequestsError("x"), true, false},
		"500":      {apierrors.NewInternalError(errors.New("x")), true, true},
		"503":      {apierrors.NewServiceUnavailable("x"), true, true},
		"504":      {apierrors.NewTimeoutError("x", 1), true, true},
		"404":      {apierrors.NewNotFound(schema.GroupResource{}, "x"), false, false},
		"Lease":    {fault.New(fault.Offline, "the lease is lost"), false, false},
		"Deadline": {errors.Join(http.ErrHandlerTimeout), false, false},
	}
	for name, c := range cases {
		t.Run("FT-K1 "+name, func(t *testing.T) {
			t.Parallel()
			if got := transient(c.err); got != c.transient {
				t.Errorf("transient %v, want %v", got, c.transient)
			}
			if got := ambiguous(c.err); got != c.ambiguous {
				t.Errorf("ambiguous %v, want %v", got, c.ambiguous)
			}
		})
	}
	if d := pause(1, apierrors.NewTooManyRequests("x", 7)); d != 7*time.Second {
		t.Errorf("FT-K1 Retry-After is not kept: %s", d)
	}
	for try := 1; try < 40; try++ {
		if d := pause(try, errors.New("x")); d <= 0 || d > mostPause {
			t.Errorf("pause %d is %s", try, d)
		}
	}
}

func TestHealthCauses(t *testing.T) {
	t.Parallel()
	t.Run("HLT-26 up to three causes are named, always the same ones", func(t *testing.T) {
		t.Parallel()
		var c healthCauses
		for _, name := range []string{"d", "b", "e", "a", "c"} {
			c.add(name)
		}
		if got := c.String(); got != "a; b; c; and 2 more" {
			t.Errorf("%q", got)
		}
	})
	t.Run("HLT-26 one cause is named alone, and without a cause the text is empty", func(t *testing.T) {
		t.Parallel()
		var c healthCauses
		if got := c.String(); got != "" {
			t.Errorf("%q", got)
		}
		c.add("Pod a: CrashLoopBackOff")
		if got := c.String(); got != "Pod a: CrashLoopBackOff" {
			t.Errorf("%q", got)
		}
	})
}

func TestPhaseOfAFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind fault.Kind
		want string
	}{
		"APP-15 an impossible request is Failed":              {fault.Invalid, "Failed"},
		"APP-15 a denied request is Failed":                   {fault.Denied, "Failed"},
		"APP-15 what is needed could not be reached: Error":   {fault.Offline, "Error"},
		"APP-15 something broke that should not break: Error": {fault.Internal, "Error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := errored(fault.New(c.kind, "x")); got.phase != c.want {
				t.Errorf("phase %q", got.phase)
			}
		})
	}
}
