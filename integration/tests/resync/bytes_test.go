package resync_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/agent/report"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// snapshot is what an agent sees: message by application and name.
type snapshot map[string]map[string]string

func (w *world) snapshot(objects int) snapshot {
	p := snapshot{}
	for i := range objects {
		app := string(w.apps[i%len(w.apps)])
		if p[app] == nil {
			p[app] = map[string]string{}
		}
		p[app][fmt.Sprintf("deployment-%05d", i)] = "all replicas are there"
	}
	return p
}

func (p snapshot) flat() map[string]string {
	out := map[string]string{}
	for app, of := range p {
		for name, v := range of {
			out[app+"/"+name] = v
		}
	}
	return out
}

func object(app, name, message string) *linkv1.Resource {
	return &linkv1.Resource{
		AppId: app, Uid: "0190b2c4-aaaa-7000-8000-" + name, Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name, Managed: true,
		Sync: "Synced", Health: "Healthy", Message: message, Info: []*linkv1.Column{{Name: "Images", Value: "registry.example.com/shop/web:1.2.3"}}, CreatedUnix: 1_750_000_000,
	}
}

// show puts a picture into a new life's outbox.
func (w *world) show(p snapshot, epoch string) *report.Outbox {
	o := report.New(epoch, lifecycle.System{}, func(string) {}, w.log)
	for app, of := range p {
		o.App(&linkv1.AppReport{AppId: app, Generation: 1, Sync: "Synced", Health: "Healthy", ComparedUnixNano: time.Now().UnixNano()})
		for name, message := range of {
			o.Resource(object(app, name, message))
		}
	}
	o.Ready()
	return o
}

func TestResyncBytes(t *testing.T) {
	const objects = 5000
	w := newWorld(t, 50)
	token := w.serve()
	v := &vault{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := link.Enroll(ctx, token, link.EnrolConfig{Vault: v, Cluster: v, Log: w.log, Version: "test"}); err != nil {
		t.Fatal(err)
	}
	copied, err := inventory.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	life, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- copied.Run(life) }()
	defer func() {
		stop()
		<-ended
		_ = copied.Close()
	}()
	p := w.snapshot(objects)
	equal := func(t *testing.T) {
		t.Helper()
		if got := w.held(); !maps.Equal(got, p.flat()) {
			t.Errorf("the hub holds %d objects, the agent sees %d", len(got), len(p.flat()))
		}
	}
	t.Run("12.4 a first report is complete", func(t *testing.T) {
		up, down := w.attach(v, copied, w.show(p, "one"), "one")
		equal(t)
		t.Logf("first picture of %d objects: %d bytes up, %d bytes down", objects, up, down)
	})
	t.Run("FT-L7 12.10 an unchanged cluster of 5,000 objects resynchronises in under 20 KB", func(t *testing.T) {
		up, down := w.attach(v, copied, w.show(p, "two"), "two")
		equal(t)
		t.Logf("unchanged cluster of %d objects: %d bytes up, %d bytes down, %d together", objects, up, down, up+down)
		if up+down >= 20_000 {
			t.Errorf("%d bytes are not under 20 KB", up+down)
		}
	})
	t.Run("FT-L7 only changes since the disconnection are sent, and deleted objects are removed", func(t *testing.T) {
		app := string(w.apps[0])
		p[app]["deployment-00000"] = "one replica is missing"
		p[app]["new"] = "just made"
		delete(p[app], "deployment-00050")
		up, down := w.attach(v, copied, w.show(p, "three"), "three")
		equal(t)
		t.Logf("three changes in %d objects: %d bytes together", objects, up+down)
		if up+down >= 40_000 {
			t.Errorf("%d bytes for three changes", up+down)
		}
	})
}
