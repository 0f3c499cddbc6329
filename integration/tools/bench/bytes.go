package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/agent/report"
	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/simagent"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// firstOutside is the number of the first agent outside of the fleet.
const firstOutside = 20_000

// one enrols an agent outside of the fleet. The caller starts it.
func (x *scale) one(ctx context.Context, n int) (*simagent.Agent, error) {
	return x.f.Enrol(ctx, firstOutside+n)
}

// attach runs an agent until is says so, and gives what went over the wire.
func (x *scale) attach(ctx context.Context, a *simagent.Agent, what string, is func() bool) (in, out int64, stop func(), err error) {
	before := trafficOf(a)
	stop = x.f.Start(a)
	for deadline := time.Now().Add(2 * time.Minute); !is(); {
		if err := a.Err(); err != nil || ctx.Err() != nil || time.Now().After(deadline) {
			stop()
			return 0, 0, func() {}, fmt.Errorf("%s is not %s: %w", a.Name, what, errors.Join(err, ctx.Err(), context.DeadlineExceeded))
		}
		time.Sleep(5 * time.Millisecond)
	}
	t := trafficOf(a).since(before)
	return t.in, t.out, stop, nil
}

// A traffic is what an agent received and sent, in bytes.
type traffic struct{ in, out int64 }

func trafficOf(a *simagent.Agent) traffic {
	in, out := a.Traffic()
	return traffic{in, out}
}

func (t traffic) since(before traffic) traffic { return traffic{t.in - before.in, t.out - before.out} }

// bundle is an application of 112 objects and 640 KB, as a monitoring stack
// is. Each object carries an image; the number of one is given.
func bundle(tag map[int]int) map[string]string {
	files := map[string]string{}
	noise := rand.New(rand.NewPCG(1, 2))
	for i := range 112 {
		var body strings.Builder
		for body.Len() < 5400 {
			fmt.Fprintf(&body, "    - expr: sum(rate(metric_%x_total{job=\"job-%d\"}[5m])) by (namespace, pod) > %d\n", noise.Uint64(), i, noise.IntN(100))
		}
		files[fmt.Sprintf("kps/object-%03d.yaml", i)] = fmt.Sprintf(
			"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: object-%03d\ndata:\n  image: registry.example.com/monitoring/part-%d:1.0.%d\n  rules: |\n%s", i, i, tag[i], body.String())
	}
	return files
}

