package hub

import (
	"encoding/json"
	"sync"
)

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
	// Pauses are those of automation that hold now, read with it.
	Pauses []AutomationPause `json:"-"`

	// Read is Effective for a project that many share; nil: each caller reads
	// the spec.
	Read func() (ProjectSpec, error) `json:"-"`
}

// Share makes Effective read the spec of this project and of its copies once.
// Nothing of them may be changed afterwards, nor of what Effective returns.
func (p *Project) Share() {
	whole := *p
	p.Read = sync.OnceValues(whole.Effective)
}
