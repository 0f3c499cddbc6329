package hub

// Phase is where an operation stands.
type Phase string

// The phases. An operation is over in the last three.
const (
	Pending     Phase = "Pending" // in the log, not yet started by the agent
	Running     Phase = "Running"
	Terminating Phase = "Terminating"
	Succeeded   Phase = "Succeeded"
	Failed      Phase = "Failed"
	Errored     Phase = "Error"
)

// Over reports whether nothing more will happen in this phase.
func (p Phase) Over() bool { return p == Succeeded || p == Failed || p == Errored }
