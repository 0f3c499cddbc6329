package hub

import "time"

// An ExecRequest is a command that is run in a container.
type ExecRequest struct {
	LogTarget // an empty container is the first one

	Commands [][]string // the first one that the container has is run
	TTY      bool
	Stdin    bool
	Size     TerminalSize
}

// TerminalSize is that of a terminal; zero: not known.
type TerminalSize struct {
	Columns uint32 `json:"cols"`
	Rows    uint32 `json:"rows"`
}

// TerminalInput is one message to a command: one of its fields is set.
type TerminalInput struct {
	Data []byte
	Size *TerminalSize
	End  bool // nothing more is typed
}

// TerminalOutput is one message of a command: one of its fields is set.
type TerminalOutput struct {
	Started        *TerminalStarted
	Stdout, Stderr []byte
	Exit           *int
}

// TerminalStarted is what was started.
type TerminalStarted struct {
	UID       string // of the pod
	Container string
	Argv      []string
	Most      time.Duration // how long it may last
	Idle      time.Duration // how long nothing may be typed; zero: as long
}

// A ForwardTarget is a port of a pod.
type ForwardTarget struct {
	Namespace string
	Pod       string
	Port      int
}

// An AgentPolicy is what the owner of a cluster permits its agent to do.
type AgentPolicy struct {
	Mode       string
	Namespaces []string // that it has rights in; empty: all
	Broken     string   // why the policy cannot be read; then nothing is permitted
	Rules      []byte   // JSON
}
