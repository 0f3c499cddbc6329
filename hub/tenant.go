package hub

import "time"

// A Tenant is an organisation. Nothing of one is visible to another.
type Tenant struct {
	ID          TenantID `json:"id"`
	Name        string   `json:"name"`
	DisplayName string   `json:"displayName,omitempty"`
	// Suspended: nobody signs in, nothing is fetched, rendered or synced, and
	// agents are not connected. They enforce the last state. A tenant that is
	// being deleted is suspended too.
	Suspended       bool       `json:"suspended,omitempty"`
	SuspendedReason string     `json:"suspendedReason,omitempty"`
	SuspendedAt     *time.Time `json:"suspendedAt,omitempty"`
	// DeletedAt is when the deletion was requested, and PurgeAt when everything
	// of the tenant is removed for ever. It can be restored until then.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	PurgeAt   *time.Time `json:"purgeAt,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
}

// Deleting reports whether the tenant is in the grace period of its deletion.
func (t Tenant) Deleting() bool { return t.PurgeAt != nil }

// A TenantState is what each replica follows of a tenant.
type TenantState struct {
	ID        TenantID
	Suspended bool
}

// TenantCounts are how many things a tenant has.
type TenantCounts struct {
	Applications int64 `json:"applications"`
	Projects     int64 `json:"projects"`
	Clusters     int64 `json:"clusters"`
	Repositories int64 `json:"repositories"`
	Users        int64 `json:"users"`
	Tokens       int64 `json:"tokens"`
	AuditRecords int64 `json:"auditRecords"`
}
