// Package faults breaks the product on purpose and judges what is left: what
// was wanted (rows of the desired log) against what was done (the ledger before
// the API server), what the agent remembers and what people can read (history,
// operations, audit). Its tests run hub and agent with failpoints built in. The
// checker is a pure function over what was gathered: it never asks a running
// part, and a violation comes with the shortest story that shows it.
package faults

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
)

// A Row is one of the desired log of a cluster.
type Row struct {
	Seq         int64
	Kind        int32
	Application string
	Operation   string
	Body        []byte
	Chain       []byte
	At          time.Time
}

// An Operation is one as the hub's database has it.
type Operation struct {
	ID, Application, Kind, Phase, Revision string
	Fence                                  int64
	Attempt                                int
	Created                                time.Time
	Started, Finished                      *time.Time
}

// A History is an entry of what was deployed.
type History struct {
	ID                               int64
	Application, Operation, Revision string
}

// An Audit is a record of the audit log.
type Audit struct {
	Seq                                      int64
	Action, Resource, Object, Result, Detail string
}

// An Accepted is a change that the API has answered with success.
type Accepted struct {
	Action string // create, sync, delete
	Object string // as the audit log names it
	ID     string // operation, if the answer named one
}

// A Version is one content of one application's objects, in the order in
// which they were wanted.
type Version struct {
	Revision string
	Names    []string // of its ConfigMaps
}

// A Run is what was gathered of one application in a namespace of its own.
type Run struct {
	Seed        int64
	Application string // id
	Name        string
	Namespace   string
	Agent       string // user
	Versions    []Version
	Deleted     bool // the deletion of the application was asked for
	Heals       int  // edits by others that had to be taken back
	Retried     bool // faults made operations fail, so attempts may repeat

	Incarnation string
	Begin       int64 // where the log of this incarnation begins; 0 unless an admin had it begun anew
	Rows        []Row // of the cluster, all after Begin
	Operations  []Operation
	History     []History
	Audit       []Audit
	Accepted    []Accepted
	Ledger      []faultproxy.Entry // mutating requests in the namespace
	Known       []string           // operations that the agent holds as open
	Stories     []string           // what the test did, such as kills
}

// A Violation is a broken invariant with the events that show it.
type Violation struct {
	Invariant string
	Text      string
	History   []string
}

// String is for people.
func (v Violation) String() string {
	return v.Invariant + ": " + v.Text + "\n    " + strings.Join(v.History, "\n    ")
}

// Check judges a run. The violations with the shortest history come first.
func Check(r Run) []Violation {
	var out []Violation
	for _, check := range []func(Run) []Violation{
		checkLost, checkContent, checkHooks, checkDeletions, checkOneAtATime, checkLog, checkHistory, checkEnded, checkAudited,
	} {
		out = append(out, check(r)...)
	}
	slices.SortStableFunc(out, func(a, b Violation) int { return cmp.Compare(len(a.History), len(b.History)) })
	return out
}

func finalsOf(entries []faultproxy.Entry) []string {
	var out []string
	for _, e := range entries {
		text := fmt.Sprintf("request %d: %s %s by %s answered %d", e.N, e.Verb, e.Object(), e.Manager, e.Code)
		if e.UID != "" {
			text += fmt.Sprintf(" uid %.8s version %s content %s", e.UID, e.RV, hex.EncodeToString(e.Content[:4]))
		}
		if e.Instance != "" {
			text += " hook instance " + e.Instance
		}
		if e.Fault != "" {
			text += " (" + e.Fault + ")"
		}
		out = append(out, text)
	}
	return out
}

// checkLost is INV-1: what was answered with success is there.
func checkLost(r Run) []Violation {
	var out []Violation
	for _, a := range r.Accepted {
		if a.ID != "" && !slices.ContainsFunc(r.Operations, func(o Operation) bool { return o.ID == a.ID }) {
			out = append(out, Violation{"INV-1", "operation " + a.ID + " was accepted and is not there", []string{fmt.Sprintf("%+v", a)}})
		}
	}
	return out
}

// byObject groups the successful writes of the agent to ConfigMaps.
func byObject(r Run) map[string][]faultproxy.Entry {
	out := map[string][]faultproxy.Entry{}
	for _, e := range r.Ledger {
		if e.Resource == "configmaps" && e.Code > 0 && e.Code < 300 && e.User == r.Agent {
			out[e.Name] = append(out[e.Name], e)
		}
	}
	return out
}

