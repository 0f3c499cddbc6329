package daemon

import (
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/hub/replicas"
	"github.com/capstan-cd/capstan/hub/store"
)

// The store fits the interfaces of the stages by shape.
var (
	_ dispatch.Tx       = (*store.Tenant)(nil)
	_ stream.Tx         = (*store.Tenant)(nil)
	_ catalog.Tx        = (*store.Tenant)(nil)
	_ catalog.Directory = (*store.System)(nil)
	_ fleet.Vault       = (*store.System)(nil)
	_ fleet.Enrolments  = (*store.System)(nil)
	_ fleet.Revocations = (*store.System)(nil)
	_ fleet.Presence    = attachments{}
	_ replicas.Store    = (*store.System)(nil)
)
