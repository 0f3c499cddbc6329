package live_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-cd/capstan/hub/api/socket"
	"github.com/capstan-cd/capstan/integration/rigs/kubelet"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// cli prepares the command line without its standard input.
func cli(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(within(t), filepath.Join(s.Bin(), "capstan"), args...)
	c.Env = append(c.Environ(), "CAPSTAN_SERVER="+s.URL(), "CAPSTAN_TOKEN="+s.API.Token)
	return c
}

func TestExecCommand(t *testing.T) {
	pod := openTerminals(t, "execcli")
	in := []string{"app", "exec", "execcli", "--pod", pod, "--namespace", "execcli", "-c", "app", "--"}
	t.Run("CLI-04 app exec passes input, output, errors and the exit code", func(t *testing.T) {
		sent := bytes.Repeat([]byte{0, 1, 0xff, '\n', 0x1b}, 100_000)
		c := cli(t, append(in, "cat")...)
		c.Stdin = bytes.NewReader(sent)
		var out, errs bytes.Buffer
		c.Stdout, c.Stderr = &out, &errs
		if err := c.Run(); err != nil || !bytes.Equal(out.Bytes(), sent) {
			t.Errorf("%d bytes of %d came back: %v %s", out.Len(), len(sent), err, errs.String())
		}
		c = cli(t, append(in, "fail")...)
		out.Reset()
		errs.Reset()
		c.Stdout, c.Stderr = &out, &errs
		err := c.Run()
		var code *exec.ExitError
		if !errors.As(err, &code) || code.ExitCode() != 3 || errs.String() != "it went wrong\n" || out.Len() > 0 {
			t.Errorf("%v: %q %q", err, out.String(), errs.String())
		}
	})
	t.Run("CLI-04 without a pod the first healthy one is taken", func(t *testing.T) {
		out, err := cli(t, "app", "exec", "execcli", "--", "hello", "world").CombinedOutput()
		if err != nil || string(out) != `["hello" "world"]` {
			t.Errorf("%v: %s", err, out)
		}
	})
}

