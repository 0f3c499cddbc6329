//go:build soak

package stories_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// TestPruneOfThousands deletes 5,000 objects by one commit, with names so long
// that their tombstones are more than a message of the link takes.
func TestPruneOfThousands(t *testing.T) {
	const many = 5000
	name := func(i int) string { return fmt.Sprintf("n%d-%s", i, strings.Repeat("long-name-", 23)) }
	var all strings.Builder
	for i := range many {
		all.WriteString("---\n" + configMap(name(i)+"x", "one"))
	}
	repo := repository(t, "prune-many", map[string]string{"many/all.yaml": all.String(), "many/stays.yaml": configMap("stays", "one"), "beside/b.yaml": configMap("beside", "one")})
	deploy(t, "prune-many", repo.URL(), "many", "")
	deploy(t, "prune-beside", repo.URL(), "beside", "")
	long := func(what string, n int) {
		t.Helper()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		maps := s.Clusters["in-cluster"].Dynamic().Resource(configMaps).Namespace("prune-many")
		for {
			list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "", ResourceVersion: "0"})
			if err != nil {
				t.Fatal(err)
			}
			ours := 0
			for _, o := range list.Items {
				if o.GetName() != "kube-root-ca.crt" {
					ours++
				}
			}
			if ours == n {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatalf("%s: %d objects are there, want %d", what, ours, n)
			case <-time.After(time.Second):
			}
		}
		t.Logf("%s: %s", what, time.Since(began).Round(time.Second))
	}
	long("5,000 objects are deployed", many+1)
	settled(t, "prune-many")
	settled(t, "prune-beside")
	maps := s.Clusters["in-cluster"].Dynamic().Resource(configMaps)
	t.Run("FT-L1 while 5,000 objects are pruned, another application of the cluster is deployed", func(t *testing.T) {
		began := time.Now()
		_, err := repo.Push(t.Context(), gitserver.Change{Message: "all at once", Write: map[string]string{"beside/b.yaml": configMap("beside", "two")}, Remove: []string{"many/all.yaml"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx := within(t, 3*time.Minute)
		for {
			o, err := maps.Namespace("prune-beside").Get(ctx, "beside", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(o.Object["data"]) == "map[v:two]" {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatal("it is not deployed")
			case <-time.After(100 * time.Millisecond):
			}
		}
		t.Logf("the other application was deployed after %s", time.Since(began).Round(time.Millisecond))
	})
	t.Run("SYNC-11 all of them are pruned", func(t *testing.T) {
		long("5,000 objects are pruned", 1)
		settled(t, "prune-many")
	})
	t.Run("DEL-01 nothing blocks the deletion of the application", func(t *testing.T) {
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", "prune-many", "--yes"); err != nil {
			t.Fatal(err)
		}
		long("the rest is deleted", 0)
	})
}
