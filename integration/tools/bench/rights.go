package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"

	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/shared/glob"
	"github.com/capstan-cd/capstan/shared/rbac"
)

const (
	rightApps     = 10_000
	rightProjects = 100
)

// rightObject is the application i as policies call it.
func rightObject(i int) string { return fmt.Sprintf("p-%d/app-%d", i%rightProjects, i) }

// policyOf makes n lines, all of roles that ann has: about applications one by
// one, about names that begin alike, and about whole projects; some deny.
func policyOf(n int) string {
	var b strings.Builder
	for i := range n {
		role := fmt.Sprintf("role:team-%d", i%100)
		switch {
		case i%50 == 0:
			fmt.Fprintf(&b, "p, %s, applications, get, p-%d/app-%d*, deny\n", role, i%7, 1000+i%9000)
		case i%10 == 1:
			fmt.Fprintf(&b, "p, %s, applications, sync, p-%d/*, allow\n", role, i%rightProjects)
		case i%10 == 2:
			fmt.Fprintf(&b, "p, %s, applications, get, p-%d/app-%d*, allow\n", role, i%rightProjects, i%1000)
		default:
			fmt.Fprintf(&b, "p, %s, applications, get, %s, allow\n", role, rightObject(i))
		}
	}
	for i := range 100 {
		fmt.Fprintf(&b, "g, devs, role:team-%d\n", i)
	}
	b.WriteString("g, ann, devs\n")
	return b.String()
}

// rights runs the benchmarks of access policies.
func (b *bench) rights(ctx context.Context, bin, dir string) error {
	if b.wants("B20") {
		if err := b.authorisation(); err != nil {
			return fmt.Errorf("B20: %w", err)
		}
	}
	if b.wants("B18") {
		if err := b.lists(ctx, bin, dir); err != nil {
			return fmt.Errorf("B18: %w", err)
		}
	}
	return nil
}

// authorisation measures decisions: B20. It needs no installation.
func (b *bench) authorisation() error {
	check := &measure{what: "policy lines → one check", most: 0.1, format: "%.0f ns"}
	for _, n := range []int{100, 1000, 10_000, 100_000} {
		text := policyOf(n)
		begin := time.Now()
		rights := access.Compile("tenant", access.Policy{Values: map[string]string{rbac.PolicyKey: text}})
		ix := rights.For(access.Subject{User: "ann"})
		ix.Check(access.Applications, access.Get, rightObject(0))
		changed := time.Since(begin)
		if problems := rights.Problems(); len(problems) > 0 {
			return problems[0]
		}
		objects := make([]string, rightApps)
		for i := range objects {
			objects[i] = rightObject(i)
		}
		filter, visible := time.Duration(math.MaxInt64), 0
		for range 20 {
			begin, visible = time.Now(), 0
			for _, o := range objects {
				if ix.Check(access.Applications, access.Get, o) {
					visible++
				}
			}
			filter = min(filter, time.Since(begin))
		}
		one := filter / rightApps
		check.add(float64(n), float64(one.Nanoseconds()))
		counts := fmt.Sprintf("change to effective %s; sees %d", changed.Round(100*time.Microsecond), visible)
		if n <= 10_000 {
			reference, err := casbinCheck(text, objects)
			if err != nil {
				return err
			}
			counts += fmt.Sprintf("; casbin %s per check, ×%.0f", reference.Round(time.Microsecond), float64(reference)/float64(max(one, 1)))
		}
		b.add("B20", fmt.Sprintf("%d policy lines of one subject, %d applications", n, rightApps), fmt.Sprintf("check %d ns, filter %s", one.Nanoseconds(), filter.Round(time.Microsecond)), counts)
	}
	b.show(check)
	return nil
}

