package storeports

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/store"
)

// deploys is dispatch as the catalogue sees it, in one transaction.
type deploys struct{ t *store.Tenant }

func (d deploys) Sync(ctx context.Context, app hub.ApplicationID, r hub.SyncRequest) (hub.Operation, error) {
	return dispatch.Sync(ctx, Dispatch(d.t), app, r)
}

func (d deploys) Local(ctx context.Context, keys hub.TenantKeys, app hub.ApplicationID, r hub.SyncRequest) (hub.Operation, error) {
	return dispatch.Local(ctx, Dispatch(d.t), dispatch.Keys{Digest: keys.Digest, Object: keys.Object}, app, r)
}

func (d deploys) Rollback(ctx context.Context, app hub.ApplicationID, r transact.RollbackRequest, options hub.OperationOptions) (hub.Operation, error) {
	return dispatch.Rollback(ctx, Dispatch(d.t), app, r.Entry, r.Reason, options, r.Initiator)
}

func (d deploys) Resume(ctx context.Context, app hub.ApplicationID) error {
	return dispatch.Resume(ctx, Dispatch(d.t), app)
}

func (d deploys) Terminate(ctx context.Context, app hub.ApplicationID, by hub.Initiator) (hub.Operation, error) {
	return dispatch.Terminate(ctx, Dispatch(d.t), app, by)
}

func (d deploys) Delete(ctx context.Context, app hub.ApplicationID, deletion hub.Deletion, by hub.Initiator) ([]hub.ClusterID, error) {
	return dispatch.Delete(ctx, Dispatch(d.t), app, deletion, by)
}

func (d deploys) Approve(ctx context.Context, app hub.ApplicationID) (hub.Operation, error) {
	return dispatch.Approve(ctx, Dispatch(d.t), app)
}

func (d deploys) Abandon(ctx context.Context, app hub.ApplicationID) ([]hub.ObjectRef, []hub.ClusterID, error) {
	return dispatch.Abandon(ctx, Dispatch(d.t), app)
}

func (d deploys) SendSettings(ctx context.Context, bodies map[hub.ClusterID][]byte) error {
	return dispatch.Settings(ctx, d.t, bodies)
}