// checkContent is INV-2: each object takes each wanted content once, and an
// older one never comes after a newer one. Heals are extra, as many as others
// have edited.
func checkContent(r Run) []Violation {
	var out []Violation
	heals := r.Heals
	for name, entries := range byObject(r) {
		contents, repeats, older := contentsOf(entries)
		for range older {
			out = append(out, Violation{"INV-2", "an older content of " + name + " came after a newer one", finalsOf(entries)})
		}
		if repeats > 0 {
			if heals -= repeats; heals < 0 {
				out = append(out, Violation{"INV-2", fmt.Sprintf("%s was changed %d times more than wanted", name, repeats), finalsOf(entries)})
			}
		}
		if wanted := wantedContents(r, name); contents > wanted {
			out = append(out, Violation{"INV-2", fmt.Sprintf("%s had %d contents, %d were wanted", name, contents, wanted), finalsOf(entries)})
		}
	}
	return out
}

// wantedContents is how many versions of an object were wanted.
func wantedContents(r Run, name string) int {
	wanted := 0
	for _, v := range r.Versions {
		if slices.Contains(v.Names, name) {
			wanted++
		}
	}
	return wanted
}

// contentsOf counts the contents that the writes of one object gave it, those
// that were written again although they were there, and those that came back
// after a newer one.
func contentsOf(entries []faultproxy.Entry) (count, repeats, older int) {
	var contents [][32]byte // in order of first sight
	var last faultproxy.Entry
	for _, e := range entries {
		if e.Verb == "delete" {
			continue
		}
		at := slices.Index(contents, e.Content)
		switch {
		case at < 0:
			contents = append(contents, e.Content)
		case at < len(contents)-1:
			older++
		case e.RV != last.RV:
			repeats++
		}
		last = e
	}
	return len(contents), repeats, older
}

// checkHooks is INV-2: one instance of a hook is created once.
func checkHooks(r Run) []Violation {
	made := map[string][]faultproxy.Entry{}
	for _, e := range r.Ledger {
		if e.Instance != "" && e.Verb == "create" && e.Code == 201 {
			made[e.Name+" "+e.Instance] = append(made[e.Name+" "+e.Instance], e)
		}
	}
	var out []Violation
	for name, entries := range made {
		if len(entries) > 1 {
			out = append(out, Violation{"INV-2", "hook " + name + " was created more than once", finalsOf(entries)})
		}
	}
	// More instances than operations: an operation ran its hook under two names.
	instances, operations := len(made), 0
	for _, o := range r.Operations {
		if o.Kind != "delete" {
			operations++
		}
	}
	if operations > 0 && instances > operations {
		var all []faultproxy.Entry
		for _, entries := range made {
			all = append(all, entries...)
		}
		out = append(out, Violation{"INV-2", fmt.Sprintf("%d hook instances for %d operations", instances, operations), finalsOf(all)})
	}
	return out
}

// checkDeletions is INV-3: what the agent deleted was dropped by a complete
// render, or its application was to be deleted; and a tombstone was in the log
// before.
func checkDeletions(r Run) []Violation {
	marked := tombstones(r)
	var out []Violation
	for name, entries := range byObject(r) {
		for _, e := range entries {
			if e.Verb != "delete" {
				continue
			}
			at, dead := marked[name]
			last := r.Versions[len(r.Versions)-1]
			switch {
			case !dead || e.At.Before(at.Add(-time.Second)):
				out = append(out, Violation{"INV-3", name + " was deleted without a tombstone", finalsOf(entries)})
			case slices.Contains(last.Names, name) && !r.Deleted:
				out = append(out, Violation{"INV-3", name + " was deleted although it is wanted", finalsOf(entries)})
			case len(e.UIDs) == 0:
				out = append(out, Violation{"INV-3", name + " was deleted whatever its uid", finalsOf(entries)})
			}
		}
	}
	return out
}

// tombstones are the names that the log has tombstones of, and since when.
func tombstones(r Run) map[string]time.Time {
	since := map[string]time.Time{}
	for _, row := range r.Rows {
		var state linkv1.AppState
		if row.Application != r.Application || row.Kind != int32(linkv1.RowKind_ROW_KIND_STATE) || proto.Unmarshal(row.Body, &state) != nil {
			continue
		}
		for _, t := range state.GetTombstones() {
			if _, known := since[t.GetName()]; !known {
				since[t.GetName()] = row.At
			}
		}
	}
	return since
}

// checkOneAtATime is INV-4.
func checkOneAtATime(r Run) []Violation {
	ops := slices.Clone(r.Operations)
	slices.SortFunc(ops, func(a, b Operation) int { return a.Created.Compare(b.Created) })
	var out []Violation
	for i := 1; i < len(ops); i++ {
		a, b := ops[i-1], ops[i]
		if a.Application == b.Application && b.Started != nil && a.Finished != nil && b.Started.Before(*a.Finished) && a.Started != nil {
			out = append(out, Violation{"INV-4", "two operations ran at once", []string{fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b)}})
		}
	}
	return out
}

