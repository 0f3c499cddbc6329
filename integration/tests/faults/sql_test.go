package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
)

// refreshed waits until the newest version is what could be deployed.
func (r *round) refreshed() {
	r.t.Helper()
	err := poll.Until(within(r.t, waitLimit), func(ctx context.Context) error {
		x, err := s.API.Get(ctx, r.name)
		if err == nil && x.Status.Sync.Revision != r.run.Versions[len(r.run.Versions)-1].Revision {
			err = fmt.Errorf("revision %q", x.Status.Sync.Revision)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func TestDatabaseIsUnreliable(t *testing.T) {
	seed := time.Now().UnixNano()
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	var mu sync.Mutex
	faults := 0
	s.SQL.Decide(func(faultproxy.Statement) faultproxy.SQLAct {
		mu.Lock()
		defer mu.Unlock()
		if random.IntN(150) != 0 {
			return faultproxy.SQLAct{}
		}
		faults++
		return []faultproxy.SQLAct{{CutBefore: true}, {Lose: true}, {Error: "40001"}, {Error: "40P01"}, {Error: "57014"}, {Delay: 50 * time.Millisecond}}[random.IntN(6)]
	})
	t.Cleanup(func() { s.SQL.Decide(nil) })
	t.Run("FT-D1 FT-D2 FT-D4 FT-D5 one of 150 statements fails or loses its reply during a whole lifecycle", func(t *testing.T) {
		newRound(t, "unreliable", seed).life()
		t.Logf("%d faults, seed %d", faults, seed)
		s.SQL.Decide(nil)
		atRest(t)
	})
}

func TestPostgresRestarts(t *testing.T) {
	t.Run("FT-D1 the server is killed and restarts during the transactions of a whole lifecycle", func(t *testing.T) {
		stop := make(chan struct{})
		var over sync.WaitGroup
		restarts := 0
		// Each restart waits for a commit to be under way.
		busy := make(chan struct{}, 1)
		s.SQL.Decide(func(x faultproxy.Statement) faultproxy.SQLAct {
			if x.Tx && regexp.MustCompile(`(?i)^commit`).MatchString(x.SQL) {
				select {
				case busy <- struct{}{}:
				default:
				}
			}
			return faultproxy.SQLAct{}
		})
		over.Go(func() {
			for range 3 {
				select {
				case <-busy:
				case <-stop:
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
				if err := s.Postgres.Restart(ctx, postgres.StopImmediate); err != nil {
					t.Error(err)
				}
				cancel()
				restarts++
				for range 20 { // let some transactions through before the next one
					select {
					case <-busy:
					case <-stop:
						return
					}
				}
			}
		})
		r := newRound(t, "restarts", 0)
		r.push("one", six)
		r.create(true)
		r.settled()
		r.push("two", four)
		r.settled()
		r.sync("restarts-sync")
		r.settled()
		close(stop)
		over.Wait()
		s.SQL.Decide(nil)
		r.rest()
		r.collect()
		r.remove()
		r.collect()
		r.check()
		atRest(t)
		t.Logf("%d restarts", restarts)
	})
}

func TestSecretsStayWhereTheyBelong(t *testing.T) {
	password := canaries.Plant("repository password")
	value := canaries.Plant("Secret in Git")
	canaries.Add("API token", s.API.Token)
	canaries.Add("admin password", s.Password())
	files := map[string]string{"app/secret.yaml": fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: hidden}\nstringData: {key: %q}\n", value)}
	r := newRound(t, "canary", 0)
	if _, err := r.repo.Commit(within(t, waitLimit), "secret", files); err != nil {
		t.Fatal(err)
	}
	r.repo.Protect(gitserver.RepositoryOptions{Username: "robot", Password: password})
	credential := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: canary, labels: {argocd.argoproj.io/secret-type: repository}}\nstringData: {type: git, url: %q, username: robot, password: %q}\n", r.repo.URL(), password)
	if out, err := s.API.Apply(within(t, waitLimit), credential); err != nil {
		t.Fatal(out, err)
	}
	r.create(true)
	if _, err := s.API.Wait(within(t, waitLimit), r.name, stackSettled); err != nil {
		t.Fatal(err)
	}
	token, err := s.API.CLI(within(t, waitLimit), "", "cluster", "enroll", "spare", "--token-only")
	if err != nil {
		t.Fatal(err)
	}
	canaries.Add("join token", strings.TrimSpace(token))
	found := func(t *testing.T, list []canary.Leak) {
		t.Helper()
		for _, x := range list {
			t.Error(x)
		}
	}
	t.Run("SEC-C1 SEC-C2 SEC-C4 no API answer has one", func(t *testing.T) {
		base := "/api/v1/applications/argocd/" + r.name
		for _, path := range []string{
			base, base + "/tree", base + "/diff", base + "/manifests", base + "/history", base + "/operations", base + "/resource?kind=Secret&version=v1&resourceNamespace=canary&resourceName=hidden",
			"/api/v1/applications", "/api/v1/repositories", "/api/v1/repository-credentials", "/api/v1/clusters", "/api/v1/clusters/spare", "/api/v1/audit?limit=500", "/api/v1/users", "/api/v1/tokens", "/api/v1/me", "/api/v1/projects",
		} {
			var raw json.RawMessage
			if err := s.API.Do(within(t, waitLimit), http.MethodGet, path, nil, &raw); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			found(t, canaries.Find(path, raw))
		}
	})
	t.Run("SEC-C3 no argument and no environment of a process has one", func(t *testing.T) {
		for _, pid := range []int{s.Hub.PID(), s.Agents[clusterName].PID()} {
			list, err := canaries.FindInProcess(pid, true)
			if err != nil {
				t.Fatal(err)
			}
			found(t, list)
		}
	})
	t.Run("SEC-C2 no log has one", func(t *testing.T) {
		for _, path := range []string{s.Hub.LogFile(), s.Agents[clusterName].LogFile(), s.Postgres.LogFile()} {
			list, err := canaries.FindInFolder(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			found(t, list)
		}
	})
	t.Run("SEC-C8 no row of the database has one", func(t *testing.T) {
		conn := database(t)
		tables := rows[struct{ Name string }](t, conn, "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')")
		if len(tables) < 20 {
			t.Fatalf("%d tables", len(tables))
		}
		for _, table := range tables {
			for _, row := range rows[struct{ Text string }](t, conn, "SELECT convert_from(convert_to(t::text, 'UTF8'), 'UTF8') FROM "+table.Name+" t") {
				list := canaries.Find("table "+table.Name, []byte(row.Text))
				found(t, list)
			}
		}
	})
	t.Run("SEC-C5 no file of the agent or the hub has one", func(t *testing.T) {
		list, err := canaries.FindInFolder(s.Agents[clusterName].StateDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		found(t, list)
		// The mirror is the repository: what people put into Git is in it.
		list, err = canaries.FindInFolder(s.Hub.Dir(), func(path string) bool { return strings.Contains(path, "mirrors") })
		if err != nil {
			t.Fatal(err)
		}
		found(t, list)
	})
	t.Run("the search finds planted canaries", func(t *testing.T) {
		o, err := s.Clusters[clusterName].Dynamic().Resource(secrets).Namespace(r.name).Get(within(t, waitLimit), "hidden", getOptions)
		if err != nil {
			t.Fatal(err)
		}
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if list := canaries.Find("the cluster", text); !slices.ContainsFunc(list, func(x canary.Leak) bool { return x.Canary == "Secret in Git" }) {
			t.Error("the Secret in the cluster does not hold its canary")
		}
	})
}
