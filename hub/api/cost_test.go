package api_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub/api/apitest"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// An application costs the database few statements, and the hub few waits for
// it: people bring them by the hundred, while all the others want the database
// too. Whoever needs another statement here says so in this test.
func TestCostOfApplications(t *testing.T) {
	t.Parallel()
	urls, meter := storetest.Metered(t, storetest.Database(t))
	w := &world{apitest.NewOn(t, urls), t}
	admin := w.Admin("acme")
	w.call(admin, http.MethodPost, "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(http.StatusCreated)
	made := 0
	documents := func(n int, revision string) string {
		var all strings.Builder
		for range n {
			made++
			fmt.Fprintf(&all, costApplication, made, revision)
		}
		return all.String()
	}
	apply := func(text string) storetest.Cost {
		t.Helper()
		meter.Take()
		var a applied
		w.call(admin, http.MethodPost, "/api/v1/apply", text).ok(http.StatusOK).into(&a)
		if a.Failed != 0 {
			t.Fatalf("apply: %+v", a)
		}
		return meter.Take()
	}
	// Connections learn statements first.
	for range 8 {
		apply(documents(3, "HEAD"))
	}
	each := func(what string, one, more storetest.Cost, trips int, want ...string) {
		t.Helper()
		const n = 10 // more has so many more than one
		statements := len(more.Statements) - len(one.Statements)
		t.Logf("%s: %d statements in %d round trips", what, statements/n, (more.Trips-one.Trips)/n)
		last := more.Statements[len(more.Statements)-statements/n:]
		if diff := cmp.Diff(want, verbs(last)); diff != "" {
			t.Errorf("%s: statements (-want +got):\n%s", what, diff)
		}
		if more.Trips-one.Trips != trips*n || statements != len(want)*n {
			t.Errorf("%s: %d round trips and %d statements for %d applications, want %d and %d for each", what, more.Trips-one.Trips, statements, n, trips, len(want))
		}
	}
	begin := []string{
		"begin", "SELECT set_config", "SELECT organisation",
		"SELECT application FOR UPDATE", // of that name, if there is one
		"SELECT application",
		"SELECT project",
		"SELECT setting", // whether the destination in-cluster is switched off
		"SELECT cluster",
	}
	end := []string{
		"SELECT work.enlist FROM  w HAVING count > 0", // application sets whose rollouts wait for it
		"SELECT work.enlist", "INSERT change", "SELECT audit_head FOR UPDATE",
		"INSERT audit_record", "UPDATE audit_head",
		"commit",
	}
	each("create", apply(documents(1, "HEAD")), apply(documents(11, "HEAD")), 7, slices.Concat(begin, []string{
		"INSERT application_status", // and the application
		"INSERT repository",
		"INSERT app_source",
		"SELECT application",
	}, end)...)
	first := made
	again := func(n int, revision string) string {
		made = first - 20
		return documents(n, revision)
	}
	each("leave unchanged", apply(again(1, "HEAD")), apply(again(11, "HEAD")), 4, slices.Concat(begin, []string{"commit"})...)
	apply(again(11, "learned"))
	each("change", apply(again(1, "main")), apply(again(11, "other")), 9, slices.Concat(begin, []string{
		"SELECT project FOR KEY SHARE",
		"SELECT application_status FOR UPDATE",
		"SELECT application",
		"UPDATE application",
		"UPDATE application_status",
		"SELECT app_source",
		"DELETE app_source",
		"INSERT repository",
		"INSERT app_source",
		"SELECT application",
		"DELETE repository",
	}, end)...)
}

// verbs shortens statements to what they do to which table.
func verbs(statements []string) []string {
	brackets := regexp.MustCompile(`\([^()]*\)`)
	act := regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE)\b`)
	table := regexp.MustCompile(`\b(?:FROM|INTO|UPDATE) (\w+)`)
	lock := regexp.MustCompile(` FOR +(UPDATE|KEY SHARE)`)
	out := make([]string, len(statements))
	for i, s := range statements {
		s = strings.Join(strings.Fields(s), " ")
		for brackets.MatchString(s) {
			s = brackets.ReplaceAllString(s, "")
		}
		out[i] = s
		if t := table.FindStringSubmatch(s); t != nil {
			out[i] = act.FindString(s) + " " + t[1] + lock.FindString(s)
		}
	}
	return out
}

const costApplication = `---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: app-%d, namespace: argocd}
spec:
  project: default
  source: {repoURL: "https://git.example.com/a.git", path: x, targetRevision: %s}
  destination: {name: prod, namespace: shop}
`
