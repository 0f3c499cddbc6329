// Package kubelet stands for the kubelets of a test cluster where an API server
// streams from them: logs, commands in containers and forwarded ports. It
// speaks the kubelet's protocol, commands and ports with the kubelet's own
// library, so that the real API server proxies to it. What containers say and
// do is up to the test. It runs no pods: their state is somebody else's.
package kubelet

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
)

// A Kubelet serves the containers of all pods of a cluster.
type Kubelet struct {
	server *http.Server
	port   int

	mu         sync.Mutex
	containers map[string]*Container
	ports      map[string]func(net.Conn) // by pod and port
	streams    map[string]int            // of logs that are followed now
	opened     map[string]int            // of logs, ever
}

// Start serves until Stop, and has a cluster's API server ask it about the pods
// of a node.
func Start(ctx context.Context, c *kube.Cluster, node string) (*Kubelet, error) {
	cert, err := c.ServerCertificate()
	if err != nil {
		return nil, err
	}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		port: ln.Addr().(*net.TCPAddr).Port, containers: map[string]*Container{}, ports: map[string]func(net.Conn){},
		streams: map[string]int{}, opened: map[string]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", k.exec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.portForward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", k.portForward)
	k.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = k.server.Serve(ln) }() // ends with Stop
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"addresses":       []map[string]any{{"type": "InternalIP", "address": "127.0.0.1"}},
		"daemonEndpoints": map[string]any{"kubeletEndpoint": map[string]any{"Port": k.port}},
	}})
	if err != nil {
		return nil, err
	}
	nodes := c.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	if _, err := nodes.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return nil, fmt.Errorf("make the node ask this kubelet: %w", err)
	}
	return k, nil
}

// SetStatus changes what is said of the state of a pod.
func SetStatus(ctx context.Context, c *kube.Cluster, namespace, pod, patch string) error {
	pods := c.Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace)
	_, err := pods.Patch(ctx, pod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// Stop ends all streams.
func (k *Kubelet) Stop() error { return k.server.Close() }

// A Container is what one container says and does.
type Container struct {
	mu       sync.Mutex
	lines    []line
	previous []line // of the instance before
	ended    bool
	changed  chan struct{}
	endless  func(w io.Writer) error // writes the log instead of lines
	run      Command
}

type line struct {
	at   time.Time
	text string
}

// A Command is what a command in a container does. An error of type ExitError
// is its exit code.
type Command func(ctx context.Context, argv []string, tty bool, stdin io.Reader, stdout, stderr io.Writer, resize <-chan Size) error

// Size is that of a terminal.
type Size = remotecommand.TerminalSize

// ExitError is the exit code of a command.
type ExitError int

func (e ExitError) Error() string   { return fmt.Sprintf("exit code %d", int(e)) }
func (e ExitError) String() string  { return e.Error() }
func (e ExitError) Exited() bool    { return true }
func (e ExitError) ExitStatus() int { return int(e) }

// Container returns the container of that name, with an empty log at first.
func (k *Kubelet) Container(namespace, pod, name string) *Container {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := namespace + "/" + pod + "/" + name
	c := k.containers[id]
	if c == nil {
		c = &Container{changed: make(chan struct{})}
		k.containers[id] = c
	}
	return c
}

// Say writes lines to the log.
func (c *Container) Say(texts ...string) { c.SayAt(time.Now(), texts...) }

// SayAt is Say at another time.
func (c *Container) SayAt(at time.Time, texts ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, t := range texts {
		c.lines = append(c.lines, line{at.Add(time.Duration(i)), t})
	}
	c.wake()
}

const floodRate = 5000 // lines in a second

// Flood writes 5,000 lines a second for a while, and returns how many they are.
// The last one says that the flood ends.
func (c *Container) Flood(ctx context.Context, d time.Duration) (n int, err error) {
	const tick = 20 * time.Millisecond
	const each = int(floodRate * tick / time.Second)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for range int(d / tick) {
		lines := make([]string, each)
		for i := range lines {
			n++
			lines[i] = fmt.Sprintf(`{"level":"info","msg":"GET /v1/orders/%d","status":200,"ms":%d}`, n, n%97)
		}
		c.Say(lines...)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return n, ctx.Err()
		}
	}
	c.Say("the flood ends")
	return n + 1, nil
}

// End ends the container, and with it what follows its log.
func (c *Container) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.wake()
}

// Restart ends the container and begins another instance with an empty log.
func (c *Container) Restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.previous, c.lines = c.lines, nil
	c.wake()
}

