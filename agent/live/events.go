package live

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

const (
	mostEvents     = 500     // of one namespace, and of one answer
	mostNamespaces = 20      // whose events are read for one application
	maxEvents      = 8 << 20 // bytes of one list
)

// Events returns the events of an object of an application, or of all its
// objects.
func (s *Server) Events(ctx context.Context, r *linkv1.EventsRequest) (*linkv1.EventsResponse, error) {
	of := manifest.Key{Group: r.GetGroup(), Kind: r.GetKind(), Namespace: r.GetNamespace(), Name: r.GetName()}
	if r.GetAppId() == "" || (of.Kind == "") != (of.Name == "") {
		return nil, fault.New(fault.Invalid, "events are asked for by application, and by kind and name of an object")
	}
	if of.Kind != "" && !s.cfg.Cluster.Belongs(r.GetAppId(), of) {
		return nil, fault.With(fault.New(fault.Missing, "it does not belong to the application"), of.Describe(), "")
	}
	user, err := s.cfg.Cluster.ActsAs(r.GetAppId())
	if err != nil {
		return nil, err
	}
	namespaces := r.GetNamespaces()
	if of.Kind != "" {
		namespaces = []string{of.Namespace}
	}
	if len(namespaces) > mostNamespaces {
		return nil, fault.With(fault.New(fault.Exceeded, "the objects are in %d namespaces, and events of no more than %d are read at once", len(namespaces), mostNamespaces), "", "name one object")
	}
	hide := s.cfg.Cluster.Concealer(r.GetAppId())
	out := &linkv1.EventsResponse{}
	for _, namespace := range namespaces {
		namespace = cmp.Or(namespace, "default") // where events of cluster-scoped objects are
		if err := s.cfg.Cluster.MayReadLogs(namespace); err != nil {
			return nil, err
		}
		list, err := s.listEvents(ctx, namespace, of, user)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			key := manifest.Key{Group: e.Group, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name}
			if hide != nil {
				e.Message = hide(e.Message)
			}
			if key == of || of.Kind == "" && s.cfg.Cluster.Belongs(r.GetAppId(), key) {
				out.Events = append(out.Events, e)
			}
		}
	}
	slices.SortStableFunc(out.Events, func(a, b *linkv1.Event) int { return cmp.Compare(b.GetLastUnix(), a.GetLastUnix()) })
	out.Events = out.Events[:min(len(out.Events), mostEvents)]
	return out, nil
}

// event is what is read of an event of the API server.
type event struct {
	Type, Reason, Message string
	InvolvedObject        struct{ APIVersion, Kind, Namespace, Name string }
	Count                 uint32
	FirstTimestamp        time.Time
	LastTimestamp         time.Time
	EventTime             time.Time
	Source                struct{ Component string }
	ReportingComponent    string
	Series                struct {
		Count            uint32
		LastObservedTime time.Time
	}
}

// listEvents reads the events of a namespace: those of an object if it has a
// name.
func (s *Server) listEvents(ctx context.Context, namespace string, of manifest.Key, user string) ([]*linkv1.Event, error) {
	q := url.Values{"limit": {strconv.Itoa(mostEvents)}}
	if of.Kind != "" {
		q.Set("fieldSelector", "involvedObject.kind="+of.Kind+",involvedObject.name="+of.Name)
	}
	u := s.cfg.Base.JoinPath("api/v1/namespaces", namespace, "events")
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask for events: %w", err)
	}
	r.Header.Set("Accept", "application/json")
	if user != "" {
		r.Header.Set(transport.ImpersonateUserHeader, user)
	}
	object := "events of namespace " + namespace
	resp, err := s.cfg.Client.Do(r)
	if err != nil {
		return nil, fault.With(fault.Wrap(fault.Offline, err, "the API server did not answer"), object, "")
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fault.With(refused(resp), object, "")
	}
	var list struct{ Items []event }
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxEvents)).Decode(&list); err != nil {
		return nil, fault.With(fault.Wrap(fault.Exceeded, err, "they cannot be read; there may be too many"), object, "name one object")
	}
	out := make([]*linkv1.Event, len(list.Items))
	for i, e := range list.Items {
		out[i] = e.present()
	}
	return out, nil
}

func (e event) present() *linkv1.Event {
	first, last := e.FirstTimestamp, e.LastTimestamp
	if first.IsZero() {
		first = e.EventTime
	}
	if e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime
	}
	if last.IsZero() {
		last = first
	}
	gv, _ := schema.ParseGroupVersion(e.InvolvedObject.APIVersion) // its group is empty otherwise
	return &linkv1.Event{
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: max(e.Count, e.Series.Count, 1),
		Group: gv.Group, Kind: e.InvolvedObject.Kind, Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name,
		FirstUnix: first.Unix(), LastUnix: last.Unix(), Source: cmp.Or(e.ReportingComponent, e.Source.Component),
	}
}
