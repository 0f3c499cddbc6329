package replicas_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// load is clients that never cease. Each request that is answered with 5xx,
// or not at all, is a failure. They repeat nothing themselves; what Go's
// client repeats, because a connection ended before an answer began, HTTP
// allows.
type load struct {
	t        *testing.T
	client   *http.Client
	requests atomic.Int64
	streams  atomic.Int64 // that ended, as it should be when a replica stops

	mu       sync.Mutex
	failures []string
	made     map[string]bool // applications that were acknowledged
	ops      map[string]bool // operations that were acknowledged
}

func (l *load) call(ctx context.Context, method, path, key, kind, body string) (int, []byte) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		l.fail(err.Error())
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer "+s.API.Token)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	l.requests.Add(1)
	res, err := l.client.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			l.fail(fmt.Sprintf("%s %s: %v", method, path, err))
		}
		return 0, nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if (err != nil || res.StatusCode >= 500) && ctx.Err() == nil {
		l.fail(fmt.Sprintf("%s %s: %d %s %v", method, path, res.StatusCode, answer, err))
	}
	return res.StatusCode, answer
}

// follow listens to changes, and goes on where a stream has ended in order.
func (l *load) follow(ctx context.Context) {
	last := ""
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/api/v1/stream", nil)
		if err != nil {
			l.fail(err.Error())
			return
		}
		req.Header.Set("Authorization", "Bearer "+s.API.Token)
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			if ctx.Err() == nil {
				l.fail("stream: " + err.Error())
			}
			continue
		}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				last = id
			}
			if strings.HasPrefix(lines.Text(), "event: reset") {
				l.fail("a stream lost its place")
			}
		}
		if ctx.Err() == nil {
			l.streams.Add(1)
			if res.StatusCode != http.StatusOK || lines.Err() != nil {
				l.fail(fmt.Sprintf("stream: status %d, %v", res.StatusCode, lines.Err()))
			}
		}
		_ = res.Body.Close()
	}
}

// goes waits until that many more requests were made, however slow the
// machine is, and applications and operations were acknowledged.
func (l *load) goes(t *testing.T, more int64) {
	t.Helper()
	want := l.requests.Load() + more
	err := poll.Until(within(t, 3*time.Minute), func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := l.requests.Load(); n < want || len(l.made) == 0 || len(l.ops) == 0 {
			return fmt.Errorf("%d requests, %d applications, %d operations", n, len(l.made), len(l.ops))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (l *load) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, time.Now().Format("15:04:05.000 ")+text)
}

// every does something until ctx ends, with pauses that load two cores but
// leave them some air.
func every(ctx context.Context, wait *sync.WaitGroup, pause time.Duration, do func(n int)) {
	wait.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
				do(n)
			}
		}
	})
}

const rollingApps = 6

func TestRollingRestart(t *testing.T) {
	repos := []*gitserver.Repository{}
	var all strings.Builder
	for i := range rollingApps {
		name := fmt.Sprintf("roll-%d", i)
		if i%2 == 0 {
			repos = append(repos, repository(t, name, map[string]string{"app/a.yaml": configMap("a", "0")}))
		}
		all.WriteString(manifest(name, repos[i/2].URL(), "app"))
	}
	if _, err := s.API.Apply(within(t, time.Minute), all.String()); err != nil {
		t.Fatal(err)
	}
	for i := range rollingApps {
		settled(t, fmt.Sprintf("roll-%d", i))
	}
	l := &load{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}, Timeout: 30 * time.Second}, made: map[string]bool{}, ops: map[string]bool{}}
	ctx, stop := context.WithCancel(within(t, 10*time.Minute))
	var wait sync.WaitGroup
	l.start(ctx, &wait, repos)
	gap := watchAgent(ctx, &wait, l)

	var slowest time.Duration
	for i, h := range s.Hubs {
		l.goes(t, 50)
		begin := time.Now()
		if err := h.Stop(); err != nil {
			t.Fatal(err)
		}
		took := time.Since(begin)
		slowest = max(slowest, took)
		if err := h.Start(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		restarted(t, h)
		t.Logf("measured: replica %d stopped in %.1f s", i, took.Seconds())
	}
	l.goes(t, 50)
	stop()
	wait.Wait()
	last := make([]string, len(repos))
	for i, r := range repos {
		rev, err := r.Commit(t.Context(), "last", map[string]string{"app/a.yaml": configMap("a", "last")})
		if err != nil {
			t.Fatal(err)
		}
		last[i] = rev
	}

	t.Run("FT-H6 no request fails while all replicas are restarted, one after the other", func(t *testing.T) {
		t.Logf("measured: %d requests, %d failed; the agent was not connected for at most %.1f s", l.requests.Load(), len(l.failures), time.Duration(gap.Load()).Seconds())
		for _, f := range l.failures {
			t.Error(f)
		}
		if n := l.streams.Load(); n == 0 {
			t.Error("no stream was ended by a replica that stops")
		}
		if l.requests.Load() < 100 {
			t.Errorf("only %d requests: that is no load", l.requests.Load())
		}
	})
	t.Run("FT-H6 agents are back within 10 s", func(t *testing.T) {
		if away := time.Duration(gap.Load()); away > 10*time.Second {
			t.Errorf("the agent was not connected for %s", away)
		}
	})
	t.Run("FT-H2 a hub that gets SIGTERM has ended within 30 s", func(t *testing.T) {
		if slowest > 30*time.Second {
			t.Errorf("it took %s", slowest)
		}
	})
	t.Run("INV-1 what was acknowledged is stored, and every operation ends", func(t *testing.T) {
		for i := range rollingApps {
			at(t, fmt.Sprintf("roll-%d", i), last[i/2])
		}
		for name := range l.made {
			if _, err := s.API.Get(within(t, time.Minute), name); err != nil {
				t.Errorf("application %s was acknowledged: %v", name, err)
			}
		}
		if len(l.made) == 0 || len(l.ops) == 0 {
			t.Errorf("%d applications and %d operations were acknowledged: that is no load", len(l.made), len(l.ops))
		}
		for id := range l.ops {
			if n := queryOne[int](t, `SELECT count(*) FROM operation WHERE id = $1 AND finished_at IS NOT NULL`, id); n != 1 {
				t.Errorf("operation %s was acknowledged and has not ended", id)
			}
		}
	})
	t.Run("INV-4 nothing was accepted twice", func(t *testing.T) {
		// Automation begins one operation for a snapshot; attempts count up.
		twice := queryOne[int](t, `SELECT count(*) FROM (SELECT FROM operation WHERE (initiator ->> 'automated')::boolean
			GROUP BY application_id, snapshot_id, attempt, kind HAVING count(*) > 1) x`)
		if twice != 0 {
			t.Errorf("%d snapshots were accepted more than once", twice)
		}
		if n := queryOne[int](t, `SELECT count(*) FROM (SELECT FROM history GROUP BY application_id, operation_id HAVING count(*) > 1) x`); n != 0 {
			t.Errorf("%d operations are in the history more than once", n)
		}
		// Operations of one application never overlap.
		overlap := queryOne[int](t, `SELECT count(*) FROM operation a JOIN operation b
			ON a.tenant_id = b.tenant_id AND a.application_id = b.application_id AND a.id <> b.id
			WHERE a.created_at < b.created_at AND a.finished_at IS NOT NULL AND b.started_at IS NOT NULL AND b.started_at < a.finished_at AND a.started_at IS NOT NULL`)
		if overlap != 0 {
			t.Errorf("%d pairs of operations of one application ran at the same time", overlap)
		}
	})
	t.Run("work was shared out", func(t *testing.T) {
		t.Logf("measured: operations %d, history %d", queryOne[int](t, `SELECT count(*) FROM operation`), queryOne[int](t, `SELECT count(*) FROM history`))
	})
}

