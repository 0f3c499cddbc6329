package wave_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capstan-cd/capstan/agent/wave"
)

func TestParallel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var objects []wave.Object
		for i := range 50 {
			objects = append(objects, obj(fmt.Sprintf("0 ConfigMap c%d", i)))
		}
		c := &counter{session: session{world: newWorld()}}
		res := wave.New(mustBuild(objects, nil), c, nil, wave.Config{Parallel: 8}).Run(t.Context())
		if res.Phase != wave.Succeeded || len(res.Items) != 50 || c.most != 8 {
			t.Errorf("ENG-06: %d results, %d at the same time, want 50 and 8", len(res.Items), c.most)
		}
	})
}

// counter is a target whose applies take a second.
type counter struct {
	session
	now, most int
}

func (c *counter) Apply(context.Context, wave.Item) (wave.Outcome, error) {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	time.Sleep(time.Second)
	c.mu.Lock()
	c.now--
	c.mu.Unlock()
	return wave.Outcome{Changed: true}, nil
}

// nothing is a target that has nothing to do, for measuring the machine alone.
type nothing struct{}

func (nothing) Apply(context.Context, wave.Item) (wave.Outcome, error)  { return wave.Outcome{}, nil }
func (nothing) Delete(context.Context, wave.Item) (wave.Outcome, error) { return wave.Outcome{}, nil }
func (nothing) State(context.Context, wave.Item) (wave.State, error) {
	return wave.State{Found: true}, nil
}
func (nothing) Changed() <-chan struct{} { return nil }

func BenchmarkRun(b *testing.B) {
	five := []wave.Object{obj("0 ServiceAccount a"), obj("0 ConfigMap a"), obj("0 Service a"), obj("0 Deployment a"), obj("0 Ingress a")}
	var many []wave.Object
	for i := range 5000 {
		many = append(many, obj(fmt.Sprintf("%d ConfigMap c%d", i%5, i)))
	}
	for name, objects := range map[string][]wave.Object{"FiveObjects": five, "FiveThousandInFiveWaves": many} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plan, err := wave.Build(objects, nil, wave.Options{})
				if err != nil {
					b.Fatal(err)
				}
				w := newWorld()
				if res := wave.New(plan, nothing{}, ledger{&session{world: w}}, wave.Config{}).Run(b.Context()); res.Phase != wave.Succeeded {
					b.Fatal(res)
				}
			}
		})
	}
}