// Stream has the log written by a function, for logs that are too large to be
// held.
func (c *Container) Stream(write func(w io.Writer) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endless = write
}

// Run sets what commands do.
func (c *Container) Run(do Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.run = do
}

func (c *Container) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Following is how many streams follow the log of a container now.
func (k *Kubelet) Following(namespace, pod, container string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.streams[namespace+"/"+pod+"/"+container]
}

// Opened is how often the log of a container was read.
func (k *Kubelet) Opened(namespace, pod, container string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.opened[namespace+"/"+pod+"/"+container]
}

func (k *Kubelet) count(id string, follow bool, by int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if by > 0 {
		k.opened[id]++
	}
	if follow {
		k.streams[id] += by
	}
}

// logs serves the log of a container as the kubelet does: one line after the
// other, each with its time if that is asked for.
func (k *Kubelet) logs(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("namespace") + "/" + r.PathValue("pod") + "/" + r.PathValue("container")
	c := k.Container(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))
	o, err := readLogOptions(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	k.count(id, o.follow, 1)
	defer k.count(id, o.follow, -1)
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	c.mu.Lock()
	endless := c.endless
	c.mu.Unlock()
	if endless != nil {
		_ = endless(w) // the client has gone
		return
	}
	_ = c.write(r.Context(), w, flush, o)
}

// write sends the lines that were asked for.
func (c *Container) write(ctx context.Context, w io.Writer, flush *http.ResponseController, o logOptions) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := func() []line {
		if o.previous {
			return c.previous
		}
		return c.lines
	}
	instance := c.previous // changes with a restart
	at := o.first(lines())
	for {
		if !o.previous && len(c.previous) != len(instance) {
			return nil
		}
		for at < len(lines()) {
			l := lines()[at]
			at++
			text := l.text + "\n"
			if o.timestamps {
				text = l.at.UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + " " + text
			}
			c.mu.Unlock()
			_, err := io.WriteString(w, text)
			c.mu.Lock()
			if err != nil {
				return err
			}
		}
		c.mu.Unlock()
		err := flush.Flush()
		c.mu.Lock()
		if err != nil || !o.follow || o.previous {
			return err
		}
		if at < len(lines()) {
			continue
		}
		if c.ended {
			return nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// exec serves a command with the kubelet's library.
func (k *Kubelet) exec(w http.ResponseWriter, r *http.Request) {
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id := container{k.Container(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"))}
	remotecommand.ServeExec(w, r, id, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], o,
		4*time.Hour, 30*time.Second, remotecommand.SupportedStreamingProtocols)
}

type container struct{ *Container }

// ExecInContainer runs what the test has set.
func (c container) ExecInContainer(ctx context.Context, _, _, _ string, argv []string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan Size, _ time.Duration) error {
	c.mu.Lock()
	run := c.run
	c.mu.Unlock()
	if run == nil {
		return fmt.Errorf("exec: %q: executable file not found in $PATH", strings.Join(argv, " "))
	}
	var stderr io.Writer = io.Discard
	if errs != nil {
		stderr = errs
	}
	return run(ctx, argv, tty, in, out, stderr, resize)
}

// Listen has connections to a port of a pod handled.
func (k *Kubelet) Listen(namespace, pod string, port int, serve func(net.Conn)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ports[fmt.Sprintf("%s/%s:%d", namespace, pod, port)] = serve
}

// portForward serves forwarded ports with the kubelet's library.
func (k *Kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	o, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{k, r.PathValue("namespace")}, r.PathValue("pod"), "", o,
		4*time.Hour, 30*time.Second, portforward.SupportedProtocols)
}

type forwarder struct {
	k         *Kubelet
	namespace string
}

// PortForward connects to what the test listens with.
func (f forwarder) PortForward(_ context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	f.k.mu.Lock()
	serve := f.k.ports[fmt.Sprintf("%s/%s:%d", f.namespace, pod, port)]
	f.k.mu.Unlock()
	if serve == nil {
		return fmt.Errorf("nothing listens on port %d", port)
	}
	near, far, err := pair()
	if err != nil {
		return err
	}
	defer near.Close()
	go serve(far) // ends with the connection
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(near, stream); _ = near.CloseWrite() }()
	_, err = io.Copy(stream, near)
	_ = stream.Close()
	<-done
	return err
}

// pair makes a connection, one end of which can be closed for writing alone.
func pair() (near *net.TCPConn, far net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	if far, err = l.Accept(); err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn.(*net.TCPConn), far, nil
}
