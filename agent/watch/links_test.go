package watch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/agent/watch"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func objectOf(t *testing.T, text string) *manifest.Object {
	t.Helper()
	objects, err := manifest.Parse("o.yaml", []byte(text), manifest.Limits{})
	if err != nil || len(objects) != 1 {
		t.Fatalf("%v: %v", objects, err)
	}
	return objects[0]
}

func TestLinks(t *testing.T) {
	t.Parallel()
	ingress := func(meta, spec, ips string) string {
		return "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web" + meta + "}\nspec: " + spec + "\nstatus: {loadBalancer: {ingress: " + ips + "}}\n"
	}
	service := func(kind, ports string) string {
		return "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: " + kind + ", ports: " + ports + "}\nstatus: {loadBalancer: {ingress: [{ip: 10.1.2.3}, {hostname: lb.example.com}]}}\n"
	}
	annotated := func(annotations string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, annotations: {" + annotations + "}}\n"
	}
	rule := "{rules: [{host: shop.example.com, http: {paths: [{path: /}, {path: /api/*}]}}]}"
	for name, c := range map[string]struct {
		object string
		want   []string
	}{
		"APP-18 an ingress is reached at its hosts and paths":      {ingress("", rule, "[]"), []string{"http://shop.example.com", "http://shop.example.com/api"}},
		"APP-18 with a certificate over https":                     {ingress("", `{tls: [{hosts: [shop.example.com]}], rules: [{host: shop.example.com}, {host: plain.example.com}]}`, "[]"), []string{"https://shop.example.com", "http://plain.example.com"}},
		"APP-18 a rule without a host is at the load balancer":     {ingress("", `{tls: [{secretName: all}], rules: [{http: {paths: [{path: /a}]}}]}`, `[{ip: "fd00::1"}, {hostname: lb.example.com}]`), []string{"https://[fd00::1]/a", "https://lb.example.com/a"}},
		"APP-18 a host with a star is no address":                  {ingress("", `{rules: [{host: "*.example.com"}]}`, "[]"), nil},
		"APP-18 a load balancer is reached at the ports of http":   {service("LoadBalancer", "[{port: 80}, {port: 8443, name: https}, {port: 5432, name: pg}]"), []string{"http://10.1.2.3", "https://10.1.2.3:8443", "http://lb.example.com", "https://lb.example.com:8443"}},
		"APP-18 another service has no address outside":            {service("ClusterIP", "[{port: 80}]"), nil},
		"APP-28 annotations are links, with a title or their name": {annotated(`link.argocd.argoproj.io/docs: "https://docs.example.com/x?a=1", link.argocd.argoproj.io/b: "Grafana|http://grafana"`), []string{"Grafana|http://grafana", "docs|https://docs.example.com/x?a=1"}},
		"APP-28 ours wins": {annotated(`link.argocd.argoproj.io/a: "https://theirs", link.capstan.dev/a: "https://ours"`), []string{"a|https://ours"}},
		"APP-28 only http and https, and no passwords":            {annotated(`link.argocd.argoproj.io/a: "javascript:alert(1)", link.argocd.argoproj.io/b: "x|data:text/html,x", link.argocd.argoproj.io/c: "ftp://x", link.argocd.argoproj.io/d: "//x", link.argocd.argoproj.io/e: "https://u:p@x", link.argocd.argoproj.io/f: ""`), nil},
		"APP-28 a link that is too long is left out":              {annotated(`link.argocd.argoproj.io/a: "https://x/` + strings.Repeat("y", 3000) + `"`), nil},
		"APP-28 ignore-default-links leaves what people wrote":    {ingress(`, annotations: {argocd.argoproj.io/ignore-default-links: "true", link.argocd.argoproj.io/a: "https://a"}`, rule, "[]"), []string{"a|https://a"}},
		"APP-28 another value than true does not":                 {ingress(`, annotations: {argocd.argoproj.io/ignore-default-links: "no"}`, `{rules: [{host: a.example.com}]}`, "[]"), []string{"http://a.example.com"}},
		"an object that is not what its kind says breaks nothing": {"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nspec: {rules: [3, {host: 4, http: 5}], tls: x}\nstatus: 7\n", nil},
		"an ingress of a group of someone else's is no ingress":   {"apiVersion: example.com/v1\nkind: Ingress\nmetadata: {name: web}\nspec: " + rule + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, watch.Links(objectOf(t, c.object))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("APP-28 the links of one object are limited", func(t *testing.T) {
		t.Parallel()
		var many strings.Builder
		for i := range 100 {
			many.WriteString("link.argocd.argoproj.io/" + strings.Repeat("a", i+1) + ": \"https://x\", ")
		}
		if got := watch.Links(objectOf(t, annotated(many.String()))); len(got) != 20 {
			t.Errorf("%d links", len(got))
		}
	})
	t.Run("APP-18 the images of a pod include those of all its containers", func(t *testing.T) {
		t.Parallel()
		pod := objectOf(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {initContainers: [{name: i, image: migrate:1}], containers: [{name: a, image: web:1}, {name: b, image: migrate:1}]}\n")
		for _, c := range watch.Columns(pod, nil) {
			if c.Name == "images" && c.Value != "web:1 migrate:1" {
				t.Errorf("images are %q", c.Value)
			}
		}
	})
}
