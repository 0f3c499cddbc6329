package kube

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// A Request is one that the API server answered, as its audit log has it. A
// watch counts when it opens. The cluster's own parts and health checks are
// not in the log.
type Request struct {
	User, Agent           string
	Verb                  string // get, list, watch, create, update, patch, delete, deletecollection
	Group, Resource, Sub  string // empty for paths that are no resource
	Namespace, Name, Path string
	Code                  int // HTTP status
	At                    time.Time
}

// A Count splits requests the way the budgets of an agent do.
type Count struct {
	Watches int // opened
	Leases  int // any request for a Lease
	Others  int
}

// Total is all of them.
func (c Count) Total() int { return c.Watches + c.Leases + c.Others }

// An AuditMark is a place in the audit log. The zero value is its beginning.
type AuditMark int64

// auditEvent is what is read of a line of the log.
type auditEvent struct {
	Stage, Verb, RequestURI, UserAgent string
	User                               struct{ Username string }
	ObjectRef                          struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus                     struct{ Code int }
	RequestReceivedTimestamp           time.Time
}

// Mark is the end of the audit log as of now.
func (c *Cluster) Mark() (AuditMark, error) {
	info, err := os.Stat(c.file("audit.log"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at the audit log: %w", err)
	}
	return AuditMark(info.Size()), nil
}

// Requests reads the audit log from a mark to its end. A request is in it
// when its answer has been sent, watches when they are open.
func (c *Cluster) Requests(from AuditMark) ([]Request, error) {
	f, err := os.Open(c.file("audit.log"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the audit log: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(int64(from), io.SeekStart); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return readAudit(f)
}

func readAudit(r io.Reader) ([]Request, error) {
	var found []Request
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return found, nil // half a line is not there yet
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		var e auditEvent
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if !e.counts() {
			continue
		}
		found = append(found, Request{
			User: e.User.Username, Agent: e.UserAgent, Verb: e.Verb, Path: e.RequestURI,
			Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Sub: e.ObjectRef.Subresource,
			Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
			Code: e.ResponseStatus.Code, At: e.RequestReceivedTimestamp,
		})
	}
}

// counts picks one event of each request: a long-running one has one when it
// starts and one when it ends.
func (e auditEvent) counts() bool {
	if e.Stage == "ResponseStarted" {
		return true
	}
	switch e.ObjectRef.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return e.ResponseStatus.Code >= 300
	}
	return e.Verb != "watch" || e.ResponseStatus.Code >= 300
}

// CountByUser adds requests up.
func CountByUser(requests []Request) map[string]Count {
	counts := map[string]Count{}
	for _, r := range requests {
		n := counts[r.User]
		switch {
		case r.Verb == "watch":
			n.Watches++
		case r.Group == "coordination.k8s.io" && r.Resource == "leases":
			n.Leases++
		default:
			n.Others++
		}
		counts[r.User] = n
	}
	return counts
}
