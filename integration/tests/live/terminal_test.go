package live_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"github.com/capstan-cd/capstan/hub/api/socket"
	"github.com/capstan-cd/capstan/integration/rigs/kubelet"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// A session is an open terminal.
type session struct {
	ws      *websocket.Conn
	started apimodel.TerminalStarted
}

// dial opens a WebSocket of the hub.
func (u user) dial(ctx context.Context, path, protocol string, header http.Header) (*websocket.Conn, int, error) {
	if header == nil {
		header = http.Header{"Authorization": {"Bearer " + u.token}}
	}
	o := &websocket.DialOptions{HTTPHeader: header}
	if protocol != "" {
		o.Subprotocols = strings.Split(protocol, ",")
	}
	ws, res, err := websocket.Dial(ctx, strings.Replace(s.URL(), "http", "ws", 1)+path, o)
	status := 0
	if res != nil {
		status = res.StatusCode
	}
	if ws != nil {
		ws.SetReadLimit(1 << 20)
	}
	return ws, status, err
}

// terminal opens one of the application's containers.
func (u user) terminal(t *testing.T, app, query string) *session {
	t.Helper()
	ws, status, err := u.dial(within(t), "/api/v1/applications/argocd/"+app+"/terminal?"+query, socket.Terminal, nil)
	if err != nil {
		t.Fatalf("%d: %v", status, err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return &session{ws: ws}
}

func (x *session) send(t *testing.T, channel byte, text string) {
	t.Helper()
	if err := x.ws.Write(within(t), websocket.MessageBinary, append([]byte{channel}, text...)); err != nil {
		t.Fatal(err)
	}
}

// next returns the next message.
func (x *session) next(t *testing.T) (channel byte, text string) {
	t.Helper()
	_, data, err := x.ws.Read(within(t))
	if err != nil || len(data) == 0 {
		t.Fatalf("no message: %v", err)
	}
	if data[0] == socket.ChannelStarted {
		if err := json.Unmarshal(data[1:], &x.started); err != nil {
			t.Fatal(err)
		}
		return x.next(t)
	}
	return data[0], string(data[1:])
}

// until reads the output up to a text.
func (x *session) until(t *testing.T, want string) (all string) {
	t.Helper()
	for !strings.Contains(all, want) {
		channel, text := x.next(t)
		if channel != socket.ChannelStdout {
			t.Fatalf("after %q: channel %d: %s", all, channel, text)
		}
		all += text
	}
	return all
}

// end reads up to the end.
func (x *session) end(t *testing.T) (output string, end apimodel.TerminalEnd) {
	t.Helper()
	for {
		channel, text := x.next(t)
		if channel == socket.ChannelEnd {
			if err := json.Unmarshal([]byte(text), &end); err != nil {
				t.Fatal(err)
			}
			_ = x.ws.CloseNow()
			return output, end
		}
		output += text
	}
}

// shell is what the test's containers run: it echoes lines, and knows some
// commands.
func shell(ctx context.Context, argv []string, tty bool, in io.Reader, out, errs io.Writer, resize <-chan kubelet.Size) error {
	switch argv[0] {
	case "bash":
		return errors.New(`exec: "bash": executable file not found in $PATH`)
	case "sh":
	case "fail":
		fmt.Fprint(errs, "it went wrong\n")
		return kubelet.ExitError(3)
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "flood":
		for ctx.Err() == nil {
			if _, err := out.Write(bytes.Repeat([]byte("x"), 32<<10)); err != nil {
				return err
			}
		}
		return ctx.Err()
	default:
		fmt.Fprintf(out, "%q", argv)
		return nil
	}
	fmt.Fprint(out, "$ ")
	go func() {
		for size := range resize {
			fmt.Fprintf(out, "[%dx%d]", size.Width, size.Height)
		}
	}()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil
		}
		if line == "exit\n" {
			return kubelet.ExitError(7)
		}
		fmt.Fprintf(out, "you said %s$ ", line)
	}
}