// oneImage measures the bytes of a changed image in a large bundle, and those
// of coming back after changes.
func (x *scale) oneImage(ctx context.Context) error {
	repo, err := x.s.Repository(ctx, "kps", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	tag := map[int]int{}
	if _, err := repo.Commit(ctx, "begin", bundle(tag)); err != nil {
		return err
	}
	a, err := x.one(ctx, 1)
	if err != nil {
		return err
	}
	app := strings.Replace(application("kps", "kps", repo.URL(), "kps"), "name: in-cluster", "name: "+a.Name, 1)
	if _, err := x.s.API.Apply(ctx, app); err != nil {
		return err
	}
	in, out, stop, err := x.attach(ctx, a, "up to date", func() bool { return a.Rows() > 0 && a.Settled() })
	if err != nil {
		return err
	}
	x.add("B16", "first time: 112 objects, 640 KB", fmt.Sprintf("%s to the agent, %s back", bytesText(in), bytesText(out)), "with TLS, from the handshake on")
	for _, objects := range []int{1, 10} {
		time.Sleep(time.Second)
		before, rows := trafficOf(a), a.Rows()
		if err := x.retag(ctx, repo, tag, objects); err != nil {
			stop()
			return err
		}
		if err := x.f.until(ctx, "changed", func() bool { return a.Rows() > rows && a.Settled() }); err != nil {
			stop()
			return err
		}
		t := trafficOf(a).since(before)
		x.add("B16", fmt.Sprintf("image changed in %d of 112 objects", objects),
			fmt.Sprintf("%s to the agent, %s back", bytesText(t.in), bytesText(t.out)), fmt.Sprintf("%d rows", a.Rows()-rows))
	}
	stop()
	for _, objects := range []int{0, 1, 100} {
		rows := a.Rows()
		if objects > 0 {
			if err := x.retag(ctx, repo, tag, objects); err != nil {
				return err
			}
		}
		in, out, stop, err := x.attach(ctx, a, "up to date", func() bool { return (objects == 0 || a.Rows() > rows) && a.Settled() })
		stop()
		if err != nil {
			return err
		}
		x.add("B16", fmt.Sprintf("back after a time without connection with %d changed objects", objects),
			fmt.Sprintf("%s to the agent, %s back", bytesText(in), bytesText(out)), "with TLS handshake and Hello")
	}
	return nil
}

// retag changes the images of some objects and waits until the hub has it.
func (x *scale) retag(ctx context.Context, repo *gitserver.Repository, tag map[int]int, objects int) error {
	for i := range objects {
		tag[i]++
	}
	commit, err := repo.Commit(ctx, "images", bundle(tag))
	if err != nil {
		return err
	}
	return x.shown(ctx, "kps", commit)
}

// resync measures the bytes with which a cluster of many objects and its hub
// find out that nothing has changed, with the agent's real outbox.
func (x *scale) resync(ctx context.Context) error {
	const objects, apps = 5000, 10
	repo, err := x.s.Repository(ctx, "resync", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "begin", web("web", "v0")); err != nil {
		return err
	}
	a, err := x.one(ctx, 2)
	if err != nil {
		return err
	}
	var all strings.Builder
	for i := range apps {
		all.WriteString(strings.Replace(application(fmt.Sprintf("resync-%d", i), "web", repo.URL(), fmt.Sprintf("resync-%d", i)), "name: in-cluster", "name: "+a.Name, 1))
	}
	if _, err := x.s.API.Apply(ctx, all.String()); err != nil {
		return err
	}
	_, _, stop, err := x.attach(ctx, a, "up to date", func() bool { return len(a.Applications()) == apps && a.Settled() })
	stop()
	if err != nil {
		return err
	}
	for life, what := range []string{"first picture", "unchanged"} {
		a.Epoch = fmt.Sprintf("resync-life-%d", life)
		outbox := show(a, objects)
		in, out, stop, err := x.attach(ctx, a, "of one mind with the hub", outbox.Agreed)
		stop()
		if err != nil {
			return err
		}
		x.add("RESYNC", fmt.Sprintf("cluster of %d objects, %s", objects, what), fmt.Sprintf("%s together", bytesText(in+out)),
			fmt.Sprintf("%d B to the agent, %d B back, with TLS handshake and Hello", in, out))
		if life > 0 && in+out >= 20_000 {
			return fmt.Errorf("an unchanged cluster took %d bytes", in+out)
		}
	}
	return nil
}

// show returns a new life's outbox with everything that the cluster holds.
func show(a *simagent.Agent, objects int) *report.Outbox {
	o := report.New(a.Epoch, lifecycle.System{}, func(string) {}, slog.New(slog.DiscardHandler))
	apps := a.Applications()
	for i := range objects {
		name := fmt.Sprintf("deployment-%05d", i)
		o.Resource(&linkv1.Resource{
			AppId: apps[i%len(apps)], Uid: "0190b2c4-aaaa-7000-8000-" + name, Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name,
			Managed: true, Sync: "Synced", Health: "Healthy", Message: "all replicas are there", CreatedUnix: 1_750_000_000,
			Info: []*linkv1.Column{{Name: "Images", Value: "registry.example.com/shop/web:1.2.3"}},
		})
	}
	o.Ready()
	a.Reports = o
	a.Greeting = func(h *linkv1.HelloResponse) { o.Compares(len(h.GetFeatures()) > 0) }
	return o
}

// slow measures control round trips while bulk transfers fill a slow line.
func (x *scale) slow(ctx context.Context) error {
	const speed, lasts = 250_000, 20 * time.Second
	repo, err := x.s.Repository(ctx, "bulk", gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	for part := range 10 { // small pushes: large ones are not what is measured
		files := map[string]string{}
		for i := range 15 {
			noise := make([]byte, 50_000)
			for j := range noise {
				noise[j] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/"[rand.IntN(64)]
			}
			name := fmt.Sprintf("object-%02d-%02d", part, i)
			files["bulk/"+name+".yaml"] = configMap(name, string(noise))
		}
		if _, err := repo.Commit(ctx, fmt.Sprintf("part %d", part), files); err != nil {
			return err
		}
	}
	a, err := x.one(ctx, 3)
	if err != nil {
		return err
	}
	wire, err := faultproxy.NewWire(x.s.Hub.Link)
	if err != nil {
		return err
	}
	defer func() { _ = wire.Stop() }()
	wire.Set(faultproxy.NetworkFaults{Line: speed})
	a.Heartbeats = 1
	a.Through = wire.Addr()
	app := strings.Replace(application("bulk", "bulk", repo.URL(), "bulk"), "name: in-cluster", "name: "+a.Name, 1)
	if _, err := x.s.API.Apply(ctx, app); err != nil {
		return err
	}
	_, _, stop, err := x.attach(ctx, a, "told of the application", func() bool { return a.Rows() > 0 })
	if err != nil {
		return err
	}
	defer stop()
	before, begin := trafficOf(a), time.Now()
	var trips []time.Duration
	for time.Since(begin) < lasts {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
		if s := a.Client().State(); s.Connected {
			trips = append(trips, s.RoundTrip)
		}
	}
	used := float64(trafficOf(a).since(before).in) / time.Since(begin).Seconds()
	x.add("SLOW", fmt.Sprintf("line of %d KB/s shared with a bulk transfer, %s: control round trips", speed/1000, lasts), spread(trips),
		fmt.Sprintf("%d round trips; %.0f%% of the line used; %d sessions", len(trips), 100*used/speed, a.Sessions()))
	return nil
}
