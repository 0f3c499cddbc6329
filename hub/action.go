package hub

// An Action is what a live object offers to people, such as a restart.
type Action struct {
	Name        string
	DisplayName string
	IconClass   string
	Disabled    bool // it cannot be run as the object is now
	Permitted   bool // the caller may run it
	Params      []ActionParam
}

// An ActionParam is a parameter of an action.
type ActionParam struct {
	Name    string
	Value   string
	Type    string
	Default string
}

// An ActionRequest is the wish to run an action.
type ActionRequest struct {
	ID     string // of this wish
	Name   string
	Params map[string]string

	Project     string // of the application
	Limits      ProjectSpec
	Destination Placement // that the limits are read for
}

// An ActionChange is an object that an action wrote.
type ActionChange struct {
	ObjectRef

	Created bool
}
