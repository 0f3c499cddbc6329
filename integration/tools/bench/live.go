package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/capstan-cd/capstan/hub/api/socket"
	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/kubelet"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// liveIDs are the benchmarks of live operations: a large log, many readers of one
// container, and a terminal on a link that others have filled.
var liveIDs = []string{"LOG", "FOLLOW", "KEY"}

const (
	liveApp     = "live"
	liveLine    = 1000    // bytes of a line of the log
	perToken    = 25      // streams that one token may have
	line        = 4 << 20 // bytes a second that the link of KEY carries
	flooders    = 4       // readers of endless logs that fill it
	sampleEvery = 250 * time.Millisecond
)

const liveWorkload = `apiVersion: apps/v1
kind: Deployment
metadata: {name: live}
spec:
  selector: {matchLabels: {app: live}}
  template:
    metadata: {labels: {app: live}}
    spec:
      containers:
      - {name: large, image: registry.example.com/app:v1}
      - {name: quiet, image: registry.example.com/app:v1}
      - {name: shell, image: registry.example.com/app:v1}
`

// A liveBench is an installation with a pod whose containers the kubelet of the rig
// plays.
type liveBench struct {
	*bench
	s        *stack.Stack
	kubelets *kubelet.Kubelet
	pod      string
}

// live runs the benchmarks of live operations.
func (b *bench) live(ctx context.Context, bin, dir string) (err error) {
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("exec: {enabled: true}\n"), 0o600); err != nil {
		return err
	}
	l := &liveBench{bench: b}
	l.s, err = stack.Start(ctx, stack.Options{
		Bin: bin, Dir: filepath.Join(dir, "live"), Clusters: []string{"in-cluster"}, Nodes: true, Faulty: true, Settings: b.profiled(),
		AgentEnv: []string{"CAPSTAN_GUARD_FILE=" + policy}, Say: func(f string, a ...any) { fmt.Fprintf(os.Stderr, f+"\n", a...) },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.s.Stop()) }()
	if l.kubelets, err = kubelet.Start(ctx, l.s.Clusters["in-cluster"], "node-1"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.kubelets.Stop()) }()
	if err := l.deploy(ctx); err != nil {
		return err
	}
	for _, part := range []struct {
		id string
		do func(context.Context) error
	}{{"LOG", l.largeLog}, {"FOLLOW", l.followers}, {"KEY", l.keystrokes}} {
		if !b.wants(part.id) {
			continue
		}
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.id, err)
		}
	}
	return nil
}

// deploy deploys the application and finds its pod.
func (l *liveBench) deploy(ctx context.Context) error {
	repo, err := l.s.Repository(ctx, liveApp, gitserver.RepositoryOptions{})
	if err != nil {
		return err
	}
	if _, err := repo.Commit(ctx, "begin", map[string]string{"app/workload.yaml": liveWorkload}); err != nil {
		return err
	}
	if _, err := l.s.API.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: live, namespace: argocd}
spec:
  project: default
  source: {repoURL: %q, path: app, targetRevision: main}
  destination: {name: in-cluster, namespace: live}
  syncPolicy: {automated: {}, syncOptions: [CreateNamespace=true]}
