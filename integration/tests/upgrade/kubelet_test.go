package upgrade_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
)

var podsOf = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// backoff is what a kubelet waits before it starts a container again; a real
// one waits longer each time.
const backoff = 100 * time.Millisecond

// A kubelet runs the one container of each pod of the agent's namespace as a
// process, under the pod's own account, and says in the pod's status what
// became of it. Images are programs. What it does not do: it has no node, so
// pods are never bound, and a pod that is deleted is gone before its process
// is; a new pod is started once the processes before it have ended.
type kubelet struct {
	cluster *kube.Cluster
	dir     string              // stands for what is mounted
	images  map[string][]string // program and first arguments; the container's follow
	mu      sync.Mutex
	running map[string]*container // by name of the pod
}

type container struct {
	pod   *unstructured.Unstructured
	ended chan struct{}
	stop  context.CancelFunc

	mu  sync.Mutex
	cmd *exec.Cmd
}

// run follows pods until ctx ends, and then ends their processes.
func (k *kubelet) run(ctx context.Context) error {
	defer k.all(func(c *container) { c.end() })
	for ctx.Err() == nil {
		if err := k.follow(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (k *kubelet) follow(ctx context.Context) error {
	all := k.cluster.Dynamic().Resource(podsOf).Namespace(kube.AgentNamespace)
	list, err := all.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		if err := k.start(ctx, &list.Items[i]); err != nil {
			return err
		}
	}
	w, err := all.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		pod, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case !ok:
			return fmt.Errorf("watch pods: %v", e.Object)
		case e.Type == watch.Added:
			if err := k.start(ctx, pod); err != nil {
				return err
			}
		case e.Type == watch.Deleted:
			if c := k.of(pod.GetName()); c != nil {
				c.end()
				k.mu.Lock()
				delete(k.running, pod.GetName())
				k.mu.Unlock()
			}
		}
	}
	return nil
}

func (k *kubelet) of(pod string) *container {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.running[pod]
}

func (k *kubelet) all(do func(*container)) {
	k.mu.Lock()
	var list []*container
	for _, c := range k.running {
		list = append(list, c)
	}
	k.mu.Unlock()
	for _, c := range list {
		do(c)
	}
}

// start runs a pod's container again and again, as its restart policy says.
func (k *kubelet) start(ctx context.Context, pod *unstructured.Unstructured) error {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	if k.of(pod.GetName()) != nil || phase == "Succeeded" || phase == "Failed" {
		return nil
	}
	own, stop := context.WithCancel(ctx)
	c := &container{pod: pod, ended: make(chan struct{}), stop: stop}
	k.mu.Lock()
	k.running[pod.GetName()] = c
	k.mu.Unlock()
	go func() {
		defer close(c.ended)
		if err := k.restart(own, c); err != nil && own.Err() == nil {
			slog.Error("the kubelet of the test", "pod", pod.GetName(), "error", err)
		}
	}()
	return nil
}

// end stops the container as a kubelet does: it asks first.
func (c *container) end() {
	c.stop()
	c.signal(syscall.SIGTERM)
	<-c.ended
}

func (c *container) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Process.Signal(s)
	}
}

func (k *kubelet) restart(ctx context.Context, c *container) error {
	spec := struct {
		Account    string `json:"serviceAccountName"`
		Restart    string `json:"restartPolicy"`
		Containers []struct {
			Name  string
			Image string
			Args  []string
		}
	}{}
	raw, err := json.Marshal(c.pod.Object["spec"])
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &spec); err != nil {
		return err
	}
	one := spec.Containers[0]
	program, ok := k.images[one.Image]
	if !ok {
		return k.say(ctx, c, "Pending", one.Name, one.Image, 0, map[string]any{"waiting": map[string]any{"reason": "ErrImagePull", "message": "no such image: " + one.Image}}, nil)
	}
	kubeconfig, err := k.cluster.AccountKubeconfig(ctx, kube.AgentNamespace, spec.Account)
	if err != nil {
		return err
	}
	var last map[string]any
	for restarts := 0; ctx.Err() == nil; restarts++ {
		if err := k.say(ctx, c, "Running", one.Name, one.Image, restarts, map[string]any{"running": map[string]any{"startedAt": time.Now().UTC().Format(time.RFC3339)}}, last); err != nil {
			return err
		}
		code, text := k.process(ctx, c, program, one.Args, kubeconfig)
		if ctx.Err() != nil {
			return nil
		}
		last = map[string]any{"terminated": map[string]any{"exitCode": code, "reason": "Completed", "message": text}}
		if spec.Restart != "Always" && code == 0 {
			return k.say(ctx, c, "Succeeded", one.Name, one.Image, restarts, last, nil)
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
	}
	return nil
}

// process runs the program once, and gives its exit code and its last words.
func (k *kubelet) process(ctx context.Context, c *container, program, args []string, kubeconfig string) (int, string) {
	// The kernel ends the process with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	mounts := strings.NewReplacer("/var/lib/capstan", filepath.Join(k.dir, "state"), "/etc/capstan/", k.dir+"/", "--listen=:8081", "--listen=")
	words := append([]string{}, program[1:]...)
	for _, a := range args {
		words = append(words, mounts.Replace(a))
	}
	cmd := exec.Command(program[0], words...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "CAPSTAN_UPGRADE="+c.pod.GetAnnotations()["capstan.dev/upgrade"])
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var gotText bytes.Buffer
	log, err := os.OpenFile(filepath.Join(k.dir, c.pod.GetName()+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 127, err.Error()
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, &gotText
	c.mu.Lock()
	if ctx.Err() == nil {
		err = cmd.Start()
		c.cmd = cmd
	}
	c.mu.Unlock()
	if ctx.Err() != nil && cmd.Process == nil {
		return 0, ""
	}
	if err != nil {
		return 127, err.Error()
	}
	_ = cmd.Wait()
	_, _ = log.Write(gotText.Bytes())
	text := gotText.Bytes()
	code := cmd.ProcessState.ExitCode()
	if code < 0 {
		code = 137 // by a signal
	}
	return code, string(text[max(0, len(text)-2048):])
}

// say writes the pod's status.
func (k *kubelet) say(ctx context.Context, c *container, phase, name, image string, restarts int, state, last map[string]any) error {
	status := map[string]any{
		"name": name, "image": image, "imageID": image, "ready": phase == "Running", "restartCount": restarts, "state": state,
	}
	if last != nil {
		status["lastState"] = last
	}
	ready := map[bool]string{true: "True", false: "False"}[phase == "Running"]
	text, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase": phase, "containerStatuses": []any{status},
		"conditions": []any{map[string]any{"type": "Ready", "status": ready, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}},
	}})
	if err != nil {
		return err
	}
	_, err = k.cluster.Dynamic().Resource(podsOf).Namespace(kube.AgentNamespace).Patch(ctx, c.pod.GetName(), types.MergePatchType, text, metav1.PatchOptions{}, "status")
	return err
}

// updaters are the containers of updaters of an upgrade that run now.
func (k *kubelet) updaters(id string) (out []*container) {
	k.all(func(c *container) {
		select {
		case <-c.ended:
		default:
			if strings.HasPrefix(c.pod.GetName(), "capstan-agent-updater-"+id) {
				out = append(out, c)
			}
		}
	})
	return out
}
