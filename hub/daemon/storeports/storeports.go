// Package storeports lends a transaction of the store to the stages, as the
// ports that each of them asks for. It is the one place that knows both sides:
// the store does not know the ports, and no stage knows the store. It holds no
// logic. The daemon calls it, and tests that run a stage on a real store do.
// What always holds: all ports of one answer are of one transaction, so what
// the catalogue writes and what it has deployed are committed together.
package storeports

import (
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/store"
)

// Dispatch is a transaction as dispatch sees it.
func Dispatch(t *store.Tenant) dispatch.Tx {
	return dispatch.Tx{
		WorkQueue: t, ApplicationLocks: t, Destinations: t, RefreshResults: t, ApplicationRemover: t,
		HistoryLog: t, SnapshotStore: t, OperationReader: t, OperationWriter: t,
		LogWriter: t, LogReader: t, HolderReader: t, TombstoneStore: t,
	}
}

// Stream is a transaction as dispatch/stream sees it.
func Stream(t *store.Tenant) stream.Tx {
	return stream.Tx{LogReader: t, LogEnds: t, RewindLog: t, Restates: t, BlobReader: t}
}

// Catalog is a transaction as the catalogue sees it. What the catalogue has
// deployed goes through dispatch, in the same transaction.
func Catalog(t *store.Tenant) transact.Tx {
	d := deploys{t}
	return transact.Tx{
		PolicyReader: t,
		AccountPorts: transact.AccountPorts{
			UserReader: t, UserWriter: t, PasswordStore: t, SessionStore: t, TokenStore: t,
			ExchangeStore: t, SCIMTokenStore: t, SCIMUserStore: t, SCIMGroupStore: t, PersonReader: t, SignInStore: t, DeviceReader: t, DeviceStore: t,
		},
		ProjectPorts: transact.ProjectPorts{ProjectReader: t, ProjectWriter: t, RoleTokenStore: t},
		RepositoryPorts: transact.RepositoryPorts{
			RepositoryReader: t, RepositoryWriter: t, TemplateStore: t, DeferredStore: t, HostKeyStore: t,
		},
		ClusterPorts: transact.ClusterPorts{ClusterReader: t, ClusterWriter: t, Enroller: t, TrustWriter: t},
		ApplicationPorts: transact.ApplicationPorts{
			ApplicationReader: t, PlaceReader: t, ListReader: t, ObjectReader: t, RevisionReader: t, ApplicationLocks: t, ApplicationWriter: t, RefreshReader: t, RenderedStore: t,
			HistoryReader: t, OperationReader: t, SnapshotReader: t, SetReader: t, SetWriter: t, SetMemberStore: t,
		},
		SettingPorts: transact.SettingPorts{SettingReader: t, SettingWriter: t, PolicyVersionStore: t},
		RecordPorts:  transact.RecordPorts{AuditLog: t, AuditKeeper: t, QuotaStore: t, FeedQueue: t, IdempotencyStore: t, BulkReader: t, BulkWriter: t, DeliveryStore: t},
		Deploy:       transact.Deployer{Operator: d, Remover: d, AgentSettings: d},
	}
}

// Identity is the directory as the sign-in sees it.
func Identity(s *store.System) identity.Directory {
	return identity.Directory{TenantReader: s, SessionStore: s, TokenReader: s, KeyReader: s, FailureCounter: s, AddressBook: s}
}