// start sets readers, writers and pushers to work.
func (l *load) start(ctx context.Context, wait *sync.WaitGroup, repos []*gitserver.Repository) {
	for range 3 {
		every(ctx, wait, 20*time.Millisecond, func(n int) {
			l.call(ctx, http.MethodGet, "/api/v1/applications?limit=50", "", "", "")
			l.call(ctx, http.MethodGet, "/api/v1/applications/argocd/roll-"+strconv.Itoa(n%rollingApps), "", "", "")
		})
	}
	for range 3 {
		wait.Go(func() { l.follow(ctx) })
	}
	every(ctx, wait, 50*time.Millisecond, func(int) {
		l.call(ctx, http.MethodGet, "/api/v1/applications/argocd/roll-0/resource?version=v1&kind=ConfigMap&resourceNamespace=roll-0&resourceName=a", "", "", "")
	})
	every(ctx, wait, 150*time.Millisecond, func(n int) {
		name := fmt.Sprintf("made-%d", n)
		status, body := l.call(ctx, http.MethodPost, "/api/v1/apply", name, "application/yaml", manifest(name, repos[0].URL(), "app"))
		if status == http.StatusOK && !strings.Contains(string(body), `"error"`) {
			l.mu.Lock()
			l.made[name] = true
			l.mu.Unlock()
		}
	})
	every(ctx, wait, 150*time.Millisecond, func(n int) {
		status, body := l.call(ctx, http.MethodPost, "/api/v1/applications/argocd/roll-"+strconv.Itoa(n%rollingApps)+"/sync", fmt.Sprintf("sync-%d", n), "application/json", `{}`)
		var op struct {
			ID string `json:"id"`
		}
		if status == http.StatusAccepted && json.Unmarshal(body, &op) == nil && op.ID != "" {
			l.mu.Lock()
			l.ops[op.ID] = true
			l.mu.Unlock()
		}
	})
	for i, r := range repos {
		every(ctx, wait, 500*time.Millisecond, func(n int) {
			// A push that has begun comes to its end: git that is killed leaves its locks behind.
			if _, err := r.Commit(context.WithoutCancel(ctx), "push", map[string]string{"app/a.yaml": configMap("a", strconv.Itoa(n+1))}); err != nil && ctx.Err() == nil {
				l.fail(fmt.Sprintf("push to repository %d: %v", i, err))
			}
		})
	}
}

// watchAgent measures the longest time in nanoseconds that the agent was not
// connected.
func watchAgent(ctx context.Context, wait *sync.WaitGroup, l *load) *atomic.Int64 {
	var longest atomic.Int64
	var since time.Time
	every(ctx, wait, 100*time.Millisecond, func(int) {
		status, body := l.call(ctx, http.MethodGet, "/api/v1/clusters/in-cluster", "", "", "")
		if status != http.StatusOK {
			return
		}
		if strings.Contains(string(body), `"connection":"Connected"`) {
			since = time.Time{}
			return
		}
		if since.IsZero() {
			since = time.Now()
		}
		longest.Store(max(longest.Load(), int64(time.Since(since))))
	})
	return &longest
}
