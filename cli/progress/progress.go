// Package progress shows people how an application changes while a command waits for
// it: a line for each object and operation that is not as it was.
package progress

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// treePause is the shortest time between two reads of an application's objects.
const treePause = 500 * time.Millisecond

// A Progress writes the changes of applications. It writes colours to a terminal
// and plain lines elsewhere.
type Progress struct {
	api     *client.Client
	out     io.Writer
	palette output.Palette
	now     func() time.Time

	objects    map[string]string // what was last known of each object
	operations map[string]string // of each application
	read       map[string]time.Time
}

// To returns the progress of a command, which goes to w beside its result.
func To(w io.Writer, api *client.Client) *Progress {
	return &Progress{
		api: api, out: w, palette: output.PaletteOf(w), now: time.Now,
		objects: map[string]string{}, operations: map[string]string{}, read: map[string]time.Time{},
	}
}

// See writes what has changed since the last call. The objects are read at most
// twice a second, and once more when last is set. The first call for an application
// finds how it is, and writes only an operation that is in progress.
func (p *Progress) See(ctx context.Context, x apimodel.Application, last bool) {
	app := client.QualifiedName(x.Metadata)
	_, known := p.operations[app]
	p.operation(app, x.Status.OperationState, known)
	at, now := p.read[app], p.now()
	if !last && now.Sub(at) < treePause {
		return
	}
	tree, _, err := client.Call[apimodel.Tree](p.api.GetApplicationTree(ctx, x.Metadata.Namespace, x.Metadata.Name))
	if err != nil {
		return // what is waited for says why
	}
	p.read[app] = now
	for _, n := range tree.Nodes {
		p.object(app, n, !at.IsZero())
	}
}

// operation writes the operation of an application if it has changed.
func (p *Progress) operation(app string, op apimodel.OperationState, known bool) {
	is := op.Id + " " + string(op.Phase) + " " + op.Message
	before := p.operations[app]
	p.operations[app] = is
	over := op.Phase == "Succeeded" || op.Phase == "Failed" || op.Phase == "Error"
	if op.Phase == "" || is == before || !known && over {
		return
	}
	p.line(app, string(op.Kind), p.phase(string(op.Phase)), op.Message)
}

// object writes an object if it has changed.
func (p *Progress) object(app string, n apimodel.Node, known bool) {
	key := strings.Join([]string{app, n.Group, n.Kind, n.Namespace, n.Name}, "\x00")
	is := strings.Join([]string{string(n.Status), string(n.Health), n.Message}, "\x00")
	before, seen := p.objects[key]
	p.objects[key] = is
	if !known || is == before || !seen && n.Status == "" && n.Health == "" {
		return
	}
	name := n.Kind + " " + strings.TrimPrefix(n.Namespace+"/"+n.Name, "/")
	var states []string
	for _, s := range []string{string(n.Status), string(n.Health)} {
		if s != "" {
			states = append(states, p.state(s))
		}
	}
	p.line(app, name, strings.Join(states, " "), n.Message)
}

func (p *Progress) line(app, what, state, message string) {
	text := p.palette.Faint(p.now().Format(time.TimeOnly)) + "  " + output.Plain(app) + "  " + output.Plain(what) + "  " + state
	if message = strings.Join(strings.Fields(message), " "); message != "" {
		text += "  " + output.Plain(message)
	}
	fmt.Fprintln(p.out, text)
}

func (p *Progress) phase(phase string) string {
	switch phase {
	case "Succeeded":
		return p.palette.Good(phase)
	case "Failed", "Error":
		return p.palette.Bad(phase)
	}
	return p.palette.Pending(phase)
}

func (p *Progress) state(state string) string {
	switch state {
	case "Synced", "Healthy":
		return p.palette.Good(state)
	case "Degraded", "Missing":
		return p.palette.Bad(state)
	case "OutOfSync", "Progressing", "Suspended":
		return p.palette.Pending(state)
	}
	return output.Plain(state)
}
