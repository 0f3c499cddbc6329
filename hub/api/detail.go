package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A detail is the application that a stream brings whole: what of it was sent,
// as hashes, so that only what differs is sent again.
type detail struct {
	namespace, name string
	tag             string // of the tree that the client has
	begun           bool
	gone            bool // the client has been told, and gets no more
	id              hub.ApplicationID
	cluster         hub.ClusterID
	fields, status  map[string]nodeHash // of the application, and of its status
	nodes           []nodeHash          // in their order
}

// parseDetail reads which application a stream brings whole; nil: none.
func parseDetail(query url.Values) (*detail, error) {
	if !query.Has("detail") {
		return nil, nil
	}
	namespace, name, err := splitName("detail", query.Get("detail"))
	return &detail{
		namespace: namespace, name: name, tag: query.Get("tree"),
		fields: map[string]nodeHash{}, status: map[string]nodeHash{},
	}, err
}

// concerned reports whether one of the changes may alter what was sent.
func (d *detail) concerned(changes []hub.Change) bool {
	return !d.begun || slices.ContainsFunc(changes, func(c hub.Change) bool {
		return c.ID == string(d.id) || d.cluster != "" && c.ID == string(d.cluster)
	})
}

// detailAfter is the event that follows those of changes; empty: none does. It
// has no id: the events before it say where the stream goes on.
func (l *listener) detailAfter(ctx context.Context, changes []hub.Change) (string, error) {
	d := l.detail
	if d == nil || d.gone || !d.concerned(changes) {
		return "", nil
	}
	e, err := l.readDetail(ctx)
	switch fault.KindOf(err) {
	case fault.Missing, fault.Denied:
		d.gone, e.Gone = true, true
	default:
		if err != nil {
			return "", err
		}
	}
	if d.begun && !d.gone && e.Changed == nil && e.Base == e.Tree.Tag {
		return "", nil // but for the cursor
	}
	e.Kind, e.Id, e.Namespace, e.Name = apimodel.StreamEventKindDetail, string(d.id), d.namespace, d.name
	d.begun = true
	data, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("write event: %w", err)
	}
	return fmt.Sprintf("event: %s\ndata: %s\n\n", e.Kind, data), nil
}

// readDetail reads the application with the rights of the caller, and returns
// what differs from what was sent. The error is fault.Missing if there is
// another one of its name.
func (l *listener) readDetail(ctx context.Context) (e apimodel.StreamEvent, err error) {
	d := l.detail
	v, err := l.s.Catalog.Application(ctx, l.who, d.namespace, d.name)
	if err != nil {
		return e, err
	}
	if d.begun && d.id != v.ID {
		return e, fault.New(fault.Missing, "the application was deleted, and another one has its name")
	}
	t, err := l.s.Catalog.Tree(ctx, l.who, d.namespace, d.name)
	if err != nil {
		return e, err
	}
	application := presentApplication(v, false)
	if err := l.s.addTree(ctx, l.who, v, &application.Status, t.Resources); err != nil {
		return e, err
	}
	application.Status.Resources = nil // the tree has them
	d.id, d.cluster = v.ID, ""
	if v.On != nil {
		d.cluster = v.On.ID
	}
	if e.Changed, err = d.differing(application); err != nil {
		return e, err
	}
	if !d.begun {
		e.Application, e.Changed = application, nil
	}
	return e, d.addTree(&e, t)
}

// addTree adds the tree to an event: all of it, or what differs.
func (d *detail) addTree(e *apimodel.StreamEvent, t catalog.Tree) (err error) {
	var hashes []nodeHash
	if e.Tree, hashes, err = presentTree(t); err != nil {
		return err
	}
	tag := e.Tree.Tag
	switch {
	case d.begun:
		e.Base = d.tag
		e.Removed, e.At = difference(d.nodes, hashes)
	case d.tag == tag:
		e.Base = tag
	}
	if e.Base != "" {
		nodes := make([]apimodel.Node, 0, len(e.At))
		for _, i := range e.At {
			nodes = append(nodes, e.Tree.Nodes[i])
		}
		e.Tree.Nodes = nodes
	}
	d.tag, d.nodes = tag, hashes
	return nil
}

// differing returns the fields of an application that are not as they were
// sent, those of its status each by itself; nil if there are none.
func (d *detail) differing(a apimodel.Application) (json.RawMessage, error) {
	var fields, status map[string]json.RawMessage
	text, err := json.Marshal(a)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err == nil && fields["status"] != nil {
		err = json.Unmarshal(fields["status"], &status)
	}
	if err != nil {
		return nil, fmt.Errorf("compare application: %w", err)
	}
	delete(fields, "status")
	out := differing(d.fields, fields)
	if of := differing(d.status, status); len(of) > 0 {
		if out["status"], err = json.Marshal(of); err != nil {
			return nil, fmt.Errorf("write event: %w", err)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return json.Marshal(out)
}

// differing returns the fields whose hashes are not those that were sent, and
// null for those that are gone. It updates the hashes.
func differing(sent map[string]nodeHash, fields map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for name, value := range fields {
		if hash := hashOf(value); sent[name] != hash {
			sent[name], out[name] = hash, value
		}
	}
	maps.DeleteFunc(sent, func(name string, _ nodeHash) bool {
		_, has := fields[name]
		if !has {
			out[name] = json.RawMessage("null")
		}
		return !has
	})
	return out
}

// difference returns which positions to take out of a list, and then at which
// ones to insert something, to make it another list.
func difference(before, after []nodeHash) (removed, at []int) {
	was := make(map[nodeHash]int, len(before))
	for i, hash := range before {
		was[hash] = i
	}
	next := 0 // the first position before that may still stay
	for i, hash := range after {
		j, has := was[hash]
		if !has || j < next {
			at = append(at, i)
			continue
		}
		for ; next < j; next++ {
			removed = append(removed, next)
		}
		next++
	}
	for ; next < len(before); next++ {
		removed = append(removed, next)
	}
	return removed, at
}

// A nodeHash stands for a node, or for another part of an application.
type nodeHash [16]byte

func hashOf(text []byte) nodeHash {
	sum := sha256.Sum256(text)
	return nodeHash(sum[:16])
}

func hashNodes(nodes []apimodel.Node) ([]nodeHash, error) {
	out := make([]nodeHash, 0, len(nodes))
	for _, n := range nodes {
		text, err := json.Marshal(n)
		if err != nil {
			return nil, fmt.Errorf("hash node: %w", err)
		}
		out = append(out, hashOf(text))
	}
	return out, nil
}

// tagOf is a text that equal trees have, whatever their cursor and time.
func tagOf(t apimodel.Tree, nodes []nodeHash) (string, error) {
	head, err := json.Marshal(apimodel.Tree{Connected: t.Connected, Paused: t.Paused})
	if err != nil {
		return "", fmt.Errorf("hash tree: %w", err)
	}
	sum := sha256.New()
	_, _ = sum.Write(head)
	for _, hash := range nodes {
		_, _ = sum.Write(hash[:])
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12]), nil
}
