package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// live says what can be done now, and then prints each change until ctx ends.
func (d *demo) live(ctx context.Context, took time.Duration, cause string) error {
	if err := d.invite(ctx, took, cause); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := d.follow(ctx); err != nil && ctx.Err() == nil {
			say("the stream broke (%v); following again", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

// invite prints where everything is and what to try.
func (d *demo) invite(ctx context.Context, took time.Duration, cause string) error {
	link, err := d.s.SetupLink(ctx)
	if err != nil {
		return err
	}
	env, err := d.writeEnvironment()
	if err != nil {
		return err
	}
	say("\nEverything runs, after %.1f s in all. A push to Git reached the cluster in %d ms.", time.Since(d.options.begun).Seconds(), took.Milliseconds())
	say("\n  console     %s", d.s.URL())
	say("              sign in as admin with the password %s", d.s.Password())
	say("              (or make an account of your own, once: %s)", link)
	say("  repository  %s", d.repo.URL())
	say("  clusters    %s; kubectl finds the first by KUBECONFIG=%s", strings.Join(d.options.clusters, ", "), d.s.Clusters[d.options.clusters[0]].Kubeconfig())
	say("  logs        %s", d.dir)
	say("\nThe application orders is broken on purpose. %s", cause)
	say("\nWhat to try next, in another terminal:\n")
	for _, line := range d.commands(env) {
		say("  %s", line)
	}
	say("\nCtrl-C ends everything. What happens:\n")
	return nil
}

// commands are three lines to paste into a shell, one after the other: look at
// everything, find out why orders is broken, mend it in Git.
func (d *demo) commands(env string) []string {
	clone := filepath.Join(d.dir, "sample")
	return []string{
		fmt.Sprintf(". %s && capstan app list", env),
		"capstan app get orders",
		fmt.Sprintf("git clone -q %s %s && cd %s && sed -i 's#%s#%s#' orders/deployment.yaml && git commit -qam 'Mend orders' && git push -q && capstan app wait orders",
			d.repo.URL(), clone, clone, brokenImage, goodImage),
	}
}

// writeEnvironment writes what a shell needs to speak with this installation.
func (d *demo) writeEnvironment() (string, error) {
	path := filepath.Join(d.dir, "env")
	text := fmt.Sprintf(`export PATH=%q:"$PATH" XDG_CONFIG_HOME=%q KUBECONFIG=%q
export GIT_AUTHOR_NAME=demo GIT_AUTHOR_EMAIL=demo@localhost GIT_COMMITTER_NAME=demo GIT_COMMITTER_EMAIL=demo@localhost
`, d.options.bin, d.s.ConfigDir(), d.s.Clusters[d.options.clusters[0]].Kubeconfig())
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// follow prints the state of the applications after each event of the hub.
func (d *demo) follow(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.s.API.URL+"/api/v1/stream", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+d.s.API.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	last := map[string]string{}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "data:") {
			continue
		}
		for _, a := range d.apps {
			x, err := d.s.API.Get(ctx, a.name)
			if err != nil {
				continue
			}
			now := fmt.Sprintf("%-10s %-9s %-11s %.8s", a.name, x.Status.Sync.Status, x.Status.Health.Status, x.Status.Sync.Revision)
			if last[a.name] != now {
				last[a.name] = now
				say("%s  %s", time.Now().Format("15:04:05.000"), now)
			}
		}
	}
	return lines.Err()
}
