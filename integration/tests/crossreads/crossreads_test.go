package crossreads_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// workers of each side send at once.
const workers = 2

// A tally is what was sent and what came back.
type tally struct {
	mu       sync.Mutex
	calls    int
	bytes    int
	streamed int
	status   map[int]int
	done     map[string]int // successful calls by operation
	seen     map[string]int // by side: answers that show its own canary
	leaks    []string
}

func (y *tally) answer(op operation, own *side, status int, text []byte) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.calls++
	y.bytes += len(text)
	y.status[status]++
	if status < 300 {
		y.done[op.id]++
	}
	if strings.Contains(string(text), own.canary) {
		y.seen[own.name]++
	}
}

func (y *tally) leak(format string, args ...any) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.leaks = append(y.leaks, fmt.Sprintf(format, args...))
}

func TestTwoTenants(t *testing.T) {
	left, right := newSide(t, "left"), newSide(t, "right")
	left.other, right.other = right, left
	seed := uint64(time.Now().UnixNano())
	y := &tally{status: map[int]int{}, done: map[string]int{}, seen: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams, senders sync.WaitGroup
	all := operations(t)
	var sent atomic.Int64
	goesOn := func() bool { return sent.Add(1) <= calls }
	if duration > 0 {
		end := time.Now().Add(duration)
		goesOn = func() bool { return time.Now().Before(end) }
	}
	for i, x := range []*side{left, right} {
		streams.Go(func() { follow(ctx, x, y) })
		for n := range workers {
			g := &generator{rand.New(rand.NewPCG(seed, uint64(i*workers+n))), x}
			senders.Go(func() { send(ctx, g, all, y, goesOn) })
		}
	}
	senders.Wait()
	cancel()
	streams.Wait()
	t.Logf("%d calls of %d operations, %d bytes of answers, %d bytes of streams; by status %v; seed %d", y.calls, len(all), y.bytes, y.streamed, y.status, seed)
	t.Run("ISO-5 SEC-G2 random calls from both sides, with names, ids, cursors and keys of the other one, read nothing of it", func(t *testing.T) {
		for _, problem := range y.leaks[:min(len(y.leaks), 20)] {
			t.Error(problem)
		}
		for status, n := range y.status {
			if status >= 500 && status != http.StatusServiceUnavailable {
				t.Errorf("%d answers were %d", n, status)
			}
		}
	})
	t.Run("the calls reach what there is to read", func(t *testing.T) {
		if ok := y.status[200] + y.status[201] + y.status[202] + y.status[204]; ok*6 < y.calls {
			t.Errorf("only %d of %d calls succeeded", ok, y.calls)
		}
		if y.seen["left"]*50 < y.calls || y.seen["right"]*50 < y.calls || y.streamed == 0 {
			t.Errorf("the sides read their own canaries only in %v answers, and %d bytes of streams", y.seen, y.streamed)
		}
		for _, op := range all {
			if op.method == http.MethodGet && y.done[op.id] == 0 {
				t.Logf("%s never succeeded", op.id)
			}
		}
		t.Logf("%d operations succeeded: %v", len(y.done), slices.Sorted(maps.Keys(y.done)))
	})
}

// send sends random requests of one worker until the test is over.
func send(ctx context.Context, g *generator, all []operation, y *tally, goesOn func() bool) {
	client := &http.Client{Timeout: time.Minute}
	for n := 0; goesOn(); n++ {
		if n%300 == 299 {
			g.own.seed(ctx)
		}
		op := all[g.IntN(len(all))]
		r := g.request(op)
		asked := r.URL.String()
		resp, err := client.Do(r.WithContext(ctx))
		if err != nil {
			y.leak("%s %s: %v", op.id, asked, err)
			continue
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			y.leak("%s %s: %v", op.id, asked, err)
			continue
		}
		var page struct {
			Metadata struct{ Continue string }
			Cursor   string
		}
		if json.Unmarshal(text, &page) == nil {
			g.own.remember(&g.own.cursors, page.Metadata.Continue)
			g.own.remember(&g.own.cursors, page.Cursor)
		}
		for k, v := range resp.Header {
			text = fmt.Appendf(text, "\n%s: %s", k, strings.Join(v, ", "))
		}
		y.answer(op, g.own, resp.StatusCode, text)
		if shown := g.own.other.shows(text); shown != "" {
			y.leak("%s (%s) answers %s with %q of %s: %d %s", op.id, asked, g.own.name, shown, g.own.other.name, resp.StatusCode, text)
		}
		g.own.remember(&g.own.etags, resp.Header.Get("ETag"))
	}
}

// follow reads the stream of a side, again and again from another place, also
// from one of the other side.
func follow(ctx context.Context, x *side, y *tally) {
	for n := 0; ctx.Err() == nil; n++ {
		from := x.pick(&x.cursors, n)
		if n%2 == 1 {
			from = x.other.pick(&x.other.cursors, n)
		}
		read(ctx, x, y, from, 200)
	}
}

// read reads lines of one stream.
func read(ctx context.Context, x *side, y *tally, from string, lines int) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.admin.URL+"/api/v1/stream", nil)
	if err != nil {
		return
	}
	r.Header.Set("Authorization", "Bearer "+x.admin.Token)
	if from != "" {
		r.Header.Set("Last-Event-ID", from)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 16<<20)
	for range lines {
		if !in.Scan() {
			return
		}
		y.mu.Lock()
		y.streamed += len(in.Bytes())
		y.mu.Unlock()
		if id, is := strings.CutPrefix(in.Text(), "id: "); is {
			x.remember(&x.cursors, id)
		}
		if shown := x.other.shows(in.Bytes()); shown != "" {
			y.leak("the stream of %s has %q of %s: %s", x.name, shown, x.other.name, in.Text())
		}
	}
}
