package api

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/feed"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// streamTree follows the objects of one application until it is gone, or the
// client is, or may no longer see it.
func (s *Server) streamTree(c echo.Context) error {
	r := c.Request()
	who := callerOf(r.Context())
	if !s.streams.enter(who.Credential) {
		return errManyStreams()
	}
	defer s.streams.leave(who.Credential)
	v, err := s.Catalog.Application(r.Context(), who, c.Param("namespace"), c.Param("name"))
	if err != nil {
		return err
	}
	ctx, end := s.streams.until(r.Context())
	defer end()
	// What changes from here on is read, so nothing is missed before the first tree.
	reader, err := s.Feed.Read(ctx, who.Tenant, "")
	if err != nil {
		return err
	}
	defer reader.Close()
	l := s.newListener(c, who)
	l.only = v.ID
	defer l.close()
	l.begin()
	return l.followTree(ctx, reader, v.Namespace, v.Name)
}

func errManyStreams() error {
	return fault.With(fault.New(fault.Exceeded, "you have %d open streams", maxStreams), "", "close some of them")
}

// followTree writes the tree now and whenever it has changed.
func (l *listener) followTree(ctx context.Context, reader *feed.Reader, namespace, name string) error {
	changed, lastSent := true, time.Now()
	for ctx.Err() == nil {
		text, gone := l.treeOr(ctx, namespace, name, changed, time.Since(lastSent))
		if text != "" {
			if err := l.write(ctx, text); err != nil || gone {
				return nil
			}
			lastSent = time.Now()
		}
		changes, err := l.next(ctx, reader)
		if err == nil {
			err = l.still(ctx)
		}
		if over, err := l.ended(ctx, err); over {
			return err
		}
		changed = slices.ContainsFunc(changes, func(c hub.Change) bool { return c.ID == string(l.only) })
	}
	return nil
}

// treeOr is the tree if it has changed, a sign of life after a silence, or
// nothing; gone means that the stream ends with it.
func (l *listener) treeOr(ctx context.Context, namespace, name string, changed bool, silence time.Duration) (text string, gone bool) {
	if changed {
		text, err := l.tree(ctx, namespace, name)
		if err != nil {
			return "event: gone\ndata: {}\n\n", true
		}
		return text, false
	}
	if silence >= heartbeat {
		return "event: alive\ndata: {}\n\n", false
	}
	return "", false
}

// tree is the event with the whole tree. An error means that the application is
// gone, or none that the caller may see.
func (l *listener) tree(ctx context.Context, namespace, name string) (string, error) {
	t, err := l.s.treeOf(ctx, l.who, namespace, name)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(t)
	if err != nil {
		return "", fmt.Errorf("write event: %w", err)
	}
	return fmt.Sprintf("event: tree\ndata: %s\n\n", data), nil
}

// treeOf is the tree of an application as the API shows it.
func (s *Server) treeOf(ctx context.Context, who hub.Caller, namespace, name string) (apimodel.Tree, error) {
	t, err := s.Catalog.Tree(ctx, who, namespace, name)
	if err != nil {
		return apimodel.Tree{}, err
	}
	out, _, err := presentTree(t)
	return out, err
}

// presentTree returns a tree as the API shows it, and the hashes of its nodes.
func presentTree(t catalog.Tree) (apimodel.Tree, []nodeHash, error) {
	out := apimodel.Tree{Nodes: collect(t.Resources, presentNode), Cursor: t.Cursor, Paused: presentPaused(t.Application)}
	if t.On != nil {
		out.AsOf, out.Connected = at(t.On.LastSeen), t.On.Connected
	}
	hashes, err := hashNodes(out.Nodes)
	if err != nil {
		return out, nil, err
	}
	out.Tag, err = tagOf(out, hashes)
	return out, hashes, err
}
