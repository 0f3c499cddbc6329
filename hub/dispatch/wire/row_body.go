package wire

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// A State is all that an application's row in the desired log is made of.
type State struct {
	App        hub.Application
	Spec       hub.ApplicationSpec
	Project    hub.ProjectSpec
	Cluster    hub.Placement // the destination's cluster
	Generation int64
	Target     *hub.Snapshot
	Accepted   *hub.Snapshot
	Tombstones []hub.Tombstone
	Still      bool // nothing is to be done by itself
}

// Body serialises a state, and returns the lists that it refers to. Equal states
// give equal bytes.
func (s State) Body(keys func() (hub.TenantKeys, error)) ([]byte, []TombstoneList, error) {
	inline, lists, err := splitTombstones(s.Tombstones, keys)
	if err != nil {
		return nil, nil, err
	}
	m := &linkv1.AppState{
		Name: s.App.Name, AppNamespace: s.App.Namespace, Namespace: s.Spec.Destination.Namespace,
		Project: s.App.Project, Generation: uint64(s.Generation),
		Target: snapshotRef(s.Target), Accepted: snapshotRef(s.Accepted),
		Policy: policyOf(s.App, s.Spec, s.Project, s.Cluster), Tombstones: inline, Orphans: orphansOf(s.Project),
	}
	for i := range lists {
		m.TombstoneLists = append(m.TombstoneLists, lists[i].Digest[:])
	}
	if s.Still {
		m.Policy.Automated, m.Policy.SelfHeal = false, false
	}
	if at := s.App.ApprovedAt(); !at.IsZero() {
		m.ApprovedUnixNano = at.UnixNano()
	}
	body, err := Marshal(m)
	return body, lists, err
}

// Listed are the objects that the body lists itself, as Digests finds them.
func (s State) Listed() []hub.Digest {
	out := []hub.Digest{}
	for _, snap := range []*hub.Snapshot{s.Target, s.Accepted} {
		switch {
		case snap == nil:
		case len(snap.Lists) > 0:
			out = append(out, snap.Lists...)
		default:
			for i := range snap.Objects {
				out = append(out, snap.Objects[i].Digest)
			}
		}
	}
	return out
}

// Marshal serialises a message; equal messages give equal bytes.
func Marshal(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("serialise %T: %w", m, err)
	}
	return b, nil
}

func snapshotRef(s *hub.Snapshot) *linkv1.SnapshotRef {
	if s == nil {
		return nil
	}
	ref := &linkv1.SnapshotRef{Id: string(s.ID), Revision: s.Revision}
	if len(s.Lists) > 0 {
		refLists(ref, s.Lists)
		return ref
	}
	ref.Objects = objectRefs(s.Objects)
	return ref
}

func objectRefs(objects []hub.ObjectRef) []*linkv1.ObjectRef {
	out := make([]*linkv1.ObjectRef, len(objects))
	for i := range objects {
		o := &objects[i]
		out[i] = &linkv1.ObjectRef{
			Digest: o.Digest[:], Group: o.Group, Version: o.Version, Kind: o.Kind,
			Namespace: o.Namespace, Name: o.Name, Wave: o.Wave, Hook: o.Hook,
		}
	}
	return out
}

func policyOf(app hub.Application, spec hub.ApplicationSpec, project hub.ProjectSpec, cluster hub.Placement) *linkv1.Policy {
	p := &linkv1.Policy{
		Automated: app.Follows(spec), SelfHeal: app.KeepsLive(spec), Prune: spec.Prune(), Limits: plan.Limits(cluster, app.Project, project),
		ServiceAccount: project.ServiceAccount(app, cluster.Destination),
	}
	most := app.PruneLimit(spec).And(project.Prunes)
	p.PruneLimit, p.PruneLimitPercent = uint32(most.Objects), uint32(most.Percent)
	if spec.SyncPolicy != nil {
		p.SyncOptions = hub.ReadableSyncOptions(spec.SyncPolicy.SyncOptions)
		if meta := spec.SyncPolicy.ManagedNamespaceMetadata; meta != nil {
			p.NamespaceLabels, p.NamespaceAnnotations = meta.Labels, meta.Annotations
		}
	}
	for _, w := range project.WindowsOf(app.Name, spec.Destination) {
		p.Windows = append(p.Windows, &linkv1.SyncWindow{
			Kind: w.Kind, Schedule: w.Schedule, Duration: w.Duration, TimeZone: w.TimeZone, Description: w.Description,
			ManualSync: w.ManualSync, SyncOverrun: w.SyncOverrun, SelfHeal: w.SelfHeal,
		})
	}
	for _, d := range spec.IgnoreDifferences {
		p.Ignore = append(p.Ignore, &linkv1.IgnoreRule{
			Group: d.Group, Kind: d.Kind, Name: d.Name, Namespace: d.Namespace,
			JsonPointers: d.JSONPointers, Jq: d.JQPathExpressions, Managers: d.ManagedFieldsManagers,
		})
	}
	return p
}

// OperationBody serialises an operation. Its objects are those of the state
// row before it, unless it has a snapshot of its own.
func OperationBody(op hub.Operation, spec hub.ApplicationSpec, own *hub.Snapshot) ([]byte, error) {
	kinds := map[hub.OperationKind]linkv1.OperationKind{
		hub.SyncOperation:     linkv1.OperationKind_OPERATION_KIND_SYNC,
		hub.RollbackOperation: linkv1.OperationKind_OPERATION_KIND_ROLLBACK,
		hub.DeleteOperation:   linkv1.OperationKind_OPERATION_KIND_DELETE,
	}
	m := &linkv1.Operation{
		Id: string(op.ID), Kind: kinds[op.Kind], Fence: uint64(op.Fence),
		Options: &linkv1.Options{
			Prune: op.Options.Prune, DryRun: op.Options.DryRun, SkipHooks: op.Options.SkipHooks, Force: op.Options.Force,
			SyncOptions: hub.ReadableSyncOptions(op.Options.SyncOptions), Resources: op.Options.Resources,
		},
		DeadlineUnix: op.Deadline.Unix(), Initiator: op.Initiator.Username, Automated: op.Initiator.Automated,
		Attempt: uint32(op.Attempt), CreatedUnixNano: op.CreatedAt.UnixNano(),
		Traceparent: op.Trace,
	}
	if !op.Options.Asked.IsZero() {
		m.AskedUnixNano = op.Options.Asked.UnixNano()
	}
	switch {
	case own != nil:
		m.Snapshot = snapshotRef(own)
		m.Snapshot.Revision = op.Revision
	case op.Snapshot != "":
		m.Snapshot = &linkv1.SnapshotRef{Id: string(op.Snapshot), Revision: op.Revision}
	}
	if spec.SyncPolicy != nil && spec.SyncPolicy.ManagedNamespaceMetadata != nil {
		meta := spec.SyncPolicy.ManagedNamespaceMetadata
		m.Options.NamespaceLabels, m.Options.NamespaceAnnotations = meta.Labels, meta.Annotations
	}
	return Marshal(m)
}

// orphansOf is what a project asks for; nil if it does not look for orphaned
// objects.
func orphansOf(p hub.ProjectSpec) *linkv1.Orphans {
	if p.OrphanedResources == nil {
		return nil
	}
	out := &linkv1.Orphans{Warn: p.OrphanedResources.Warns()}
	for _, r := range p.OrphanedResources.Ignore {
		out.Ignore = append(out.Ignore, &linkv1.OrphanRule{Group: r.Group, Kind: r.Kind, Name: r.Name})
	}
	return out
}
