package watch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestNetworkColumns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		object string
		want   map[string]string
	}{
		"a Service says which pods it is for": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {tier: front, app: web}}\n",
			map[string]string{"selector": "app=web tier=front"},
		},
		"a Service without a selector says nothing": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: ClusterIP}\n",
			map[string]string{},
		},
		"an Ingress names its services and hosts once": {
			"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nspec:\n  defaultBackend: {service: {name: fallback}}\n  rules:\n" +
				"  - host: a.example.com\n    http: {paths: [{backend: {service: {name: web}}}, {backend: {service: {name: api}}}]}\n" +
				"  - host: b.example.com\n    http: {paths: [{backend: {service: {name: web}}}]}\n",
			map[string]string{"routes": "fallback web api", "hosts": "a.example.com b.example.com"},
		},
		"a route names its gateway and its services, and no other kinds": {
			"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web}\nspec:\n  hostnames: [shop.example.com]\n" +
				"  parentRefs: [{name: edge, namespace: infra}, {kind: Service, name: mesh}]\n" +
				"  rules: [{backendRefs: [{name: web, port: 80}, {kind: Bucket, name: files}, {name: api, namespace: back}]}]\n",
			map[string]string{"routes": "web back/api", "parents": "infra/edge", "hosts": "shop.example.com"},
		},
		"a Gateway names the hosts of its listeners": {
			"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge}\nspec: {listeners: [{name: http, port: 80, hostname: '*.example.com'}, {name: tls, port: 443}]}\n",
			map[string]string{"hosts": "*.example.com"},
		},
		"a workload has the labels of its pods": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {metadata: {labels: {app: web}}}}\n",
			map[string]string{"podLabels": "app=web"},
		},
		"what another object owns does not repeat them": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u}]}\n",
			map[string]string{},
		},
		"what is malformed is left out": {
			"apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\nspec: {rules: [7, {http: {paths: [text]}}, {host: 'with space'}]}\n",
			map[string]string{},
		},
	} {
		t.Run("UI-06 "+name, func(t *testing.T) {
			t.Parallel()
			objects, err := manifest.Parse("test", []byte(c.object), manifest.Limits{})
			if err != nil || len(objects) != 1 {
				t.Fatal(len(objects), err)
			}
			got := map[string]string{}
			for _, column := range networkColumns(objects[0]) {
				got[column.Name] = column.Value
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
