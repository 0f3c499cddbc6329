package hub

import "encoding/json"

// A Project groups applications and limits what they may do.
type Project struct {
	ID     ProjectID `json:"id"`
	Tenant TenantID  `json:"-"`
	Meta
	Spec json.RawMessage `json:"spec"` // a ProjectSpec as given

	// Globals are the projects that it inherits from, and Broken is why they are
	// not known. Both are empty where only the project itself was read.
	Globals []Project `json:"-"`
	Broken  string    `json:"-"`
	// AppNamespaces is the tenant's application.namespaces, read with it.
	AppNamespaces string `json:"-"`
}
