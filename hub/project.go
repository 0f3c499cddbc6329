package hub

import "encoding/json"

// A Project groups applications and limits what they may do.
type Project struct {
	ID     ProjectID `json:"id"`
	Tenant TenantID  `json:"-"`
	Meta
	Spec json.RawMessage `json:"spec"` // a ProjectSpec as given
}
