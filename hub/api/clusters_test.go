package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// What becomes of Argo CD's ways to reach a cluster (decision 0084).
func TestCredentialsOfClusters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	const canary = "c4n4ry-of-a-cluster"
	configs := map[string]map[string]any{
		"CLU-02 a user, a password, a token and certificates": {
			"username": canary, "password": canary, "bearerToken": canary, "proxyUrl": "http://" + canary + ":8080", "disableCompression": true,
			"tlsClientConfig": map[string]any{"insecure": true, "serverName": canary, "caData": canary, "certData": canary, "keyData": canary},
		},
		"CLU-02 CLU-03 a role of a cloud": {"awsAuthConfig": map[string]any{"clusterName": canary, "roleARN": canary, "profile": canary}},
		"CLU-02 CLU-03 a program that signs in": {"execProviderConfig": map[string]any{
			"command": "argocd-k8s-auth", "args": []string{"aws", "--cluster-name", canary}, "env": map[string]string{"TOKEN": canary}, "apiVersion": "client.authentication.k8s.io/v1beta1", "installHint": canary,
		}},
	}
	n := 0
	for name, config := range configs {
		n++
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Secret",
			"metadata":   map[string]any{"name": fmt.Sprint("c", n), "namespace": "argocd", "labels": map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
			"stringData": map[string]string{"name": fmt.Sprint("c", n), "server": fmt.Sprintf("https://c%d.example.com", n), "config": string(text)},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name+" are not stored: the cluster is there, and the answer names the command for its agent", func(t *testing.T) {
			a := w.call(admin, "POST", "/api/v1/apply", string(secret)).ok(200)
			if !strings.Contains(string(a.body), "not stored") || !strings.Contains(string(a.body), fmt.Sprint("capstan cluster enroll c", n)) || strings.Contains(string(a.body), canary) {
				t.Errorf("%s", a.body)
			}
			w.call(admin, "GET", fmt.Sprint("/api/v1/clusters/c", n), nil).ok(200)
		})
	}
	t.Run("CLU-02 SEC-C no row of the database and no line of the log has any of it", func(t *testing.T) {
		if strings.Contains(w.Log.String(), canary) {
			t.Error("the log has it")
		}
		c := storetest.Connect(t, w.Superuser)
		rows, err := c.Query(t.Context(), `SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_schema IN ('public', 'directory', 'work') AND table_type = 'BASE TABLE'`)
		if err != nil {
			t.Fatal(err)
		}
		var tables []string
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				t.Fatal(err)
			}
			tables = append(tables, name)
		}
		for _, table := range tables {
			var found int
			if err := c.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" r WHERE position($1 IN r::text) > 0", canary).Scan(&found); err != nil {
				t.Fatal(err)
			}
			if found > 0 {
				t.Errorf("%s has it in %d rows", table, found)
			}
		}
		if len(tables) < 30 {
			t.Errorf("only %d tables were searched", len(tables))
		}
	})
}

func TestFactsOfAClusterAreShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod", "labels": map[string]string{"argocd.argoproj.io/auto-label-cluster-info": "true"}}).ok(201)
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "test"}).ok(201)
	type cluster struct {
		ID, Name, Connection, KubeVersion, AgentVersion string
		LastSeen                                        time.Time
		Labels                                          map[string]string
	}
	get := func(name string) (c cluster) {
		w.call(admin, "GET", "/api/v1/clusters/"+name, nil).ok(200).into(&c)
		return c
	}
	t.Run("CLU-09 without an agent there is no version to show", func(t *testing.T) {
		if got := get("prod").Labels; len(got) != 1 {
			t.Errorf("labels %v", got)
		}
	})
	at := time.Now()
	for _, name := range []string{"prod", "test"} {
		err := w.DB.System().Connected(t.Context(), hub.Attachment{
			Tenant: w.Tenant("acme"), Cluster: hub.ClusterID(get(name).ID), Session: name, Replica: "r", Epoch: name, Instance: "one", Leader: true, At: at,
			KubeVersion: "v1.35.4+k3s1", AgentVersion: "v1.2.3", APIVersions: []string{"v1", "apps/v1", "apps/v1/Deployment"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Run("CLU-08 connection, versions and the last contact are shown", func(t *testing.T) {
		if c := get("prod"); c.Connection != "Connected" || c.KubeVersion != "v1.35.4+k3s1" || c.AgentVersion != "v1.2.3" || c.LastSeen.IsZero() {
			t.Errorf("%+v", c)
		}
	})
	t.Run("CLU-08 the numbers of applications, of their objects and of served APIs are shown, in lists too", func(t *testing.T) {
		for _, name := range []string{"web", "api"} {
			w.call(admin, "POST", "/api/v1/applications", application(name, func(s map[string]any) { s["destination"] = map[string]any{"name": "prod", "namespace": name} })).ok(201)
		}
		w.call(admin, "POST", "/api/v1/applications", application("other", func(s map[string]any) { s["destination"] = map[string]any{"name": "test", "namespace": "x"} })).ok(201)
		storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
			var changes []hub.TargetChange
			for i, name := range []string{"web", "api"} {
				a, err := tx.Application(ctx, "argocd", name)
				if err != nil {
					return err
				}
				s := hub.Snapshot{ID: hub.NewID[hub.SnapshotID](), Tenant: a.Tenant, Application: a.ID, Revision: "r", CreatedAt: at}
				if err := tx.PutSnapshots(ctx, []hub.Snapshot{s}); err != nil {
					return err
				}
				changes = append(changes, hub.TargetChange{Application: a.ID, Target: s.ID, Revision: "r", Generation: a.Generation, Refreshed: true, Resources: 3 + i})
			}
			return tx.SetTargets(ctx, changes)
		})
		type counts struct {
			Name   string
			Counts struct{ Applications, Objects, APIs int }
		}
		var one counts
		w.call(admin, "GET", "/api/v1/clusters/prod", nil).ok(200).into(&one)
		if one.Counts.Applications != 2 || one.Counts.Objects != 7 || one.Counts.APIs != 3 {
			t.Errorf("%+v", one)
		}
		var all struct{ Items []counts }
		w.call(admin, "GET", "/api/v1/clusters", nil).ok(200).into(&all)
		if len(all.Items) != 2 || all.Items[0] != one || all.Items[1].Counts.Applications != 1 || all.Items[1].Counts.Objects != 0 {
			t.Errorf("%+v", all)
		}
		w.call(w.Admin("other"), "GET", "/api/v1/clusters", nil).ok(200).into(&all)
		if len(all.Items) != 0 {
			t.Errorf("ISO-5 another tenant sees %+v", all)
		}
	})
	t.Run("CLU-09 a cluster whose label asks for it has its version as a label, and no other one", func(t *testing.T) {
		if got := get("prod").Labels["argocd.argoproj.io/kubernetes-version"]; got != "v1.35.4" {
			t.Errorf("the label is %q", got)
		}
		if got := get("test").Labels; len(got) != 0 {
			t.Errorf("labels %v", got)
		}
	})
}