// casbinCheck measures casbin with a model of Argo CD's shape.
func casbinCheck(text string, objects []string) (time.Duration, error) {
	m, err := model.NewModelFromString("[request_definition]\nr = sub, res, act, obj\n[policy_definition]\np = sub, res, act, obj, eft\n[role_definition]\ng = _, _\n" +
		"[policy_effect]\ne = some(where (p.eft == allow)) && !some(where (p.eft == deny))\n" +
		"[matchers]\nm = g(r.sub, p.sub) && glob(r.res, p.res) && glob(r.act, p.act) && glob(r.obj, p.obj)\n")
	if err != nil {
		return 0, err
	}
	e, err := casbin.NewEnforcer(m)
	if err != nil {
		return 0, err
	}
	e.AddFunction("glob", func(args ...any) (any, error) {
		value, _ := args[0].(string)
		pattern, _ := args[1].(string)
		return glob.Match(pattern, value), nil
	})
	rules, bindings, _ := rbac.Parse(rbac.PolicyKey, text, false)
	var lines, links [][]string
	for _, r := range rules {
		lines = append(lines, []string{r.Subject, r.Resource, r.Action, r.Object, r.Effect()})
	}
	for _, g := range bindings {
		links = append(links, []string{g.Subject, g.Role})
	}
	if _, err := e.AddPoliciesEx(lines); err != nil {
		return 0, err
	}
	if _, err := e.AddGroupingPoliciesEx(links); err != nil {
		return 0, err
	}
	const asked = 20
	begin := time.Now()
	for i := range asked {
		if _, err := e.Enforce("ann", access.Applications, access.Get, objects[i*len(objects)/asked]); err != nil {
			return 0, err
		}
	}
	return time.Since(begin) / asked, nil
}

const (
	listUsers    = 50
	listRequests = 60 // of each
)

