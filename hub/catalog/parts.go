package catalog

import (
	"github.com/capstan-cd/capstan/hub"
)

// Pacer lets what follows from many writes wait for one another. It may not
// block.
type Pacer interface {
	// Arriving says that many objects are being written: work that follows from
	// them does best to wait, for a moment, until arrived is called.
	Arriving(tenant hub.TenantID) (arrived func())
	// Alone says that a request brings one object. It is through when through is
	// called with what follows from it, if anything does, which begins at once or
	// in a moment: others may come like this.
	Alone(tenant hub.TenantID) (through func(follows func()))
}

// An Inviter makes join tokens.
type Inviter interface {
	Invite() (token, prefix string, hash [32]byte, err error)
}

// Permits judges an application against its project and cluster. The error
// is the sentence that its condition shows.
type Permits func(r hub.Refresh, spec hub.ApplicationSpec) error
