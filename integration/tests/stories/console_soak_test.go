//go:build soak

package stories_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/playwright"
)

// TestTabForADay leaves a tab of the console open for a day of the browser's clock.
// web/e2e/day.spec.ts says what happens meanwhile.
func TestTabForADay(t *testing.T) {
	if err := hourOf(t, 0); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CAPSTAN_SPECS", "day")
	c := &console{more: func(act string) (string, error) {
		switch act {
		case "watcher":
			password := rand.Text()
			account := map[string]any{"name": "watcher", "password": password, "roles": []string{"readonly"}}
			return password, s.API.Do(within(t, waitLimit), http.MethodPost, "/api/v1/users", account, nil)
		case "stop":
			return "", s.Hub.Stop()
		case "start":
			return "", s.Hub.Start(within(t, waitLimit))
		}
		text, _ := strings.CutPrefix(act, "hour-")
		hour, err := strconv.Atoi(text)
		if err != nil {
			return "", fmt.Errorf("the spec asks for an unknown act %q", act)
		}
		return "", hourOf(t, hour)
	}}
	playwright.Subtests(t, c.run(t))
}

// hourOf makes the application of an hour, changes it some times, and deletes that of
// the hour before.
func hourOf(t *testing.T, hour int) error {
	for i := range 10 {
		manifest := fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: day-%d, namespace: argocd, labels: {of: day, change: "%d"}}
spec:
  project: default
  source: {repoURL: 'https://git.invalid/day.git', path: x}
  destination: {name: no-such-cluster, namespace: day}
`, hour, i)
		if _, err := s.API.Apply(within(t, waitLimit), manifest); err != nil {
			return err
		}
	}
	if hour == 0 {
		return nil
	}
	_, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", fmt.Sprintf("day-%d", hour-1), "--cascade=false", "--yes")
	return err
}
