package hub

// An ApplicationPlace is what policies call an application by.
type ApplicationPlace struct {
	ID        ApplicationID
	Namespace string
	Name      string
	Project   string
}
