package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/exit"
)

func TestClusterUpgrade(t *testing.T) {
	cluster := func(name, phase string) string {
		return fmt.Sprintf(`{"id":"1","name":%q,"connection":"Connected","createdAt":"2026-01-02T12:00:00Z","labels":{"site":"oslo"},"upgrade":{"id":"u-%s","image":"r/a:v2","phase":%q,"message":"so it is","by":"me","orderedAt":"2026-01-02T12:00:00Z","deadlineSeconds":300}}`, name, name, phase)
	}
	world := func(phases map[string]string) map[string]answer {
		out, all := map[string]answer{}, []string{}
		for _, name := range []string{"a", "b", "c"} {
			all = append(all, cluster(name, phases[name]))
			out["POST /api/v1/clusters/"+name+"/upgrade"] = answer{202, cluster(name, "Pending")}
			out["GET /api/v1/clusters/"+name] = answer{200, cluster(name, phases[name])}
		}
		out["GET /api/v1/clusters"] = answer{200, `{"items":[` + strings.Join(all, ",") + `]}`}
		return out
	}
	fine := map[string]string{"a": "Succeeded", "b": "Succeeded", "c": "Succeeded"}
	bad := map[string]string{"a": "Succeeded", "b": "RolledBack", "c": "Succeeded"}
	image := "--image=r/a:v2"
	for name, c := range map[string]struct {
		why     string
		phases  map[string]string
		args    []string
		code    int
		ordered string
		says    string
	}{
		"one":             {"an order is enough", fine, []string{"a", image}, exit.OK, "a", ""},
		"waited for":      {"its end is printed", fine, []string{"a", image, "--wait"}, exit.OK, "a", "cluster/a Succeeded: so it is"},
		"twice":           {"a name may come twice", fine, []string{"a", "a", image}, exit.OK, "a", ""},
		"by labels":       {"all that have them", fine, []string{"-l", "site=oslo", image}, exit.OK, "abc", ""},
		"no such label":   {"nobody is meant", fine, []string{"-l", "site=bergen", image}, exit.Missing, "", "these labels"},
		"in batches":      {"one after the other", fine, []string{"a", "b", "c", image, "--batch=1"}, exit.OK, "abc", "cluster/c Succeeded"},
		"stops":           {"the first failure stops the rest", bad, []string{"a", "b", "c", image, "--batch=1"}, exit.Failed, "ab", "not upgraded: b"},
		"no image":        {"nothing to upgrade to", fine, []string{"a"}, exit.Usage, "", "--image"},
		"nobody":          {"no cluster", fine, []string{image}, exit.Usage, "", "name clusters"},
		"names or labels": {"one of both", fine, []string{"a", "-l", "site=oslo", image}, exit.Usage, "", "name clusters"},
		"negative":        {"no batch", fine, []string{"a", image, "--batch=-1"}, exit.Usage, "", "--batch"},
	} {
		t.Run("UX-ON-7 "+name, func(t *testing.T) {
			home(t)
			h := hub(t, world(c.phases))
			code, out, errs := capstan(t, "", append([]string{"cluster", "upgrade", "--server", h.URL, "--token", "t0ken"}, c.args...)...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("%s: exit %d, want %d; output %q, errors %q", c.why, code, c.code, out, errs)
			}
			ordered := ""
			for _, name := range []string{"a", "b", "c"} {
				if body, ok := h.bodies["POST /api/v1/clusters/"+name+"/upgrade"]; ok {
					ordered += name
					if !strings.Contains(body, `"image":"r/a:v2"`) {
						t.Errorf("ordered %s", body)
					}
				}
			}
			if ordered != c.ordered {
				t.Errorf("%s: ordered for %q, want %q", c.why, ordered, c.ordered)
			}
		})
	}
}
