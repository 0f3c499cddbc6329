package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// Subprotocols and channels of the hub's WebSockets, as openapi.yaml has them.
const (
	terminalProtocol = "capstan.terminal.v1"
	forwardProtocol  = "capstan.port-forward.v1"

	channelStdin   = 0
	channelStdout  = 1
	channelStderr  = 2
	channelEnd     = 3
	channelResize  = 4
	channelStarted = 5
	channelEOF     = 255

	inputChunk = 32 << 10
	sizeEvery  = 250 * time.Millisecond
)

// dial opens a WebSocket of the hub.
func dial(ctx context.Context, api *client.Client, path string, values []string, query url.Values, protocol string) (*websocket.Conn, error) {
	address, header, by := api.Socket(query, path, values...)
	ws, res, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPHeader: header, HTTPClient: by, Subprotocols: []string{protocol}})
	if err != nil && res != nil && res.StatusCode >= http.StatusBadRequest {
		_, err := client.Read(res, nil)
		return nil, err
	}
	if err != nil {
		return nil, client.Unreachable(err)
	}
	ws.SetReadLimit(1 << 20)
	return ws, nil
}

func (a commands) exec() *cobra.Command {
	var pod, namespace, container string
	var noTTY bool
	c := &cobra.Command{
		Use: "exec NAME [-- COMMAND ARG...]", Short: "Run a command, or open a shell, in a container of an application",
		Long:    "Run a command, or open a shell, in a container of an application.\n\nThe exit code is that of the command. Needs the right exec, create, the setting exec.enabled, and the permission of the cluster's owner.",
		Example: "  capstan app exec shop\n  capstan app exec shop --pod web-5d4f -c app\n  capstan app exec shop -- cat /etc/hostname\n  tar c . | capstan app exec shop -- tar x -C /tmp",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 1 && cmd.ArgsLenAtDash() != 1 {
				return usage.Errorf("it takes the name of an application, and after -- a command")
			}
			api, err := a.Client()
			if err != nil {
				return err
			}
			appNamespace, name := client.SplitName(args[0])
			q := url.Values{"command": args[1:]}
			set(q, "podName", pod)
			set(q, "resourceNamespace", namespace)
			set(q, "container", container)
			in, terminal := a.terminal()
			tty := terminal && !noTTY && (len(args) == 1 || output.IsTerminal(a.Out))
			q.Set("tty", strconv.FormatBool(tty))
			if columns, rows, err := term.GetSize(int(os.Stdout.Fd())); tty && err == nil {
				q.Set("cols", strconv.Itoa(columns))
				q.Set("rows", strconv.Itoa(rows))
			}
			ws, err := dial(cmd.Context(), api, "/api/v1/applications/{namespace}/{name}/terminal", []string{appNamespace, name}, q, terminalProtocol)
			if err != nil {
				return err
			}
			defer func() { _ = ws.CloseNow() }()
			if tty {
				state, err := term.MakeRaw(int(in.Fd()))
				if err != nil {
					return fmt.Errorf("prepare the terminal: %w", err)
				}
				defer func() { _ = term.Restore(int(in.Fd()), state) }()
			}
			return a.attach(cmd.Context(), ws, tty)
		},
	}
	f := c.Flags()
	f.StringVar(&pod, "pod", "", "the pod (default: the first one that is healthy)")
	f.StringVar(&namespace, "namespace", "", "namespace of the pod")
	f.StringVarP(&container, "container", "c", "", "the container (default: the first one)")
	f.BoolVar(&noTTY, "no-tty", false, "give the command no terminal")
	return c
}

// set sets a parameter that is not empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// terminal is where a person types; false: input comes from elsewhere.
func (a commands) terminal() (*os.File, bool) {
	f, is := a.In.(*os.File)
	return f, is && term.IsTerminal(int(f.Fd()))
}

// attach passes input and output until the command ends.
func (a commands) attach(ctx context.Context, ws *websocket.Conn, tty bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	send := func(channel byte, data []byte) error {
		return ws.Write(ctx, websocket.MessageBinary, append([]byte{channel}, data...))
	}
	go a.typed(send) // ends with the input, or with the process
	if tty {
		go resized(ctx, send) // ends with ctx
	}
	for {
		_, data, err := ws.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return client.Unreachable(errors.New("the hub has broken off the session"))
		case len(data) == 0:
			continue
		}
		switch data[0] {
		case channelStdout:
			_, err = a.Out.Write(data[1:])
		case channelStderr:
			_, err = a.Err.Write(data[1:])
		case channelEnd:
			return ended(data[1:])
		}
		if err != nil {
			return err
		}
	}
}

// typed sends the input.
func (a commands) typed(send func(byte, []byte) error) {
	buffer := make([]byte, inputChunk)
	for {
		n, err := a.In.Read(buffer)
		if n > 0 && send(channelStdin, buffer[:n]) != nil {
			return
		}
		if err != nil {
			_ = send(channelEOF, nil) // the session has ended otherwise
			return
		}
	}
}

// resized sends the size of the terminal when it changes.
func resized(ctx context.Context, send func(byte, []byte) error) {
	tick := time.NewTicker(sizeEvery)
	defer tick.Stop()
	lastColumns, lastRows := 0, 0
	for {
		columns, rows, err := term.GetSize(int(os.Stdout.Fd()))
		if err == nil && (columns != lastColumns || rows != lastRows) {
			lastColumns, lastRows = columns, rows
			text, _ := json.Marshal(map[string]int{"rows": rows, "cols": columns}) // of numbers
			if send(channelResize, text) != nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// ended is the result of a command.
func ended(text []byte) error {
	var end apimodel.TerminalEnd
	if err := json.Unmarshal(text, &end); err != nil {
		return client.Unreachable(err)
	}
	switch {
	case !end.Exited:
		return errors.New(strings.TrimSuffix(end.Message+"; "+end.Fix, "; "))
	case end.ExitCode != 0:
		return exit.DifferCode(end.ExitCode)
	}
	return nil
}