func TestPortForward(t *testing.T) {
	pod := deploy(t, "ports", 1)[0]
	kubelets.Listen("ports", pod, 80, func(c net.Conn) { // upper case, up to the end of what is sent
		defer c.Close()
		text, err := io.ReadAll(c)
		if err == nil {
			_, _ = c.Write(bytes.ToUpper(text))
		}
	})
	kubelets.Listen("ports", pod, 81, func(c net.Conn) { // one line after the other
		defer c.Close()
		for in := bufio.NewScanner(c); in.Scan(); {
			fmt.Fprintf(c, "<%s>\n", in.Text())
		}
	})
	path := func(port int) string {
		return fmt.Sprintf("/api/v1/applications/argocd/ports/port-forward?podName=%s&resourceNamespace=ports&port=%d", pod, port)
	}
	t.Run("UX-LOG-7 the command line forwards connections, in both directions and many at once", func(t *testing.T) {
		ctx, cancel := context.WithCancel(within(t))
		c := exec.CommandContext(ctx, filepath.Join(s.Bin(), "capstan"), "app", "port-forward", "ports", "--pod", pod, "--namespace", "ports", ":81")
		c.Env = append(c.Environ(), "CAPSTAN_SERVER="+s.URL(), "CAPSTAN_TOKEN="+s.API.Token)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cancel(); _ = c.Wait() }()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		address := strings.Fields(line)[2]
		for i := range 5 {
			conn, err := net.DialTimeout("tcp", address, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			answers := bufio.NewReader(conn)
			for j := range 3 {
				fmt.Fprintf(conn, "%d-%d\n", i, j)
				if got, err := answers.ReadString('\n'); err != nil || got != fmt.Sprintf("<%d-%d>\n", i, j) {
					t.Fatalf("%q, %v", got, err)
				}
			}
		}
		if begun := audited(t, "session-begin", "ports"); !strings.Contains(begun, `"port":81`) || !strings.Contains(begun, "port-forward") {
			t.Error(begun)
		}
	})
	t.Run("UX-LOG-7 the end of what a client sends reaches the pod, and what it answers then comes back", func(t *testing.T) {
		ws, _, err := admin().dial(within(t), path(80), socket.PortForward, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		for _, part := range []string{"half ", "closed", ""} {
			if err := ws.Write(within(t), websocket.MessageBinary, []byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		var all string
		for {
			_, data, err := ws.Read(within(t))
			if err != nil {
				if websocket.CloseStatus(err) != websocket.StatusNormalClosure || all != "HALF CLOSED" {
					t.Errorf("%q, %v", all, err)
				}
				return
			}
			all += string(data)
		}
	})
	t.Run("UX-LOG-7 SEC-K9 without the right, without a listener and without the owner's permission there is none", func(t *testing.T) {
		who := newUser(t, "ports-exec", "applications, get, default/*", "exec, create, default/*")
		if _, status, err := who.dial(within(t), path(80), socket.PortForward, nil); err == nil || status != http.StatusForbidden {
			t.Errorf("%d", status)
		}
		why := func(port int) string {
			ws, _, err := admin().dial(within(t), path(port), socket.PortForward, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer ws.CloseNow()
			for {
				if _, _, err = ws.Read(within(t)); err != nil {
					return err.Error()
				}
			}
		}
		if got := why(99); !strings.Contains(got, "99") {
			t.Error(got)
		}
		policy(t, "exec: {enabled: true}\nportForward: {enabled: true, ports: [81]}\n")
		defer policy(t, openPolicy)
		err := poll.Until(within(t), func(context.Context) error {
			if got := why(80); !strings.Contains(got, "port 80") || !strings.Contains(got, "guard") {
				return errors.New(got)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestWhy(t *testing.T) {
	ask := func(t *testing.T, app string, by user) (w apimodel.Why) {
		t.Helper()
		token := s.API.Token
		s.API.Token = by.token
		defer func() { s.API.Token = token }()
		if err := s.API.Do(within(t), http.MethodGet, "/api/v1/applications/argocd/"+app+"/why", nil, &w); err != nil {
			t.Fatal(err)
		}
		return w
	}
	names := deploy(t, "whyapp", 1)
	t.Run("UX-APP-5 an application that is well has no cause", func(t *testing.T) {
		if w := ask(t, "whyapp", admin()); !w.Healthy || len(w.Causes) > 0 || !w.ClusterAsked {
			t.Errorf("%+v", w)
		}
	})
	t.Run("UX-APP-5 CLI-04 a crash is named with its path, its last lines for those who may read logs, and the next step", func(t *testing.T) {
		kubelets.Container("whyapp", names[0], "app").Say("starting", "panic: no coffee \x1b[31m")
		setStatus(t, "whyapp", names[0], `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[
			{"name":"app","image":"x","imageID":"x","ready":false,"restartCount":0,"state":{"terminated":{"reason":"Error","exitCode":2}}}]}}`)
		var w apimodel.Why
		err := poll.Until(within(t), func(context.Context) error {
			w = ask(t, "whyapp", admin())
			if len(w.Causes) == 0 || w.Causes[0].Class != "container-failed" {
				return fmt.Errorf("%+v", w)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		c := w.Causes[0]
		if len(c.Path) != 3 || c.Path[0].Kind != "Deployment" || c.Object.Name != names[0] || c.Container != "app" || len(c.LastLines) != 2 || !strings.Contains(c.Command, names[0]) {
			t.Errorf("%+v", c)
		}
		out, err := s.API.CLI(within(t), "", "why", "whyapp")
		if err != nil || !strings.Contains(out, "container-failed") || !strings.Contains(out, "| panic: no coffee ␛[31m") || !strings.Contains(out, "do: ") || strings.Contains(out, "\x1b") {
			t.Errorf("%v: %s", err, out)
		}
		reader := newUser(t, "why-reader", "applications, get, default/*")
		if w := ask(t, "whyapp", reader); len(w.Causes) == 0 || len(w.Causes[0].LastLines) > 0 {
			t.Errorf("%+v", w)
		}
	})
}

// setStatus has a pod report a state, which the simulated nodes leave alone.
func setStatus(t *testing.T, namespace, pod, patch string) {
	t.Helper()
	if err := kubelet.SetStatus(within(t), s.Clusters["in-cluster"], namespace, pod, patch); err != nil {
		t.Fatal(err)
	}
}

func TestLinesOfPodsThatAreGone(t *testing.T) {
	pod := deploy(t, "gone", 1)[0]
	t.Run("UX-APP-5 the last lines of a container that has failed can be read when its pod is gone", func(t *testing.T) {
		kubelets.Container("gone", pod, "app").Say("starting", "panic: out of coffee")
		before := kubelets.Opened("gone", pod, "app")
		setStatus(t, "gone", pod, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"False"}],"containerStatuses":[
			{"name":"app","image":"x","imageID":"x","ready":false,"restartCount":0,"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"reason":"Error","exitCode":2}}}]}}`)
		kubelets.Container("gone", pod, "app").Restart() // what was said is of the instance before
		err := poll.Until(within(t), func(context.Context) error {
			if kubelets.Opened("gone", pod, "app") == before {
				return errors.New("the agent has not read the log")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		pods := s.Clusters["in-cluster"].Dynamic().Resource(podKind).Namespace("gone")
		if err := pods.Delete(within(t), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		err = poll.Until(within(t), func(ctx context.Context) error {
			got, status := admin().logs(ctx, t, "gone", "podName="+pod+"&resourceNamespace=gone")
			if status != http.StatusOK {
				return errors.New(got.refused)
			}
			lines, notice := got.rest(t)
			if notice != "" || len(lines) != 2 || lines[1] != "panic: out of coffee" {
				return fmt.Errorf("%q %s", lines, notice)
			}
			_, err := pods.Get(ctx, pod, metav1.GetOptions{})
			if err == nil {
				return errors.New("the pod is still there")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
