package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// bigFiles are the files of the application of B21: a change touches one.
const bigFiles = 50

// big measures one application of many objects: B21, what it costs to deploy
// it, to change one object, to look at it and to delete it.
func (b *bench) big(ctx context.Context) error {
	repo, err := b.s.Repository(ctx, "big", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "begin", b.bundle("v0")); err != nil {
		return err
	}
	if err := b.deployBig(ctx, repo); err != nil {
		return err
	}
	if err := b.changeBig(ctx, repo); err != nil {
		return err
	}
	if err := b.readBig(ctx); err != nil {
		return err
	}
	return b.deleteBig(ctx)
}

// bundle is B21's application, spread over a few files.
func (b *bench) bundle(first string) map[string]string {
	files := map[string]string{}
	for f := range bigFiles {
		var text strings.Builder
		for i := f; i < b.parts; i += bigFiles {
			value := "v0"
			if i == 0 {
				value = first
			}
			text.WriteString("---\n" + configMap(fmt.Sprintf("part-%05d", i), value))
		}
		files[fmt.Sprintf("big/file-%02d.yaml", f)] = text.String()
	}
	return files
}

func (b *bench) deployBig(ctx context.Context, repo *gitserver.Repository) error {
	s, err := b.begin(ctx, repo)
	if err != nil {
		return err
	}
	begin := time.Now()
	if _, err := b.s.API.Apply(ctx, application("big", "big", repo.URL(), "big")); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if _, err := b.s.API.Wait(wait, "big", stack.Settled); err != nil {
		return err
	}
	took := time.Since(begin)
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	b.add("B21", fmt.Sprintf("one application of %d objects, created to Synced", b.parts), fmt.Sprintf("%.2f s", took.Seconds()), t.String())
	return nil
}

func (b *bench) changeBig(ctx context.Context, repo *gitserver.Repository) error {
	o, err := observe(ctx, b.s.Clusters["in-cluster"], configMaps)
	if err != nil {
		return err
	}
	var took []time.Duration
	var t tally
	var sent, received float64
	for i := range 5 {
		s, err := b.begin(ctx, repo)
		if err != nil {
			return err
		}
		value := fmt.Sprintf("big-%d", i)
		commit, err := repo.Commit(ctx, value, map[string]string{"big/file-00.yaml": b.bundle(value)["big/file-00.yaml"]})
		if err != nil {
			return err
		}
		pushed := time.Now()
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		at, err := o.until(wait, value, 1)
		if err == nil {
			err = b.reached(wait, "big", commit)
		}
		cancel()
		if err != nil {
			return err
		}
		took = append(took, max(0, at.Sub(pushed)))
		after, err := b.counts(ctx)
		if err != nil {
			return err
		}
		sent, received = after.wire("sent")-s.counts.wire("sent"), after.wire("received")-s.counts.wire("received")
		if t, err = s.end(ctx); err != nil {
			return err
		}
	}
	b.add("B21", fmt.Sprintf("one object of %d changed", b.parts), spread(took),
		fmt.Sprintf("%s to the agent, %s back; %s (the last)", bytesText(int64(sent)), bytesText(int64(received)), t))
	if t.renders != 1 || t.api.Others != 1 {
		return fmt.Errorf("B21 must cost 1 render and 1 request for a changed object: %s", t)
	}
	return nil
}

// wire sums what went over all lanes between hub and agents.
func (c counts) wire(direction string) float64 {
	total := 0.0
	for name, v := range c {
		if strings.HasPrefix(name, "capstan_link_"+direction+"_bytes_total") {
			total += v
		}
	}
	return total
}

// reached waits until an application is Synced at a commit.
func (b *bench) reached(ctx context.Context, name, commit string) error {
	_, err := b.s.API.Wait(ctx, name, func(a stack.App) error {
		if a.Status.Sync.Revision != commit {
			return fmt.Errorf("%s is at %.8s", name, a.Status.Sync.Revision)
		}
		return stack.Settled(a)
	})
	return err
}

// readBig asks for what the pages of the console and the CLI ask for.
func (b *bench) readBig(ctx context.Context) error {
	for what, path := range map[string]string{"open its page": "", "open its tree": "/tree", "its diff": "/diff"} {
		var took []time.Duration
		size := 0
		for range 5 {
			begin := time.Now()
			n, err := b.size(ctx, "/api/v1/applications/argocd/big"+path)
			if err != nil {
				return err
			}
			took, size = append(took, time.Since(begin)), n
		}
		b.add("B21", fmt.Sprintf("application of %d objects: %s", b.parts, what), spread(took), bytesText(int64(size))+" of JSON")
	}
	return nil
}

// size asks for a page and gives its length.
func (b *bench) size(ctx context.Context, path string) (int, error) {
	var raw rawText
	if err := b.s.API.Do(ctx, http.MethodGet, path, nil, &raw); err != nil {
		return 0, err
	}
	return len(raw), nil
}

// rawText takes JSON as it is.
type rawText []byte

// UnmarshalJSON keeps the text.
func (r *rawText) UnmarshalJSON(b []byte) error {
	*r = append((*r)[:0], b...)
	return nil
}

