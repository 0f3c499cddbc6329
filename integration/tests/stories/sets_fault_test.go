package stories_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// manySet is an application set of a list of names.
func manySet(name string, count int) string {
	var elements []string
	for i := range count {
		elements = append(elements, fmt.Sprintf("{name: '%03d'}", i))
	}
	return "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: " + name + ", namespace: argocd}\nspec:\n  goTemplate: true\n" +
		"  generators: [{list: {elements: [" + strings.Join(elements, ", ") + "]}}]\n" +
		"  template:\n    metadata: {name: '" + name + "-{{.name}}', labels: {set: " + name + "}}\n" +
		"    spec: {project: default, source: {repoURL: 'https://example.com/x.git', path: app}, destination: {name: in-cluster, namespace: " + name + "}}\n"
}

func TestHubIsKilledWhileASetIsWritten(t *testing.T) {
	const count = 400
	t.Run("FT-H1 INV-3 a set that was half written is completed, and nothing of it is deleted", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), manySet("killed", count)); err != nil {
			t.Fatal(err)
		}
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			if _, err := s.API.Get(ctx, "killed-000"); err != nil {
				return err
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Hub.Start(within(t, waitLimit)); err != nil {
			t.Fatal(err)
		}
		setUntil(t, "killed", healthySet(count))
		created, deleted, err := setAudits(t, "applicationset killed")
		if err != nil || created != count || deleted != 0 {
			t.Errorf("%d were created and %d deleted: %v", created, deleted, err)
		}
	})
	t.Run("ASET-12 without cascade the applications of a set stay", func(t *testing.T) {
		cli(t, "appset", "delete", "killed", "--yes", "--cascade=false")
		x := struct {
			Status struct {
				Capstan struct{ ApplicationSet *struct{ Name string } }
			}
		}{}
		if err := s.API.Do(within(t, waitLimit), "GET", "/api/v1/applications/argocd/killed-000", nil, &x); err != nil || x.Status.Capstan.ApplicationSet != nil {
			t.Errorf("%+v %v", x, err)
		}
		cli(t, "app", "delete", "--selector", "set=killed", "--yes")
	})
}

// setAudits counts what an actor has created and deleted.
func setAudits(t *testing.T, actor string) (created, deleted int, err error) {
	t.Helper()
	var page struct {
		Items []struct{ Actor, Action, Resource string }
	}
	out := cli(t, "audit", "list", "--actor", actor, "--limit", "2000", "-o", "json")
	if err := json.Unmarshal([]byte(out), &page); err != nil {
		return 0, 0, err
	}
	for _, r := range page.Items {
		if r.Actor != actor || r.Resource != "applications" {
			return 0, 0, errors.New("another record: " + r.Actor + " " + r.Resource)
		}
		switch r.Action {
		case "create":
			created++
		case "delete":
			deleted++
		}
	}
	return created, deleted, nil
}
