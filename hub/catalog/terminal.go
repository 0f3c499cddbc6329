package catalog

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/audit"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Keys of SettingsMap about terminals (TERM-01, TERM-02).
const (
	execEnabledKey = "exec.enabled"
	execShellsKey  = "exec.shells"
	defaultShells  = "bash,sh,powershell,cmd"
)

// A RemoteSession is a session in a pod that was begun.
type RemoteSession struct {
	View
	Pod    hub.ObjectRef
	Shells []string // of the setting
	detail map[string]any
	since  time.Time
	right  string
}

// BeginExec checks that the caller may run commands in a pod of an application,
// and records it (RBAC-09, TERM-01, TERM-03). Without a name the pod is the first
// one that is healthy.
func (c *Catalog) BeginExec(ctx context.Context, by hub.Caller, namespace, name string, pod hub.ObjectRef, container string, command []string) (RemoteSession, error) {
	detail := map[string]any{}
	if container != "" {
		detail["container"] = container
	}
	if len(command) > 0 {
		detail["command"] = command[0] // arguments may be secrets
	}
	return c.beginRemote(ctx, by, namespace, name, access.Exec, pod, detail)
}

// BeginForward checks that the caller may connect to a port of a pod, and records
// it.
func (c *Catalog) BeginForward(ctx context.Context, by hub.Caller, namespace, name string, pod hub.ObjectRef, port int) (RemoteSession, error) {
	return c.beginRemote(ctx, by, namespace, name, access.PortForward, pod, map[string]any{"port": port})
}

func (c *Catalog) beginRemote(ctx context.Context, by hub.Caller, namespace, name, right string, pod hub.ObjectRef, detail map[string]any) (s RemoteSession, err error) {
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if s.View, err = w.streamed(ctx, namespace, name, right, access.Create); err != nil {
			return err
		}
		if s.Pod, err = w.podOf(ctx, s.Application, pod); err != nil {
			return err
		}
		if right == access.Exec {
			if s.Shells, err = w.shells(ctx); err != nil {
				return w.Refuse(right, access.Create, objectOf(s.Application), err)
			}
		}
		detail["pod"] = s.Pod.Namespace + "/" + s.Pod.Name
		s.detail, s.since, s.right = detail, c.parts.Service.Now(), right
		w.Note("session-begin", right, objectOf(s.Application), "", nil, detail)
		return nil
	})
	return s, err
}

// podOf finds a pod among the objects of an application.
func (r *reader) podOf(ctx context.Context, a hub.Application, want hub.ObjectRef) (hub.ObjectRef, error) {
	nodes, err := r.Resources(ctx, a.ID)
	if err != nil {
		return want, err
	}
	i := slices.IndexFunc(nodes, func(n hub.Resource) bool {
		switch {
		case n.Orphan || n.Group != "" || n.Kind != "Pod":
			return false
		case want.Name == "":
			return n.Health == hub.Healthy && (want.Namespace == "" || want.Namespace == n.Namespace)
		}
		return n.Name == want.Name && (want.Namespace == "" || want.Namespace == n.Namespace)
	})
	switch {
	case i >= 0:
		return hub.ObjectRef{Version: "v1", Kind: "Pod", Namespace: nodes[i].Namespace, Name: nodes[i].Name}, nil
	case want.Name == "":
		return want, fault.New(fault.Missing, "application %q has no healthy pod", title(a.Namespace, a.Name))
	}
	return want, fault.New(fault.Missing, "application %q has no Pod %q", title(a.Namespace, a.Name), want.Name)
}

// shells are those that may be opened; an error: none, because nobody has enabled
// terminals.
func (r *reader) shells(ctx context.Context) (shells []string, err error) {
	set, err := r.SettingsOf(ctx, []string{hub.SettingsMap}, []string{execEnabledKey, execShellsKey}, "")
	if err != nil {
		return nil, err
	}
	enabled, list := false, defaultShells
	for _, s := range set {
		switch s.Key {
		case execEnabledKey:
			enabled = s.Value == "true"
		case execShellsKey:
			list = s.Value
		}
	}
	if !enabled {
		return nil, fault.With(fault.New(fault.Conflict, "terminals are not enabled"), "", `an admin can set exec.enabled: "true" in argocd-cm`)
	}
	for _, name := range strings.Split(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			shells = append(shells, name)
		}
	}
	if len(shells) == 0 {
		return nil, fault.With(fault.New(fault.Conflict, "exec.shells names no shell"), "", "an admin can set exec.shells in argocd-cm")
	}
	return shells, nil
}

// MayRemain reports by its error whether the caller may still have a session
// open.
func (c *Catalog) MayRemain(ctx context.Context, by hub.Caller, s RemoteSession) error {
	return c.ofApplication(ctx, by, s.Namespace, s.Name, func(ctx context.Context, r *reader, a hub.Application) error {
		if err := r.Need(s.right, access.Create, objectOf(a)); err != nil {
			return err
		}
		if s.right != access.Exec {
			return nil
		}
		_, err := r.shells(ctx)
		return err
	})
}

// A RemoteEnd is what is known at the end of a session.
type RemoteEnd struct {
	Started *hub.TerminalStarted // nil: it never started
	In, Out int64                // bytes
	Exit    *int
	Reason  string // why it was ended; empty: by itself
}

// EndRemote records the end of a session (TERM-05).
func (c *Catalog) EndRemote(ctx context.Context, by hub.Caller, s RemoteSession, e RemoteEnd) error {
	detail := map[string]any{"bytesIn": e.In, "bytesOut": e.Out, "seconds": int64(c.parts.Service.Now().Sub(s.since).Seconds())}
	for k, v := range s.detail {
		detail[k] = v
	}
	if e.Started != nil {
		detail["container"], detail["podUid"] = e.Started.Container, e.Started.UID
		if len(e.Started.Argv) > 0 {
			detail["command"] = e.Started.Argv[0]
		}
	}
	if e.Exit != nil {
		detail["exitCode"] = *e.Exit
	}
	return c.parts.Service.Record(ctx, by, audit.Entry{
		Action: "session-end", Resource: s.right, Object: objectOf(s.Application), Result: audit.Allowed, Reason: e.Reason, After: detail,
	})
}
