package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/simagent"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// What the loud tenant does.
const (
	loudAgents  = 20
	loudApps    = 1000 // that one commit changes, each in a folder of its own
	loudCharts  = 200  // that another commit has rendered anew, each with other values
	loudChanges = 2000 // of live objects, a second
	loudPause   = 5 * time.Second
	quietPart   = 3 // times the rounds of B01, so that the slowest few mean something
)

// noisy measures B25: what one tenant does while another makes a commit of
// 1,000 applications, has 200 heavy charts rendered and reports 2,000 changes a
// second, over and over.
func (b *bench) noisy(ctx context.Context) error {
	repo, err := b.onlyApplication(ctx, "neighbour")
	if err != nil {
		return err
	}
	o, err := observe(ctx, b.s.Clusters["in-cluster"], configMaps)
	if err != nil {
		return err
	}
	n, err := b.newNeighbour(ctx)
	if err != nil {
		return fmt.Errorf("make the loud tenant: %w", err)
	}
	defer n.fleet.Stop()
	quiet, err := b.series(ctx, repo, o, "quiet")
	if err != nil {
		return err
	}
	noise, end := context.WithCancel(ctx)
	var loud sync.WaitGroup
	failed := make(chan error, 2)
	loud.Go(func() { failed <- n.commit(noise) })
	loud.Go(func() { failed <- n.report(noise) })
	began := time.Now()
	before, err := b.counts(ctx)
	if err == nil {
		err = n.first(ctx)
	}
	var beside []time.Duration
	if err == nil {
		beside, err = b.series(ctx, repo, o, "loud")
	}
	after, counted := b.counts(ctx)
	lasted := time.Since(began).Seconds()
	end()
	loud.Wait()
	if err := errors.Join(err, counted, <-failed, <-failed); err != nil {
		return err
	}
	ratio := float64(slowest(beside)) / float64(slowest(quiet))
	b.add("B25", fmt.Sprintf("push to applied beside a loud tenant, %d pushes each", len(quiet)),
		fmt.Sprintf("p99 %s ms quiet, %s ms loud: %.2f times", ms(slowest(quiet)), ms(slowest(beside)), ratio),
		fmt.Sprintf("quiet: %s; loud: %s; meanwhile %d commits to 1,000 applications and to 200 charts, %.1f renders/s, %.0f changes/s",
			spread(quiet), spread(beside), n.commits.Load(), (after["capstan_renders_total"]-before["capstan_renders_total"])/lasted, float64(n.changes.Load())/lasted))
	return nil
}

// slowest is the 99th percentile.
func slowest(d []time.Duration) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[len(s)*99/100]
}

func (b *bench) series(ctx context.Context, repo *gitserver.Repository, o *observer, what string) ([]time.Duration, error) {
	var took []time.Duration
	for i := range quietPart * b.rounds {
		d, err := b.push(ctx, repo, o, "neighbour", fmt.Sprintf("%s-%d", what, i))
		if err != nil {
			return nil, fmt.Errorf("push %d, %s: %w", i, what, err)
		}
		took = append(took, d)
	}
	return took, nil
}

// A neighbour is the loud tenant.
type neighbour struct {
	api          *stack.API
	fleet        *simagent.Fleet
	apps, charts *gitserver.Repository
	ids          []string // of both, as the hub calls them

	commits, changes atomic.Int64
}

