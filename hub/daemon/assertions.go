package daemon

import (
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/hub/replicas"
	"github.com/capstan-cd/capstan/hub/store"
)

// The store fits the interfaces of the stages by shape.
var (
	_ fleet.Vault       = (*store.System)(nil)
	_ fleet.Enrolments  = (*store.System)(nil)
	_ fleet.Revocations = (*store.System)(nil)
	_ fleet.Presence    = attachments{}
	_ fleet.Refusals    = attachments{}
	_ replicas.Store    = (*store.System)(nil)
)
