package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestApplicationsBound(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	ids := map[string]hub.ApplicationID{}
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		for name, c := range map[string]struct {
			destination string
			on          hub.ClusterID
		}{
			"named":           {`"name":"edge"`, ""},
			"named elsewhere": {`"name":"edge"`, w.cluster.ID},
			"server":          {`"server":"https://edge.example.com"`, ""},
			"slash":           {`"server":"https://edge.example.com/"`, w.cluster.ID},
			"other":           {`"name":"edge-2"`, ""},
			"own, nowhere":    {`"server":"https://kubernetes.default.svc/"`, ""},
			"own, named":      {`"name":"in-cluster"`, ""},
			"own, on one":     {`"server":"https://kubernetes.default.svc"`, w.cluster.ID},
			"no destination":  {``, ""},
		} {
			a := newApp(fmt.Sprint("a", len(ids)), w.repository.URL, c.on)
			a.Spec = []byte(`{"project":"default","source":{"repoURL":"` + w.repository.URL + `"},"destination":{` + c.destination + `}}`)
			ids[name] = must[hub.Application](t)(tx.CreateApplication(ctx, a)).ID
		}
		return nil
	})
	anywhere := []string{"own, nowhere", "own, named"}
	for name, c := range map[string]struct {
		names, servers, want []string
	}{
		"a name":                    {[]string{"edge"}, nil, []string{"named", "named elsewhere"}},
		"servers, with a slash":     {[]string{"x"}, []string{"", "https://edge.example.com//"}, []string{"server", "slash"}},
		"Argo CD's own, by its URL": {nil, []string{hub.InCluster}, []string{"own, on one"}},
		"nothing":                   {[]string{"x"}, []string{""}, nil},
	} {
		t.Run("APP-05 applications that a cluster concerns: "+name, func(t *testing.T) {
			t.Parallel()
			var got []hub.ApplicationID
			storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
				got, err = tx.ApplicationsBound(ctx, c.names, c.servers)
				return err
			})
			var want []hub.ApplicationID
			for _, n := range append(c.want, anywhere...) {
				want = append(want, ids[n])
			}
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%v, want %v of %v", got, want, ids)
			}
		})
	}
}