// checkLog is INV-8: the log has no gap and no fork, and generations and
// fences do not go back.
func checkLog(r Run) []Violation {
	var out []Violation
	prev := hashchain.First(r.Incarnation)
	generation := uint64(0)
	for i, row := range r.Rows {
		if want := r.Begin + int64(i+1); row.Seq != want {
			return append(out, Violation{"INV-8", fmt.Sprintf("row %d stands where row %d of the desired log should", row.Seq, want), nil})
		}
		prev = hashchain.Next(prev, uint64(row.Seq), row.Kind, row.Application, row.Body)
		if !bytes.Equal(prev, row.Chain) {
			return append(out, Violation{"INV-8", fmt.Sprintf("row %d of the desired log does not follow from those before it", row.Seq), nil})
		}
		if row.Application != r.Application {
			continue
		}
		var found []Violation
		found, generation = checkGeneration(row, generation)
		out = append(out, found...)
	}
	return out
}

// checkGeneration is INV-8 for one row after a generation, and returns the
// generation after it.
func checkGeneration(row Row, generation uint64) (out []Violation, next uint64) {
	var state linkv1.AppState
	if row.Kind == int32(linkv1.RowKind_ROW_KIND_STATE) && proto.Unmarshal(row.Body, &state) == nil {
		if state.GetGeneration() < generation {
			out = append(out, Violation{"INV-8", "the generation went back", []string{fmt.Sprintf("row %d has generation %d after %d", row.Seq, state.GetGeneration(), generation)}})
		}
		generation = state.GetGeneration()
	}
	var op linkv1.Operation
	if row.Kind == int32(linkv1.RowKind_ROW_KIND_OPERATION) && proto.Unmarshal(row.Body, &op) == nil && op.GetFence() < generation {
		out = append(out, Violation{"INV-8", "an operation has an older fence than the state before it", []string{fmt.Sprintf("row %d: operation %s has fence %d, generation %d", row.Seq, op.GetId(), op.GetFence(), generation)}})
	}
	return out, generation
}

// checkHistory is INV-8: one entry for each success, and no more.
func checkHistory(r Run) []Violation {
	var out []Violation
	entries := map[string][]string{}
	last := int64(0)
	for _, h := range r.History {
		entries[h.Operation] = append(entries[h.Operation], fmt.Sprintf("%+v", h))
		if h.ID <= last {
			out = append(out, Violation{"INV-8", "the history does not grow", []string{fmt.Sprintf("%+v", h)}})
		}
		last = h.ID
	}
	for _, o := range r.Operations {
		n := len(entries[o.ID])
		want := 0
		if o.Phase == "Succeeded" && o.Kind != "delete" {
			want = 1
		}
		if n != want {
			out = append(out, Violation{"INV-8", fmt.Sprintf("operation %s is %s and has %d entries in the history", o.ID, o.Phase, n), append(entries[o.ID], fmt.Sprintf("%+v", o))})
		}
	}
	return out
}

// checkEnded is INV-10.
func checkEnded(r Run) []Violation {
	var out []Violation
	for _, o := range r.Operations {
		if o.Phase != "Succeeded" && o.Phase != "Failed" && o.Phase != "Error" {
			out = append(out, Violation{"INV-10", "operation " + o.ID + " has not ended", []string{fmt.Sprintf("%+v", o)}})
		}
	}
	for _, id := range r.Known {
		out = append(out, Violation{"INV-10", "the agent still holds operation " + id + " as open", nil})
	}
	return out
}

// checkAudited is INV-11, and INV-1 for the records: exactly one for each
// accepted change.
func checkAudited(r Run) []Violation {
	count := map[string]int{}
	story := map[string][]string{}
	for i, a := range r.Audit {
		if i > 0 && a.Seq != r.Audit[i-1].Seq+1 {
			return []Violation{{"INV-8", fmt.Sprintf("audit record %d follows %d", a.Seq, r.Audit[i-1].Seq), nil}}
		}
		if a.Result == "allowed" {
			count[a.Action+" "+a.Object]++
			story[a.Action+" "+a.Object] = append(story[a.Action+" "+a.Object], fmt.Sprintf("%+v", a))
		}
	}
	want := map[string]int{}
	for _, a := range r.Accepted {
		want[a.Action+" "+a.Object]++
	}
	var out []Violation
	for what, n := range want {
		if count[what] != n {
			out = append(out, Violation{"INV-11", fmt.Sprintf("%q was accepted %d times and is recorded %d times", what, n, count[what]), story[what]})
		}
	}
	return out
}