func (b *bench) newNeighbour(ctx context.Context) (*neighbour, error) {
	out, err := b.s.API.CLI(ctx, "", "tenant", "create", "loud", "-o", "json")
	if err != nil {
		return nil, err
	}
	var made struct {
		SetupToken string `json:"setupToken"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		return nil, err
	}
	n := &neighbour{}
	if n.api, err = b.s.SecondAdmin(ctx, filepath.Join(b.s.ConfigDir(), "loud"), made.SetupToken); err != nil {
		return nil, err
	}
	n.fleet = simagent.NewFleet(ctx, n.api)
	if err := n.fleet.Grow(ctx, loudAgents); err != nil {
		return nil, err
	}
	if n.apps, err = b.s.Repository(ctx, "loud-apps", gitserver.RepositoryOptions{}); err != nil {
		return nil, err
	}
	if n.charts, err = b.s.Repository(ctx, "loud-charts", gitserver.RepositoryOptions{}); err != nil {
		return nil, err
	}
	if err := n.write(ctx, "begin"); err != nil {
		return nil, err
	}
	if err := n.create(ctx); err != nil {
		return nil, err
	}
	var l struct{ Items []struct{ ID string } }
	if err := n.api.Do(ctx, http.MethodGet, "/api/v1/repositories", nil, &l); err != nil {
		return nil, err
	}
	for _, r := range l.Items {
		n.ids = append(n.ids, r.ID)
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return n, n.settled(wait)
}

// create makes all applications of the tenant.
func (n *neighbour) create(ctx context.Context) error {
	var all []string
	for i := range loudApps + loudCharts {
		name, dir, url := fmt.Sprintf("app-%04d", i), fmt.Sprintf("apps/%04d", i), n.apps.URL()
		if i >= loudApps {
			name, dir, url = fmt.Sprintf("chart-%04d", i), "chart", n.charts.URL()
		}
		text := strings.Replace(application(name, dir, url, "loud"), "name: in-cluster", "name: "+n.fleet.Agents[i%loudAgents].Name, 1)
		if i >= loudApps {
			text = strings.Replace(text, "    path: chart\n", fmt.Sprintf("    path: chart\n    helm: {parameters: [{name: owner, value: o%d}]}\n", i), 1)
		}
		all = append(all, text)
	}
	for chunk := range slices.Chunk(all, 200) {
		if _, err := n.api.Apply(ctx, strings.Join(chunk, "")); err != nil {
			return err
		}
	}
	return nil
}

// write makes a commit that changes every application of the tenant.
func (n *neighbour) write(ctx context.Context, value string) error {
	files := map[string]string{}
	for i := range loudApps {
		files[fmt.Sprintf("apps/%04d/one.yaml", i)] = configMap("one", value)
	}
	_, err := n.apps.Commit(ctx, value, files)
	if err != nil {
		return err
	}
	_, err = n.charts.Commit(ctx, value, map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: heavy\nversion: 1.0.0\n", "chart/values.yaml": "owner: nobody\nversion: " + value + "\n",
		"chart/templates/_helpers.tpl": heavyHelpers, "chart/templates/all.yaml": heavyTemplate,
	})
	return err
}

// heavyHelpers and heavyTemplate are a chart that is about as much work as the
// large ones that people use: 200 objects of several KiB, through templates that
// call others.
const (
	heavyHelpers = `{{- define "heavy.name" -}}{{ printf "%s-%s-%d" .root.Release.Name .root.Chart.Name .i | trunc 60 | trimSuffix "-" }}{{- end }}
{{- define "heavy.labels" -}}
app.kubernetes.io/name: {{ include "heavy.name" . }}
app.kubernetes.io/version: {{ .root.Values.version | quote }}
checksum: {{ include "heavy.text" . | sha256sum | trunc 40 }}
{{- end }}
{{- define "heavy.text" -}}{{ range $j := until 20 }}{{ printf "line %d of %s for %s" $j (include "heavy.name" $) $.root.Values.owner | b64enc }}
{{ end }}{{- end }}
`
	heavyTemplate = `{{- range $i := until 200 }}
{{- $ctx := dict "root" $ "i" $i }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "heavy.name" $ctx }}
  labels: {{- include "heavy.labels" $ctx | nindent 4 }}
data:
  text: |- {{- include "heavy.text" $ctx | nindent 4 }}
  settings.yaml: |- {{- dict "version" $.Values.version "owner" $.Values.owner "list" (until 40) | toYaml | nindent 4 }}
{{- end }}
`
)

// settled waits until all applications are Synced.
func (n *neighbour) settled(ctx context.Context) error {
	for {
		var l struct {
			Summary struct{ Total int }
			Items   []json.RawMessage
		}
		if err := n.api.Do(ctx, http.MethodGet, "/api/v1/applications?sync=OutOfSync&sync=Unknown&limit=1", nil, &l); err != nil {
			return err
		}
		if len(l.Items) == 0 {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return fmt.Errorf("the applications of the loud tenant are not Synced: %w", err)
		}
	}
}

// commit changes everything, over and over, until ctx ends.
func (n *neighbour) commit(ctx context.Context) error {
	for i := 0; ctx.Err() == nil; i++ {
		err := n.write(ctx, fmt.Sprintf("v%d", i))
		for _, id := range n.ids {
			if err == nil {
				err = n.api.Do(ctx, http.MethodPost, "/api/v1/repositories/"+id+"/refresh", nil, nil)
			}
		}
		if err != nil {
			return orEnded(ctx, err)
		}
		n.commits.Add(1)
		_ = pause(ctx, loudPause)
	}
	return nil
}

// report changes live objects until ctx ends.
func (n *neighbour) report(ctx context.Context) error {
	const parts = 10
	for i := 0; ctx.Err() == nil; i++ {
		for _, a := range n.fleet.Agents[i%parts*loudAgents/parts : (i%parts+1)*loudAgents/parts] {
			a.Change(loudChanges/loudAgents, restarted(i))
			n.changes.Add(loudChanges / loudAgents)
		}
		_ = pause(ctx, time.Second/parts)
	}
	return n.fleet.Err()
}

// first waits for the first commit of the loud tenant.
func (n *neighbour) first(ctx context.Context) error {
	for n.commits.Load() == 0 {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func orEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