// lists measures pages of a list of 10,000 applications with 10,000 policy
// lines: B18. Each user sees a part of them.
func (b *bench) lists(ctx context.Context, bin, dir string) (err error) {
	s, err := stack.Start(ctx, stack.Options{
		Bin: bin, Dir: filepath.Join(dir, "lists"), Durable: true, Postgres: b.explained(),
		// The users ask without a pause, which the limit of a tenant would end on a fast machine.
		Settings: b.profiledWith(map[string]any{"limits": map[string]any{"requestsPerSecond": 100_000, "burst": 100_000}}),
		Say:      func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if err := fillLists(ctx, s); err != nil {
		return err
	}
	tokens, err := listTokens(ctx, s)
	if err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	null, err := startNullList(ctx, s)
	if err != nil {
		return err
	}
	defer null.stop()
	x := profiler{b.profiles, s}
	const page, facets = "/api/v1/applications?limit=50&view=row", "&facets=health,sync,project,cluster,namespace"
	for _, query := range []struct {
		what, path string
		every      time.Duration
	}{
		{"a page of 50 with numbers of five fields, twice a second for each", page + facets, time.Second / 2},
		{"a page of 50 with numbers of five fields", page + facets, 0},
		{"a page of 50", page, 0},
		{"50 of those with a 7 in the name", page + "&query=7", 0},
		{"50 by health, the worst first", page + "&sort=-health", 0},
	} {
		if err := x.statements(ctx, "lists-before"); err != nil {
			return err
		}
		profiled := x.busyProfile(ctx, "lists")
		before := process.CPUSeconds(s.Hub.PID())
		took, size, err := listPages(ctx, s.API.URL+query.path, tokens, query.every)
		if err != nil {
			return err
		}
		cpu := 1000 * (process.CPUSeconds(s.Hub.PID()) - before) / float64(len(took))
		if err := errors.Join(profiled(), x.statements(ctx, "lists")); err != nil {
			return err
		}
		floor, nullSize, err := listPages(ctx, null.address, tokens, query.every)
		if err != nil {
			return err
		}
		b.add("B18", fmt.Sprintf("%s of %d applications, %d policy lines, %d users", query.what, rightApps, rightApps, listUsers),
			quantiles(took),
			fmt.Sprintf("%d bytes; %.2f ms CPU of the hub each; %d requests; null system %s, %d bytes", size, cpu, len(took), quantiles(floor), nullSize))
	}
	if err := b.listInBrowser(ctx, s, dir); err != nil {
		return err
	}
	return b.policyChange(ctx, s, tokens[0])
}

// fillLists makes projects, applications and a policy.
func fillLists(ctx context.Context, s *stack.Stack) error {
	var all strings.Builder
	for i := range rightProjects {
		fmt.Fprintf(&all, "---\napiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: p-%d}\nspec: {sourceRepos: ['*'], destinations: [{name: '*', namespace: '*'}]}\n", i)
	}
	if _, err := s.API.Apply(ctx, all.String()); err != nil {
		return err
	}
	all.Reset()
	for i := range rightApps {
		fmt.Fprintf(&all, "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: app-%d, namespace: argocd}\nspec:\n  project: p-%d\n"+
			"  source: {repoURL: 'https://git.invalid/a.git', path: x}\n  destination: {name: none, namespace: shop}\n", i, i%rightProjects)
		if (i+1)%1000 != 0 {
			continue
		}
		if _, err := s.API.Apply(ctx, all.String()); err != nil {
			return err
		}
		all.Reset()
	}
	values := map[string]any{rbac.PolicyKey: policyOf(rightApps) + userBindings()}
	return s.API.Do(ctx, http.MethodPatch, "/api/v1/settings", map[string]any{"values": map[string]any{rbac.Map: values}}, nil)
}

// userBindings gives each user ten of the roles.
func userBindings() string {
	var b strings.Builder
	for u := range listUsers {
		for r := range 10 {
			fmt.Fprintf(&b, "g, user-%d, role:team-%d\n", u, (u*2+r*10)%100)
		}
	}
	return b.String()
}

// listTokens makes the users and signs them in.
func listTokens(ctx context.Context, s *stack.Stack) ([]string, error) {
	tokens := make([]string, listUsers)
	const password = "a-long-enough-password"
	for u := range tokens {
		name := fmt.Sprintf("user-%d", u)
		if err := s.API.Do(ctx, http.MethodPost, "/api/v1/users", map[string]any{"name": name, "password": password}, nil); err != nil {
			return nil, err
		}
		for tokens[u] == "" {
			var in struct{ Token string }
			err := s.API.Do(ctx, http.MethodPost, "/api/v1/login", map[string]any{"username": name, "password": password, "mode": "token"}, &in)
			if err != nil && !strings.Contains(err.Error(), "too many") {
				return nil, err
			}
			if tokens[u] = in.Token; in.Token == "" {
				if err := pause(ctx, time.Second); err != nil { // sign-ins of one address are limited
					return nil, err
				}
			}
		}
	}
	return tokens, nil
}

// listPages reads a page by all users at once, again and again: as fast as they
// are answered, or each of them once in an interval.
func listPages(ctx context.Context, url string, tokens []string, every time.Duration) (took []time.Duration, size int, err error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(tokens), DisableCompression: true}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for u, token := range tokens {
		wg.Go(func() {
			begin := time.Now().Add(every * time.Duration(u) / time.Duration(len(tokens)))
			for n := range listRequests + 1 {
				if every > 0 && pause(ctx, time.Until(begin.Add(time.Duration(n)*every))) != nil {
					return
				}
				d, bytes, failed := getPage(ctx, client, url, token)
				mu.Lock()
				if n > 0 { // the first one of each opens its connection
					took = append(took, d)
				}
				size, err = max(size, bytes), cmp.Or(err, failed)
				mu.Unlock()
				if failed != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return took, size, err
}

// getPage reads one page as browsers do, and returns its length on the wire.
func getPage(ctx context.Context, client *http.Client, url, token string) (time.Duration, int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept-Encoding", "gzip")
	begin := time.Now()
	resp, err := client.Do(r)
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", url, resp.StatusCode, bytes.TrimSpace(text))
	}
	return time.Since(begin), len(text), err
}

// policyChange measures how long a change of a policy takes to have effect.
func (b *bench) policyChange(ctx context.Context, s *stack.Stack, token string) error {
	user := &stack.API{URL: s.API.URL, Token: token}
	can := func() (bool, error) {
		var out struct{ Value string }
		err := user.Do(ctx, http.MethodGet, "/api/v1/account/can-i/clusters/create/bench", nil, &out)
		return out.Value == "yes", err
	}
	var took []time.Duration
	for n := range 10 {
		values := map[string]any{"policy.bench.csv": map[bool]any{true: "p, user-0, clusters, create, bench, allow\n"}[n%2 == 0]}
		begin := time.Now()
		if err := s.API.Do(ctx, http.MethodPatch, "/api/v1/settings", map[string]any{"values": map[string]any{rbac.Map: values}}, nil); err != nil {
			return err
		}
		for {
			now, err := can()
			if err != nil {
				return err
			}
			if now == (n%2 == 0) {
				break
			}
		}
		took = append(took, time.Since(begin))
	}
	b.add("B20", fmt.Sprintf("a change of %d policy lines, request to effect", rightApps), spread(took), "")
	return nil
}
