package hub_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestInCluster(t *testing.T) {
	t.Parallel()
	cluster := func(name, server string) hub.Cluster { return hub.Cluster{Meta: hub.Meta{Name: name}, Server: server} }
	for name, c := range map[string]struct {
		on      hub.Cluster
		d       hub.Destination
		refused bool
	}{
		"APP-05 its address":                        {cluster("only", ""), hub.Destination{Server: "https://kubernetes.default.svc"}, true},
		"APP-05 its address with a slash behind it": {cluster("only", ""), hub.Destination{Server: "https://kubernetes.default.svc/"}, true},
		"APP-05 its name":                           {cluster("in-cluster", ""), hub.Destination{Name: "in-cluster"}, true},
		"APP-05 another name for its address":       {cluster("home", "https://kubernetes.default.svc"), hub.Destination{Name: "home"}, true},
		"APP-05 another address for its name":       {cluster("in-cluster", "https://home.example.com"), hub.Destination{Server: "https://home.example.com"}, true},
		"APP-05 a cluster by its own name":          {cluster("only", ""), hub.Destination{Name: "only"}, false},
		"APP-05 a cluster by its own address":       {cluster("prod", "https://prod.example.com"), hub.Destination{Server: "https://prod.example.com"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := c.on.Admits(c.d); err != nil {
				t.Errorf("refused though nothing is switched off: %v", err)
			}
			c.on.InClusterOff = true
			err := c.on.Admits(c.d)
			if (err != nil) != c.refused {
				t.Fatalf("error %v", err)
			}
			if err != nil && (fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "cluster.inClusterEnabled of argocd-cm is false")) {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("APP-05 only a false switches it off", func(t *testing.T) {
		t.Parallel()
		for value, off := range map[string]bool{"false": true, " False\n": true, "0": true, "true": false, "": false, "no": false} {
			if hub.InClusterOff(value) != off {
				t.Errorf("%q", value)
			}
		}
	})
}
