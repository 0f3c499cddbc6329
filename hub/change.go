package hub

// A Change is one step of the feed of a tenant.
type Change struct {
	Cursor string `json:"cursor"` // opaque: it reveals nothing to clients
	Kind   string `json:"kind"`   // application, resources, operation, cluster, repository, project, applicationset
	ID     string `json:"id"`
	Gone   bool   `json:"gone,omitempty"`
}
