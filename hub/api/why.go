package api

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/why"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logtail"
)

const (
	whyTime  = 5 * time.Second // for all questions to the cluster
	whyLines = 10              // of a container's log
	whyWidth = 500             // bytes of one of them
)

// ExplainApplication answers why an application is not well.
func (s *Server) ExplainApplication(ctx context.Context, r gen.ExplainApplicationRequestObject) (gen.ExplainApplicationResponseObject, error) {
	who := callerOf(ctx)
	t, err := s.Catalog.Tree(ctx, who, r.Namespace, r.Name)
	if err != nil {
		return nil, err
	}
	in := why.Input{Application: t.Application, Cluster: t.On, Resources: t.Resources, Operation: t.Application.Status.Operation}
	if in.Operation != nil {
		full, _, err := s.Catalog.OperationByID(ctx, who, in.Operation.ID)
		if err == nil {
			in.Operation = &full
		}
	}
	asked := s.askDetails(ctx, who, &in)
	out := apimodel.Why{ClusterAsked: asked, Causes: []apimodel.WhyCause{}}
	for _, c := range why.Explain(in) {
		out.Causes = append(out.Causes, presentCause(c))
	}
	out.Healthy = len(out.Causes) == 0
	out.Summary = whySummary(out.Causes)
	return gen.ExplainApplication200JSONResponse(out), nil
}

func whySummary(causes []apimodel.WhyCause) string {
	if len(causes) == 0 {
		return "nothing is wrong that is known"
	}
	c := causes[0]
	if c.Object.Name == "" {
		return c.Title + ": " + c.Message
	}
	return c.Object.Kind + " " + strings.TrimPrefix(c.Object.Namespace+"/"+c.Object.Name, "/") + ": " + c.Title + ": " + c.Message
}

func presentCause(c why.Cause) apimodel.WhyCause {
	out := apimodel.WhyCause{
		Class: c.Class, Title: c.Title, Message: c.Message, Advice: c.Advice, Command: c.Command, Container: c.Container,
		LastLines: c.Lines, Path: collect(c.Path, presentWhyObject),
	}
	if c.Object != nil {
		out.Object = presentWhyObject(*c.Object)
	}
	if !c.Since.IsZero() {
		out.FirstSeen = c.Since.UTC()
	}
	return out
}

func presentWhyObject(o hub.ObjectRef) apimodel.WhyObject {
	return apimodel.WhyObject{Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

// askDetails asks the cluster about the objects that are worst; false: it could
// not be asked.
func (s *Server) askDetails(ctx context.Context, who hub.Caller, in *why.Input) bool {
	in.Details = map[hub.ObjectRef]why.Detail{}
	if in.Cluster == nil || !in.Cluster.Connected {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, whyTime)
	defer cancel()
	logs := s.Catalog.MayStream(ctx, who, in.Application.Namespace, in.Application.Name, access.Logs, access.Get) == nil
	var mu sync.Mutex
	var wait sync.WaitGroup
	asked := true
	for _, ref := range why.Ask(*in) {
		wait.Go(func() {
			d, err := s.detail(ctx, *in.Cluster, in.Application.ID, ref, logs)
			mu.Lock()
			defer mu.Unlock()
			in.Details[ref] = d
			asked = asked && (err == nil || fault.KindOf(err) == fault.Missing)
		})
	}
	wait.Wait()
	return asked
}

// detail reads one object, its events, and the last lines of its containers that
// have failed.
func (s *Server) detail(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, ref hub.ObjectRef, logs bool) (d why.Detail, err error) {
	if live, failed := s.Relay.Get(ctx, cluster, app, ref); failed != nil {
		err = failed
	} else if json.Unmarshal(live, &d.Live) != nil {
		d.Live = nil
	}
	if events, failed := s.Relay.Events(ctx, cluster, app, ref, nil); failed == nil {
		d.Events = events
	} else if err == nil && fault.KindOf(failed) != fault.Denied {
		err = failed
	}
	if !logs {
		return d, err
	}
	pods, failed := s.Relay.Pods(ctx, cluster, app, ref, 1)
	if failed != nil || len(pods) == 0 {
		return d, err
	}
	d.Lines = map[string][]string{}
	for _, c := range pods[0].Containers {
		if !c.Init && c.Restarts == 0 && c.State == "waiting" {
			continue // it has written nothing
		}
		target := hub.LogTarget{Namespace: pods[0].Namespace, Pod: pods[0].Name, UID: pods[0].UID, Container: c.Name}
		previous := c.Restarts > 0 && c.State != "terminated"
		if lines := s.lastLines(ctx, cluster, app, target, previous); len(lines) > 0 {
			d.Lines[c.Name] = lines
		}
	}
	return d, err
}

var errEnough = errors.New("enough lines")

// lastLines are those of a container's log, cut; none if it cannot be read.
func (s *Server) lastLines(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.LogTarget, previous bool) (out []string) {
	tail := whyLines
	_ = s.Relay.Logs(ctx, cluster, app, of, false, previous, logtail.Options{Tail: &tail}, func(lines []logtail.Line) error {
		for _, l := range lines {
			out = append(out, strings.ToValidUTF8(string(l.Text[:min(len(l.Text), whyWidth)]), "\ufffd"))
		}
		if len(out) > whyLines {
			return errEnough
		}
		return nil
	})
	return out[max(0, len(out)-whyLines):]
}
