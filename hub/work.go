package hub

// The kinds of work that wait in the queue. The key says what the item is
// about; enqueueing the same again is one item.
const (
	WorkFetch   = "fetch"   // key: repository whose refs are to be read
	WorkRefresh = "refresh" // key: application that is to be refreshed
	WorkOutcome = "outcome" // key: operation that is over
	WorkRetry   = "retry"   // key: operation that is to be tried again
	WorkUpgrade = "upgrade" // key: cluster whose agent is to be upgraded
	WorkBulk    = "bulk"    // key: bulk request that has applications left
	WorkNotify  = "notify"  // key: application with transitions that nobody was told of
	WorkDeliver = "deliver" // key: message to a recipient

	WorkApplicationSet = "applicationset" // key: application set that is to be reconciled
)

// Observed is what the store made of an observation.
type Observed struct {
	Over       []OperationID // operations that became over with it
	Repeated   bool          // it was stored before; nothing was done
	Resnapshot bool          // earlier reports of this epoch are missing: the agent should send everything again
	Comparison *Comparison   // answers Sums; nil: nothing was asked
}

// TenantKeys are the keys of one tenant. They stay in memory.
type TenantKeys struct {
	Digest     [32]byte // names objects; never rotated
	Object     [32]byte // seals objects; the tenant's agents hold it too
	Credential [32]byte // seals credentials; never leaves the hub
	Feed       [32]byte // seals places in the feed; never leaves the hub
	Snapshot   [32]byte // authenticates snapshots; never leaves the hub
}

// String hides the keys from every formatter.
func (TenantKeys) String() string { return "(keys)" }

// GoString hides the keys from %#v too.
func (TenantKeys) GoString() string { return "(keys)" }
