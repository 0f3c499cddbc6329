package validation

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A requested is the field operation of an Application, as Argo CD has it
// (APP-14). Who asks is the caller, whatever stands in it.
type RequestedOperation struct {
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

// ReadRequested returns the sync that the field operation asks for; nil if it
// asks for none. Manifests never come in an object: they would pass by what
// guards the sources (SEC-D4).
func ReadRequested(raw json.RawMessage) (*hub.SyncRequest, error) {
	if text := bytes.TrimSpace(raw); len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	var r RequestedOperation
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
	return &q, CheckSync(q)
}

// CheckSync validates what a person asks of a sync.
func CheckSync(r hub.SyncRequest) error {
	if r.Local != nil && r.Override != nil {
		return fault.With(fault.New(fault.Invalid, "manifests and a revision or source are both given"), "", "give one of them")
	}
	if err := hub.RefuseSyncOptions(r.Options.SyncOptions); err != nil {
		return err
	}
	return checkRetry(r.Options.Retry)
}

// ReplaceOption is the option that asks for replacement or force; empty: none.
func ReplaceOption(options []string) string {
	for _, name := range [...]string{"Replace", "Force"} {
		if v, _ := manifest.Option(options, name); strings.EqualFold(v, "true") {
			return name
		}
	}
	return ""
}