// policy changes what the cluster's owner permits.
func policy(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(policyFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// audited waits for a record of the audit log about an application.
func audited(t *testing.T, action, application string) (detail string) {
	t.Helper()
	err := poll.Until(within(t), func(ctx context.Context) error {
		var out struct {
			Items []map[string]any `json:"items"`
		}
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/audit?limit=50", nil, &out); err != nil {
			return err
		}
		for _, r := range out.Items {
			if r["action"] == action && strings.HasSuffix(fmt.Sprint(r["object"]), "/"+application) {
				text, err := json.Marshal(r)
				detail = string(text)
				return err
			}
		}
		return fmt.Errorf("no record of %s", action)
	})
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// openTerminals prepares an application whose containers run shell.
func openTerminals(t *testing.T, app string) (pod string) {
	t.Helper()
	pod = deploy(t, app, 1)[0]
	kubelets.Container(app, pod, "app").Run(shell)
	kubelets.Container(app, pod, "side").Run(shell)
	set(t, "argocd-cm", "exec.enabled", "true")
	return pod
}

func TestTerminal(t *testing.T) {
	pod := openTerminals(t, "term")
	there := "podName=" + pod + "&resourceNamespace=term&container=app"
	t.Run("TERM-02 TERM-04 TERM-05 API-18 SEC-F6 a shell that the container has is opened, types, resizes and ends, and its start and end are in the audit log", func(t *testing.T) {
		x := admin().terminal(t, "term", there+"&rows=24&cols=80")
		x.until(t, "$ ")
		if !slices.Equal(x.started.Command, []string{"sh"}) || x.started.Container != "app" || x.started.MaxSeconds == 0 || x.started.IdleSeconds == 0 {
			t.Errorf("started %+v", x.started)
		}
		x.send(t, socket.ChannelStdin, "hello ü\n")
		x.until(t, "you said hello ü\n")
		x.send(t, socket.ChannelResize, `{"rows":50,"cols":132}`)
		x.until(t, "[132x50]")
		x.send(t, socket.ChannelStdin, "exit\n")
		if _, end := x.end(t); !end.Exited || end.ExitCode != 7 || end.Message != "" {
			t.Errorf("end %+v", end)
		}
		if begun := audited(t, "session-begin", "term"); !strings.Contains(begun, pod) || !strings.Contains(begun, `"admin"`) {
			t.Error(begun)
		}
		ended := audited(t, "session-end", "term")
		for _, want := range []string{pod, `"container":"app"`, `"command":"sh"`, `"exitCode":7`, "bytesIn", "bytesOut", "seconds", "podUid"} {
			if !strings.Contains(ended, want) {
				t.Errorf("no %s in %s", want, ended)
			}
		}
		if strings.Contains(ended, "hello") {
			t.Errorf("what was typed is in the audit log: %s", ended)
		}
	})
	t.Run("TERM-02 only listed shells are opened", func(t *testing.T) {
		set(t, "argocd-cm", "exec.shells", "bash")
		defer set(t, "argocd-cm", "exec.shells", nil)
		x := admin().terminal(t, "term", there)
		if _, end := x.end(t); end.Exited || !strings.Contains(end.Message, "bash") {
			t.Errorf("end %+v", end)
		}
	})
	t.Run("API-18 TERM-04 clients of Argo CD get its messages at its address", func(t *testing.T) {
		ws, _, err := admin().dial(within(t), "/terminal?pod="+pod+"&container=app&appName=term&appNamespace=argocd&projectName=default&namespace=term", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.CloseNow()
		say := func(m map[string]any) {
			text, _ := json.Marshal(m)
			if err := ws.Write(within(t), websocket.MessageText, text); err != nil {
				t.Fatal(err)
			}
		}
		say(map[string]any{"operation": "resize", "rows": 10, "cols": 20})
		say(map[string]any{"operation": "stdin", "data": "grüß dich\n"})
		var all string
		for !strings.Contains(all, "you said grüß dich") || !strings.Contains(all, "[20x10]") {
			_, data, err := ws.Read(within(t))
			var m struct{ Operation, Data string }
			if err != nil || json.Unmarshal(data, &m) != nil || m.Operation != "stdout" {
				t.Fatalf("%s, %v", data, err)
			}
			all += m.Data
		}
	})
	t.Run("TERM-03 RBAC-09 what is not there, or not permitted, is refused before anything is opened", func(t *testing.T) {
		reader := newUser(t, "term-reader", "applications, get, default/*")
		stranger := newUser(t, "term-stranger", "exec, create, default/*")
		for name, c := range map[string]struct {
			by     user
			query  string
			status int
		}{
			"a pod of nobody":          {admin(), "podName=nobody&resourceNamespace=term", http.StatusNotFound},
			"no right exec":            {reader, there, http.StatusForbidden},
			"no right on applications": {stranger, there, http.StatusNotFound},
			"no sign-in":               {user{}, there, http.StatusUnauthorized},
		} {
			ws, status, err := c.by.dial(within(t), "/api/v1/applications/argocd/term/terminal?"+c.query, socket.Terminal, nil)
			if err == nil {
				_ = ws.CloseNow()
			}
			if status != c.status {
				t.Errorf("%s: %d", name, status)
			}
		}
		x := admin().terminal(t, "term", "podName="+pod+"&resourceNamespace=term&container=nothing")
		if _, end := x.end(t); end.Exited || !strings.Contains(end.Fix+end.Message, "side") {
			t.Errorf("a container that is not there: %+v", end)
		}
	})
	t.Run("TERM-01 without the setting there is none", func(t *testing.T) {
		set(t, "argocd-cm", "exec.enabled", nil)
		defer set(t, "argocd-cm", "exec.enabled", "true")
		if ws, status, err := admin().dial(within(t), "/api/v1/applications/argocd/term/terminal?"+there, socket.Terminal, nil); err == nil || status != http.StatusConflict {
			t.Errorf("%v %d", ws, status)
		}
	})
	t.Run("SEC-F4 SEC-H4 another site opens none with the cookie of a browser, and a token may be a subprotocol", func(t *testing.T) {
		path := "/api/v1/applications/argocd/term/terminal?" + there
		cookie := "capstan_session=" + admin().token
		for origin, want := range map[string]int{"https://evil.example.com": http.StatusForbidden, "": http.StatusForbidden, s.URL(): http.StatusSwitchingProtocols} {
			header := http.Header{"Cookie": {cookie}}
			if origin != "" {
				header.Set("Origin", origin)
			}
			ws, status, err := admin().dial(within(t), path, socket.Terminal, header)
			if err == nil {
				_ = ws.CloseNow()
			}
			if status != want {
				t.Errorf("origin %q: %d", origin, status)
			}
		}
		token := "bearer." + base64.RawURLEncoding.EncodeToString([]byte(admin().token))
		ws, status, err := admin().dial(within(t), path, socket.Terminal+","+token, http.Header{"Origin": {"https://other.example.com"}})
		if err != nil {
			t.Fatalf("%d: %v", status, err)
		}
		_ = ws.CloseNow()
	})
	t.Run("SEC-F7 huge output waits for its reader, and a message that is too large ends the session", func(t *testing.T) {
		x := admin().terminal(t, "term", there+"&command=flood")
		for range 100 {
			if channel, _ := x.next(t); channel != socket.ChannelStdout {
				t.Fatalf("channel %d", channel)
			}
		}
		_ = x.ws.Write(within(t), websocket.MessageBinary, make([]byte, 1<<20))
		for {
			if _, _, err := x.ws.Read(within(t)); err != nil {
				// The hub does not read the rest of the message, so its kernel may reset the
				// connection, or end it, also within a frame, before the reason has arrived.
				ended := errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
				if websocket.CloseStatus(err) != websocket.StatusMessageTooBig && !ended {
					t.Error(err)
				}
				audited(t, "session-end", "term")
				return
			}
		}
	})
}

func TestTerminalEnds(t *testing.T) {
	pod := openTerminals(t, "termend")
	there := "podName=" + pod + "&resourceNamespace=termend&container=app"
	rights := []string{"applications, get, default/*", "exec, create, default/*"}
	for name, c := range map[string]struct {
		id   string
		says string
		end  func(t *testing.T, who user)
		back func(t *testing.T)
	}{
		"right": {"SEC-F3 RBAC-09", "exec", func(t *testing.T, who user) { allow(t, who.name, rights[0]) }, nil},
		"account": {"SEC-F2 SEC-E7(part)", "sign", func(t *testing.T, who user) {
			if err := s.API.Do(within(t), http.MethodDelete, "/api/v1/users/"+who.name, nil, nil); err != nil {
				t.Fatal(err)
			}
		}, nil},
		"setting": {"TERM-01", "exec.enabled", func(t *testing.T, _ user) { set(t, "argocd-cm", "exec.enabled", nil) },
			func(t *testing.T) { set(t, "argocd-cm", "exec.enabled", "true") }},
		"policy": {"SEC-K9", "owner", func(t *testing.T, _ user) { policy(t, "portForward: {enabled: true}\n") }, func(t *testing.T) {
			policy(t, openPolicy)
			// The agent reads it again within a second.
			if err := poll.Until(within(t), func(context.Context) error {
				if _, end := admin().terminal(t, "termend", there+"&command=hello").end(t); !end.Exited {
					return errors.New(end.Message)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(c.id+" a session ends when the "+name+" goes", func(t *testing.T) {
			who := newUser(t, "termend-"+name, rights...)
			x := who.terminal(t, "termend", there)
			x.until(t, "$ ")
			c.end(t, who)
			if c.back != nil {
				defer c.back(t)
			}
			_, end := x.end(t)
			if end.Exited || !strings.Contains(end.Message+end.Fix, c.says) {
				t.Errorf("%+v", end)
			}
			if ended := audited(t, "session-end", "termend"); !strings.Contains(ended, "reason") {
				t.Error(ended)
			}
		})
	}
}

func TestAgentPolicy(t *testing.T) {
	pod := openTerminals(t, "termpol")
	t.Cleanup(func() { policy(t, openPolicy) })
	there := "podName=" + pod + "&resourceNamespace=termpol&container="
	refused := func(t *testing.T, container string) string {
		t.Helper()
		var last string
		err := poll.Until(within(t), func(context.Context) error {
			_, end := admin().terminal(t, "termpol", there+container+"&command=hello").end(t)
			if last = end.Message + " " + end.Fix; end.Exited {
				return errors.New("it ran")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return last
	}
	t.Run("SEC-K9 SEC-F6 the owner of a cluster caps namespaces and containers, whatever the hub says", func(t *testing.T) {
		for text, want := range map[string]string{
			"":                         "has not enabled it",
			"exec: {enabled: false}\n": "has not enabled it",
			"exec: {enabled: true, namespaces: ['*', '!termpol']}\n": "namespace termpol",
			"exec: {enabled: true, containers: [side]}\n":            "container app",
		} {
			policy(t, text)
			err := poll.Until(within(t), func(context.Context) error {
				if got := refused(t, "app"); !strings.Contains(got, want) {
					return fmt.Errorf("%q: %s", text, got)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("SEC-K9 a policy that cannot be read permits nothing, and the hub shows it", func(t *testing.T) {
		policy(t, "exec: {enabled: yes please}\n")
		err := poll.Until(within(t), func(context.Context) error {
			if got := refused(t, "app"); !strings.Contains(got, "cannot be read") {
				return errors.New(got)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var p apimodel.AgentPolicy
		if err := s.API.Do(within(t), http.MethodGet, "/api/v1/clusters/in-cluster/agent-policy", nil, &p); err != nil || p.Broken == "" || p.Mode != "cluster" {
			t.Errorf("%+v, %v", p, err)
		}
		if _, status := admin().logs(within(t), t, "termpol", ""); status != http.StatusForbidden {
			t.Errorf("logs are answered with %d", status)
		}
	})
	t.Run("SEC-K9 the hub shows what is permitted", func(t *testing.T) {
		policy(t, "exec: {enabled: true, maxDuration: 1h30m}\nallowPrune: false\n")
		err := poll.Until(within(t), func(ctx context.Context) error {
			var p apimodel.AgentPolicy
			if err := s.API.Do(ctx, http.MethodGet, "/api/v1/clusters/in-cluster/agent-policy", nil, &p); err != nil {
				return err
			}
			if !strings.Contains(string(p.Rules), `"maxDuration":"1h30m0s"`) || !strings.Contains(string(p.Rules), `"allowPrune":false`) || p.Broken != "" {
				return fmt.Errorf("%s %s", p.Rules, p.Broken)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		out, err := s.API.CLI(within(t), "", "cluster", "get", "in-cluster", "-o", "wide")
		if err != nil || !strings.Contains(out, "allowPrune: false") || !strings.Contains(out, "mode cluster") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("TERM-04 a session has a time box, which the owner sets", func(t *testing.T) {
		policy(t, "exec: {enabled: true, maxDuration: 2s}\n")
		err := poll.Until(within(t), func(context.Context) error {
			x := admin().terminal(t, "termpol", there+"app")
			x.until(t, "$ ")
			if x.started.MaxSeconds != 2 {
				return fmt.Errorf("%d seconds", x.started.MaxSeconds)
			}
			if _, end := x.end(t); end.Exited || !strings.Contains(end.Message, "2s") {
				t.Errorf("%+v", end)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
