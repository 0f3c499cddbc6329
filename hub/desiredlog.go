package hub

import "slices"

// A RowKind is the kind of a row of the desired log; the numbers are those of
// the wire (link.v1.RowKind).
type RowKind int32

// The kinds of rows.
const (
	RowState     RowKind = 1
	RowOperation RowKind = 2
	RowTerminate RowKind = 3
	RowForget    RowKind = 4
	RowSettings  RowKind = 5 // of no application: it carries SettingsRow in its place
)

// A RowLife says how long a row matters to an agent. The store reads only rows
// that matter, and empties the bodies of others.
type RowLife int

// The lives of rows.
const (
	_                  RowLife = iota
	WhileNewest                // until a newer row of the same application is in the log
	WhileForgotten             // until the application has a state in the log again
	WhileOperationOpen         // until the operation of the row has ended
)

// rowLives says of each kind of row what keeps it alive. A kind that is added
// needs a line here and a migration that lets log_row have its number.
var rowLives = map[RowKind]RowLife{
	RowState:     WhileNewest,
	RowOperation: WhileOperationOpen,
	RowTerminate: WhileOperationOpen,
	RowForget:    WhileForgotten,
	RowSettings:  WhileNewest,
}

// Life is what keeps rows of the kind alive; 0 for a number that is no kind.
func (k RowKind) Life() RowLife { return rowLives[k] }

// Kinds returns the kinds of rows that live so, by number.
func (l RowLife) Kinds() []RowKind {
	var out []RowKind
	for k, life := range rowLives {
		if life == l {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// A LogRow is one row of a cluster's desired log.
type LogRow struct {
	Seq         int64
	Kind        RowKind
	Application ApplicationID
	Operation   OperationID // for operation and terminate rows
	Body        []byte      // serialised link.v1 message
	Chain       []byte      // chain hash after this row, 32 bytes
	Lists       []Digest    // blobs that a state refers to besides those of its snapshots; not read back
	Objects     []Digest    // inline tombstones, if the row's writer has set them; not stored
}

// A LogHead is the end of a cluster's desired log.
type LogHead struct {
	Incarnation string
	Seq         int64
	Chain       []byte
	Held        bool // the hub as a whole waits for an admin, so nothing may be deleted anywhere
}

// A LogPlace is how far a stream has read the desired log of a cluster.
type LogPlace struct {
	Cluster ClusterID
	After   int64   // rows after this one are wanted
	Known   LogHead // end of the log as the stream last saw it; zero: it saw none
}

// A LogPage is what follows a place, and the end of the log at that moment. A
// log may have lost the end that was known, and hold other rows with the same
// numbers: a database that failed over to a standby may lack the last commits.
type LogPage struct {
	Head LogHead
	Rows []LogRow
	Lost bool
}

// A LogAck is how far an agent has stored its log, and with a receipt the proof
// that it has the same states.
type LogAck struct {
	Cluster ClusterID
	Seq     int64
	Receipt *Receipt
}

// A Tombstone asks for the deletion of one object. Only a complete snapshot
// that no longer has the object, or the deletion of its application, makes one.
type Tombstone struct {
	Application ApplicationID
	Cluster     ClusterID
	Group       string
	Version     string
	Kind        string
	Namespace   string
	Name        string
	Wave        int32
	Since       int64 // seq of the log row that made it
}