func (b *bench) deleteBig(ctx context.Context) error {
	s, err := b.begin(ctx, nil)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := b.s.API.Do(ctx, http.MethodDelete, "/api/v1/applications/argocd/big?cascade=true", nil, nil); err != nil {
		return err
	}
	if err := poll.Until(ctx, func(ctx context.Context) error {
		_, err := b.s.API.Get(ctx, "big")
		if err == nil {
			return fmt.Errorf("the application is still there")
		}
		if gone := (*stack.StatusError)(nil); errors.As(err, &gone) && gone.Status == http.StatusNotFound {
			return nil
		}
		return err
	}); err != nil {
		return err
	}
	took := time.Since(begin)
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	b.add("B21", fmt.Sprintf("application of %d objects deleted with its objects", b.parts), fmt.Sprintf("%.2f s", took.Seconds()), t.String())
	return nil
}

// askedApps is how many applications B12 has.
const askedApps = 10

// asked is the installation of B12: applications of one repository.
type asked struct {
	*bench
	repo *gitserver.Repository
}

// requests measures what the API server is asked: B12, for a change, for a
// look at everything anew, and while nothing happens.
func (b *bench) requests(ctx context.Context) error {
	repo, err := b.s.Repository(ctx, "asked", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	a := &asked{b, repo}
	if err := a.create(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		what   string
		expect int
		do     func(context.Context) error
	}{
		{"a commit that changes 20 of 50 objects", 20, a.changeTwenty},
		{"a commit that changes none of 50 objects", 0, a.changeNone},
		{"10 applications refreshed hard", 0, func(ctx context.Context) error { return a.each(ctx, "get", "--hard-refresh") }},
		{"10 applications synced again, nothing to do", 0, func(ctx context.Context) error { return a.each(ctx, "sync") }},
		{"nothing, for a minute", 0, func(ctx context.Context) error { return pause(ctx, time.Minute) }},
	} {
		if err := a.measure(ctx, step.what, step.expect, step.do); err != nil {
			return err
		}
	}
	return nil
}

// create makes the applications and waits until they have settled.
func (a *asked) create(ctx context.Context) error {
	files, all := map[string]string{}, ""
	for i := range askedApps {
		dir := fmt.Sprintf("asked/asked-%d", i)
		for name, text := range web(dir, "v0") {
			files[name] = text
		}
		all += application(fmt.Sprintf("asked-%d", i), dir, a.repo.URL(), "asked")
	}
	if _, err := a.repo.Commit(ctx, "begin", files); err != nil {
		return err
	}
	if _, err := a.s.API.Apply(ctx, all); err != nil {
		return err
	}
	return a.settle(ctx, "")
}

// settle waits until all applications have settled, at a commit if one is
// given.
func (a *asked) settle(ctx context.Context, commit string) error {
	wait, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i := range askedApps {
		name := fmt.Sprintf("asked-%d", i)
		if commit == "" {
			if _, err := a.s.API.Wait(wait, name, stack.Settled); err != nil {
				return err
			}
		} else if err := a.reached(wait, name, commit); err != nil {
			return err
		}
	}
	return nil
}

func (a *asked) changeTwenty(ctx context.Context) error {
	changed := map[string]string{}
	for i := range askedApps {
		for _, f := range []string{"one", "two"} {
			changed[fmt.Sprintf("asked/asked-%d/%s.yaml", i, f)] = configMap(fmt.Sprintf("%s-asked-%d", f, i), "v1")
		}
	}
	return a.push(ctx, "changed", changed)
}

func (a *asked) changeNone(ctx context.Context) error {
	changed := map[string]string{}
	for i := range askedApps {
		changed[fmt.Sprintf("asked/asked-%d/one.yaml", i)] = "# a remark\n" + configMap(fmt.Sprintf("one-asked-%d", i), "v1")
	}
	return a.push(ctx, "remark", changed)
}

// push commits files and waits until all applications are there.
func (a *asked) push(ctx context.Context, message string, files map[string]string) error {
	commit, err := a.repo.Commit(ctx, message, files)
	if err != nil {
		return err
	}
	return a.settle(ctx, commit)
}

// each runs a command of the command line for each application.
func (a *asked) each(ctx context.Context, command string, flags ...string) error {
	for i := range askedApps {
		if _, err := a.s.API.CLI(ctx, "", append([]string{"app", command, fmt.Sprintf("asked-%d", i)}, flags...)...); err != nil {
			return err
		}
	}
	return a.settle(ctx, "")
}

// measure counts the requests of one step, and fails if they are not as many
// as expected.
func (a *asked) measure(ctx context.Context, what string, expect int, do func(context.Context) error) error {
	if err := pause(ctx, 2*time.Second); err != nil { // the agent notes how far it came up to a second later
		return err
	}
	s, err := a.begin(ctx, a.repo)
	if err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	t, err := s.end(ctx)
	if err != nil {
		return err
	}
	a.add("B12", what, fmt.Sprintf("%d requests", t.api.Others), t.String())
	if t.api.Others != expect {
		return fmt.Errorf("B12 expects %d requests for %s: %s", expect, what, t)
	}
	return nil
}
