package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/usage"
)

// ports are one that is listened on here, and one of a pod.
type ports struct{ local, remote int }

// readPorts reads 8080, 8080:80 or :80.
func readPorts(text string) (ports, error) {
	local, remote, two := strings.Cut(text, ":")
	if !two {
		remote = local
	}
	if local == "" {
		local = "0"
	}
	var p ports
	var err, failed error
	p.local, err = strconv.Atoi(local)
	p.remote, failed = strconv.Atoi(remote)
	if err != nil || failed != nil || p.local < 0 || p.local > 65535 || p.remote < 1 || p.remote > 65535 {
		return p, usage.Errorf("%q is no port; write 8080, 8080:80 or :80", text)
	}
	return p, nil
}

func (a commands) portForward() *cobra.Command {
	var pod, namespace, address string
	c := &cobra.Command{
		Use: "port-forward NAME PORT...", Short: "Forward local ports to a pod of an application",
		Long:    "Forward local ports to a pod of an application, until it is interrupted.\n\nA port is written 8080, LOCAL:REMOTE, or :REMOTE for any free local one. Needs the right port-forward, create, and the permission of the cluster's owner.",
		Example: "  capstan app port-forward shop 8080:80\n  capstan app port-forward shop --pod web-5d4f :5432",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage.Errorf("it takes the name of an application and at least one port")
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			appNamespace, name := client.SplitName(args[0])
			if pod == "" {
				if pod, namespace, err = healthyPod(cmd.Context(), api, appNamespace, name); err != nil {
					return err
				}
			}
			f := forwarding{commands: a, api: api, app: []string{appNamespace, name}, pod: pod, namespace: namespace}
			return f.run(cmd.Context(), address, args[1:])
		},
	}
	c.Flags().StringVar(&pod, "pod", "", "the pod (default: the first one that is healthy)")
	c.Flags().StringVar(&namespace, "namespace", "", "namespace of the pod")
	c.Flags().StringVar(&address, "address", "127.0.0.1", "local address to listen on")
	return c
}

// healthyPod is the first pod of an application that is healthy.
func healthyPod(ctx context.Context, api *client.Client, namespace, app string) (pod, in string, err error) {
	tree, _, err := client.Call[tree](api.GetApplicationTree(ctx, namespace, app))
	if err != nil {
		return "", "", err
	}
	for _, n := range tree.Nodes {
		if n.Kind == "Pod" && n.Group == "" && n.Health == "Healthy" && !n.Orphaned {
			return n.Name, n.Namespace, nil
		}
	}
	return "", "", usage.Errorf("application %s has no healthy pod; name one with --pod", app)
}

// forwarding is one pod to whose ports connections go.
type forwarding struct {
	commands
	api            *client.Client
	app            []string
	pod, namespace string
}

// run listens until ctx ends.
func (f forwarding) run(ctx context.Context, address string, args []string) error {
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	var wait sync.WaitGroup
	defer wait.Wait()
	for _, arg := range args {
		p, err := readPorts(arg)
		if err != nil {
			return err
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(p.local)))
		if err != nil {
			return fmt.Errorf("listen on port %d: %w", p.local, err)
		}
		listeners = append(listeners, l)
		context.AfterFunc(ctx, func() { _ = l.Close() })
		fmt.Fprintf(f.Out, "Forwarding from %s to port %d of pod %s\n", l.Addr(), p.remote, f.pod)
		wait.Go(func() { f.accept(ctx, l, p.remote) })
	}
	<-ctx.Done()
	return nil
}

// accept serves connections until the listener is closed.
func (f forwarding) accept(ctx context.Context, l net.Listener, port int) {
	var wait sync.WaitGroup
	defer wait.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		wait.Go(func() {
			defer func() { _ = conn.Close() }()
			if err := f.connect(ctx, conn, port); err != nil && ctx.Err() == nil {
				f.Note("capstan: port %d of pod %s: %v", port, f.pod, err)
			}
		})
	}
}

// connect passes the bytes of one connection.
func (f forwarding) connect(ctx context.Context, conn net.Conn, port int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{"podName": {f.pod}, "port": {strconv.Itoa(port)}}
	set(q, "resourceNamespace", f.namespace)
	ws, err := dial(ctx, f.api, "/api/v1/applications/{namespace}/{name}/port-forward", f.app, q, forwardProtocol)
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() { // ends with the connection, which is closed when this function returns
		buffer := make([]byte, inputChunk)
		for {
			n, err := conn.Read(buffer)
			if n > 0 && ws.Write(ctx, websocket.MessageBinary, buffer[:n]) != nil {
				return
			}
			if err != nil {
				_ = ws.Write(ctx, websocket.MessageBinary, nil) // the end of what is sent
				return
			}
		}
	}()
	for {
		_, data, err := ws.Read(ctx)
		var closed websocket.CloseError
		switch {
		case errors.As(err, &closed) && closed.Code == websocket.StatusNormalClosure:
			return nil
		case errors.As(err, &closed) && closed.Reason != "":
			return errors.New(closed.Reason)
		case err != nil:
			return err
		}
		if _, err := conn.Write(data); err != nil {
			return nil //nolint:nilerr // the local side has closed its connection
		}
	}
}
