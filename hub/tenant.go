package hub

import "time"

// A Tenant is an organisation. Nothing of one is visible to another.
type Tenant struct {
	ID          TenantID  `json:"id"`
	Name        string    `json:"name"`
	DisplayName string    `json:"displayName,omitempty"`
	Suspended   bool      `json:"suspended,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
}
