package catalog

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A requested is the field operation of an Application, as Argo CD has it
// (APP-14). Who asks is the caller, whatever stands in it.
type requested struct {
	ID   string `json:"id"` // of an operation that was read; asks for nothing
	Sync *struct {
		Revision        string       `json:"revision"`
		Revisions       []string     `json:"revisions"`
		SourcePositions []int        `json:"sourcePositions"`
		Source          *hub.Source  `json:"source"`
		Sources         []hub.Source `json:"sources"`
		Prune           bool         `json:"prune"`
		DryRun          bool         `json:"dryRun"`
		SyncOptions     []string     `json:"syncOptions"`
		Resources       []struct {
			Group     string `json:"group"`
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			Exclude   bool   `json:"exclude"`
		} `json:"resources"`
		SyncStrategy *struct {
			Apply *struct {
				Force bool `json:"force"`
			} `json:"apply"`
			Hook *struct {
				Force bool `json:"force"`
			} `json:"hook"`
		} `json:"syncStrategy"`
		Manifests []json.RawMessage `json:"manifests"`
	} `json:"sync"`
	Info  []hub.Info `json:"info"`
	Retry *hub.Retry `json:"retry"`
}

// readRequested returns the sync that the field operation asks for; nil if it
// asks for none. Manifests never come in an object: they would pass by what
// guards the sources (SEC-D4).
func readRequested(raw json.RawMessage) (*hub.SyncRequest, error) {
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var r requested
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fault.With(fault.New(fault.Invalid, "its field operation cannot be read"), "", "write it as Argo CD does: operation.sync, operation.info, operation.retry")
	}
	switch {
	case r.ID != "":
		return nil, nil
	case r.Sync == nil:
		return nil, fault.With(fault.New(fault.Invalid, "its field operation asks for nothing"), "", "set operation.sync, or leave operation out")
	case len(r.Sync.Manifests) > 0:
		return nil, fault.With(fault.New(fault.Denied, "an operation that is written into the object cannot bring manifests"), "",
			"leave out operation.sync.manifests, or sync them with capstan app sync --local")
	}
	q := hub.SyncRequest{Present: true, Options: hub.OperationOptions{
		Prune: r.Sync.Prune, DryRun: r.Sync.DryRun, SyncOptions: r.Sync.SyncOptions, Retry: r.Retry, Infos: r.Info,
	}}
	if s := r.Sync.SyncStrategy; s != nil {
		if s.Apply != nil && s.Hook != nil {
			return nil, fault.With(fault.New(fault.Invalid, "operation.sync.syncStrategy has both apply and hook"), "", "keep one of them")
		}
		q.Options.SkipHooks = s.Apply != nil
		q.Options.Force = s.Apply != nil && s.Apply.Force || s.Hook != nil && s.Hook.Force
	}
	for _, o := range r.Sync.Resources {
		text := o.Group + ":" + o.Kind + ":" + o.Name
		if o.Namespace != "" {
			text = o.Group + ":" + o.Kind + ":" + o.Namespace + "/" + o.Name
		}
		if o.Exclude {
			text = "!" + text
		}
		q.Options.Resources = append(q.Options.Resources, text)
	}
	if r.Sync.Revision != "" || len(r.Sync.Revisions) > 0 || r.Sync.Source != nil || len(r.Sync.Sources) > 0 {
		q.Override = &hub.Override{
			Revision: r.Sync.Revision, Revisions: r.Sync.Revisions, Positions: r.Sync.SourcePositions, Source: r.Sync.Source, Sources: r.Sync.Sources,
		}
	}
	return &q, checkSync(q)
}

// start begins the operation that came with an application, in the same
// transaction: if it is refused, nothing is written.
func (c *Catalog) start(ctx context.Context, w *writer, by hub.Caller, a hub.Application, q hub.SyncRequest) error {
	if err := w.need(access.Applications, access.Sync, objectOf(a)); err != nil {
		return err
	}
	if q.Override != nil && (q.Override.Source != nil || len(q.Override.Sources) > 0) {
		if err := w.need(access.Applications, access.Override, objectOf(a)); err != nil {
			return err
		}
	}
	q.Initiator = initiator(by)
	op, err := w.Deploy.Sync(ctx, a.ID, q)
	if err != nil {
		return fault.With(err, "application "+title(a.Namespace, a.Name), "")
	}
	w.wakes = append(w.wakes, op.Cluster)
	action := access.Sync
	if q.Options.DryRun {
		action += dryRunSuffix
	}
	w.note(action, access.Applications, objectOf(a), "", nil, map[string]any{"operation": op.ID, "revision": op.Revision, "asked": q.Options})
	return nil
}
