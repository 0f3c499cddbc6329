package transact

import "github.com/capstan-cd/capstan/shared/fault"

// An Outcome is what became of a write.
type Outcome string

// The outcomes.
const (
	Created    Outcome = "created"
	Configured Outcome = "configured"
	Unchanged  Outcome = "unchanged"
)

// ErrTaken is the answer to making what the caller may see that there is.
func ErrTaken(object string) error {
	return fault.With(fault.New(fault.Conflict, "it is there already"), object, "change it instead, or choose another name")
}

// CodeStale is the code of the error for a version that is no longer the
// newest.
const CodeStale = "CAP-1412"

// ErrStale is the answer to a change of a version that is no longer the newest.
func ErrStale(object string) error {
	return &fault.Error{
		Kind: fault.Conflict, Code: CodeStale, Object: object,
		Cause: "it was changed by someone else in the meantime", Fix: "read it again and repeat the change",
	}
}