`, repo.URL())); err != nil {
		return err
	}
	if _, err := l.s.API.Wait(ctx, liveApp, stack.Settled); err != nil {
		return err
	}
	values := map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"exec.enabled": "true"}}}
	if err := l.s.API.Do(ctx, http.MethodPatch, "/api/v1/settings", values, nil); err != nil {
		return err
	}
	pods := l.s.Clusters["in-cluster"].Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(liveApp)
	return poll.Until(ctx, func(ctx context.Context) error {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("%d pods, not one", len(list.Items))
		}
		l.pod = list.Items[0].GetName()
		return nil
	})
}

// at is the address of something of a container.
func (l *liveBench) at(what, container string, more url.Values) string {
	q := url.Values{"podName": {l.pod}, "resourceNamespace": {liveApp}, "container": {container}}
	for k, v := range more {
		q[k] = v
	}
	return l.s.URL() + "/api/v1/applications/argocd/live/" + what + "?" + q.Encode()
}

// A logEntry is one of a stream of logs.
type logEntry struct {
	Content, Notice string
	Skipped         int64
	Last            bool
}

// logs opens the log of a container and hands over its entries until see ends it,
// or the log does.
func (l *liveBench) logs(ctx context.Context, token, container string, follow bool, see func(logEntry) (more bool)) error {
	more := url.Values{}
	if follow {
		more.Set("follow", "true")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.at("logs", container, more), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "application/x-ndjson")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	in := json.NewDecoder(bufio.NewReaderSize(res.Body, 64<<10))
	for {
		var e logEntry
		if err := in.Decode(&e); err != nil {
			return err
		}
		if e.Last && e.Notice != "" {
			return errors.New(e.Notice)
		}
		if e.Last || !see(e) {
			return nil
		}
	}
}

// A sampler reads the memory of hub and agent until it is stopped.
type sampler struct {
	stop       context.CancelFunc
	done       sync.WaitGroup
	hub, agent []int64 // resident bytes
}

func (l *liveBench) sample(ctx context.Context) *sampler {
	ctx, stop := context.WithCancel(ctx)
	m := &sampler{stop: stop}
	take := func() {
		m.hub = append(m.hub, resident(l.s.Hub.PID(), process.Children(l.s.Hub.PID())...))
		m.agent = append(m.agent, resident(l.s.Agents["in-cluster"].PID()))
	}
	take()
	m.done.Go(func() {
		for tick := time.NewTicker(sampleEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
				take()
			}
		}
	})
	return m
}

func (m *sampler) end() { m.stop(); m.done.Wait() }

// course shows a series of memory: at first, in the middle half, at most and last.
func course(of []int64) string {
	mib := func(n int64) string { return fmt.Sprintf("%.0f", float64(n)/(1<<20)) }
	quarter := len(of) / 4
	early, late := slices.Max(of[:max(1, len(of)/2)]), slices.Max(of[len(of)/2:])
	return fmt.Sprintf("first %s, after a quarter %s, most of the first half %s, of the second %s, last %s MiB", mib(of[0]), mib(of[quarter]), mib(early), mib(late), mib(of[len(of)-1]))
}

// resident is the resident memory of processes. One that has ended counts nothing.
func resident(pid int, more ...int) (sum int64) {
	for _, p := range append(more, pid) {
		status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p), "status"))
		if err != nil {
			continue
		}
		for text := range strings.Lines(string(status)) {
			if f := strings.Fields(text); len(f) == 3 && f[0] == "VmRSS:" {
				kb, _ := strconv.ParseInt(f[1], 10, 64)
				sum += kb << 10
			}
		}
	}
	return sum
}

// writeLines writes lines as the kubelet does, until so many were written; -1: until
// the reader has gone.
func writeLines(w io.Writer, lines int64) (written int64, err error) {
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00")
	text := []byte(stamp + " " + strings.Repeat("x", liveLine-1) + "\n")
	const batch = 64
	many := bytes.Repeat(text, batch)
	for lines < 0 || written < lines {
		n := int64(batch)
		if lines >= 0 {
			n = min(n, lines-written)
		}
		if _, err := w.Write(many[:int(n)*len(text)]); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// largeLog measures LOG: one reader of a log, with exact counts of its lines, and the
// memory of hub and agent meanwhile.
func (l *liveBench) largeLog(ctx context.Context) error {
	lines := l.volume / liveLine
	var written atomic.Int64
	l.kubelets.Container(liveApp, l.pod, "large").Stream(func(w io.Writer) error {
		n, err := writeLines(w, lines)
		written.Add(n)
		return err
	})
	m := l.sample(ctx)
	var got, size, skipped int64
	began := time.Now()
	err := l.logs(ctx, l.s.API.Token, "large", false, func(e logEntry) bool {
		skipped += e.Skipped
		if e.Notice == "" {
			got++
			size += int64(len(e.Content)) + 1
		}
		return true
	})
	took := time.Since(began)
	m.end()
	if err != nil {
		return fmt.Errorf("after %d lines of %d: %w", got, lines, err)
	}
	l.add("LOG", fmt.Sprintf("log of %d MiB, one reader", l.volume>>20),
		fmt.Sprintf("%.1f s, %.0f MiB/s", took.Seconds(), float64(size)/(1<<20)/took.Seconds()),
		fmt.Sprintf("%d lines written, %d read, %d skipped, %d bytes; streams of the kubelet: %d; RSS in %d samples: hub %s; agent %s",
			written.Load(), got, skipped, size, l.kubelets.Opened(liveApp, l.pod, "large"), len(m.hub), course(m.hub), course(m.agent)))
	return nil
}

// tokens makes as many as so many streams need.
func (l *liveBench) tokens(ctx context.Context, streams int) (out []string, err error) {
	for i := range (streams + perToken - 1) / perToken {
		var made struct {
			Token string `json:"token"`
		}
		if err := l.s.API.Do(ctx, http.MethodPost, "/api/v1/tokens", map[string]any{"name": fmt.Sprintf("reader-%d", i), "expiresIn": "1h"}, &made); err != nil {
			return nil, err
		}
		out = append(out, made.Token)
	}
	return out, nil
}

// followers measures FOLLOW: many readers of one container, all of whom get each
// line.
func (l *liveBench) followers(ctx context.Context) error {
	tokens, err := l.tokens(ctx, l.readers)
	if err != nil {
		return err
	}
	c := l.kubelets.Container(liveApp, l.pod, "quiet")
	c.Say("hello")
	const lines = 100
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := l.sample(ctx)
	var all, ready sync.WaitGroup
	var read, skipped atomic.Int64
	failed := make(chan error, l.readers)
	ready.Add(l.readers)
	for i := range l.readers {
		all.Go(func() {
			begun := sync.OnceFunc(ready.Done)
			defer begun()
			err := l.logs(ctx, tokens[i%len(tokens)], "quiet", true, func(e logEntry) bool {
				skipped.Add(e.Skipped)
				if e.Content == "hello" {
					begun()
					return true
				}
				read.Add(1)
				return e.Content != "end"
			})
			if err != nil {
				failed <- err
			}
		})
	}
	ready.Wait()
	began := time.Now()
	for i := range lines - 1 {
		c.Say(fmt.Sprintf("line %d", i))
	}
	following, opened := l.kubelets.Following(liveApp, l.pod, "quiet"), l.kubelets.Opened(liveApp, l.pod, "quiet")
	c.Say("end")
	all.Wait()
	took := time.Since(began)
	m.end()
	close(failed)
	if err := <-failed; err != nil {
		return err
	}
	l.add("FOLLOW", fmt.Sprintf("%d followers of one container, %d lines", l.readers, lines), fmt.Sprintf("%d streams of the kubelet", following),
		fmt.Sprintf("the log was opened %d times; %d lines read of %d, %d skipped, all within %s ms; RSS: hub %s; agent %s",
			opened, read.Load(), l.readers*lines, skipped.Load(), ms(took), course(m.hub), course(m.agent)))
	return nil
}

// keystrokes measures KEY: how long the echo of a keystroke takes directly through the
// API server, through the hub, and through the hub while readers of logs have filled
// the link.
func (l *liveBench) keystrokes(ctx context.Context) error {
	l.kubelets.Container(liveApp, l.pod, "shell").Run(func(_ context.Context, _ []string, _ bool, in io.Reader, out, _ io.Writer, _ <-chan kubelet.Size) error {
		_, err := io.Copy(out, in)
		return err
	})
	direct, err := l.direct(ctx)
	if err != nil {
		return fmt.Errorf("directly: %w", err)
	}
	quiet, err := l.through(ctx)
	if err != nil {
		return fmt.Errorf("through the hub: %w", err)
	}
	l.s.Link.Set(faultproxy.NetworkFaults{Line: line})
	defer l.s.Link.Set(faultproxy.NetworkFaults{})
	flood, stop := context.WithCancel(ctx)
	defer stop()
	var carried atomic.Int64
	full := make(chan struct{})
	filled := sync.OnceFunc(func() { close(full) })
	l.kubelets.Container(liveApp, l.pod, "large").Stream(func(w io.Writer) error { _, err := writeLines(w, -1); return err })
	var readers sync.WaitGroup
	for range flooders {
		readers.Go(func() {
			_ = l.logs(flood, l.s.API.Token, "large", false, func(e logEntry) bool { // it ends with the series
				if carried.Add(int64(len(e.Content))) > line {
					filled()
				}
				return true
			})
		})
	}
	select {
	case <-full:
	case <-ctx.Done():
		return ctx.Err()
	}
	began, before := time.Now(), carried.Load()
	busy, err := l.through(ctx)
	lasted, bytesRead := time.Since(began), carried.Load()-before
	stop()
	readers.Wait()
	if err != nil {
		return fmt.Errorf("through the hub, beside logs: %w", err)
	}
	above := func(d []time.Duration, q float64) string { return ms(quantile(d, q) - quantile(direct, q)) }
	l.add("KEY", fmt.Sprintf("echo of a keystroke above direct, link of %d MiB/s full", line>>20),
		fmt.Sprintf("median %s ms, p99 %s ms", above(busy, 0.5), above(busy, 0.99)),
		fmt.Sprintf("%d keystrokes each; direct: %s; through a quiet link: %s, above direct %s and %s ms; through a full one: %s; %.1f MiB/s of logs meanwhile",
			l.keys, spread(direct), spread(quiet), above(quiet, 0.5), above(quiet, 0.99), spread(busy), float64(bytesRead)/(1<<20)/lasted.Seconds()))
	return nil
}

func quantile(d []time.Duration, q float64) time.Duration {
	s := slices.Clone(d)
	slices.Sort(s)
	return s[int(float64(len(s)-1)*q)]
}

// strokes sends one keystroke after the echo of the other, and times each.
func (l *liveBench) strokes(ctx context.Context, send func(byte) error, echo func() (byte, error)) (out []time.Duration, err error) {
	for i := range l.keys {
		key := byte('a' + i%26)
		began := time.Now()
		if err := send(key); err != nil {
			return nil, err
		}
		got, err := echo()
		if err != nil {
			return nil, err
		}
		if got != key {
			return nil, fmt.Errorf("keystroke %d: %q came back as %q", i, key, got)
		}
		out = append(out, time.Since(began))
		select { // people type ten keys a second; thirty are enough to meet the others' pieces
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second / 30):
		}
	}
	return out, nil
}

// direct types through the API server, without hub and agent.
func (l *liveBench) direct(ctx context.Context) ([]time.Duration, error) {
	conf, err := clientcmd.BuildConfigFromFlags("", l.s.Clusters["in-cluster"].Kubeconfig())
	if err != nil {
		return nil, err
	}
	q := url.Values{"container": {"shell"}, "command": {"cat"}, "stdin": {"true"}, "stdout": {"true"}, "tty": {"true"}}
	target := strings.TrimSuffix(conf.Host, "/") + "/api/v1/namespaces/live/pods/" + l.pod + "/exec?" + q.Encode()
	executor, err := remotecommand.NewWebSocketExecutor(conf, http.MethodGet, target)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: inRead, Stdout: outWrite, Tty: true})
		_ = outWrite.CloseWithError(orElse(err, io.EOF))
		ended <- err
	}()
	defer func() {
		_ = inWrite.Close()
		cancel()
		_ = outRead.Close()
		<-ended
	}()
	one := make([]byte, 1)
	return l.strokes(ctx, func(key byte) error { _, err := inWrite.Write([]byte{key}); return err },
		func() (byte, error) { _, err := io.ReadFull(outRead, one); return one[0], err })
}

// orElse is the error, or another one if there is none.
func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// through types through the hub.
func (l *liveBench) through(ctx context.Context) ([]time.Duration, error) {
	target := strings.Replace(l.at("terminal", "shell", url.Values{"command": {"cat"}}), "http", "ws", 1)
	ws, res, err := websocket.Dial(ctx, target, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + l.s.API.Token}}, Subprotocols: []string{socket.Terminal},
	})
	if err != nil {
		if res != nil && res.Body != nil {
			text, _ := io.ReadAll(res.Body)
			err = fmt.Errorf("%w: %s", err, text)
		}
		return nil, err
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(1 << 20)
	read := func() (byte, []byte, error) {
		_, data, err := ws.Read(ctx)
		if err != nil || len(data) == 0 {
			return 0, nil, orElse(err, io.ErrUnexpectedEOF)
		}
		return data[0], data[1:], nil
	}
	for {
		channel, text, err := read()
		if err != nil {
			return nil, err
		}
		if channel == socket.ChannelStarted {
			break
		}
		if channel == socket.ChannelEnd {
			return nil, fmt.Errorf("the session has ended: %s", text)
		}
	}
	return l.strokes(ctx, func(key byte) error {
		return ws.Write(ctx, websocket.MessageBinary, []byte{socket.ChannelStdin, key})
	}, func() (byte, error) {
		channel, text, err := read()
		if err != nil {
			return 0, err
		}
		if channel != socket.ChannelStdout || len(text) != 1 {
			return 0, fmt.Errorf("channel %d: %q", channel, text)
		}
		return text[0], nil
	})
}
