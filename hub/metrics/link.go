package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Unary counts a call of an agent.
func (m *Metrics) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	began := time.Now()
	res, err := next(ctx, req)
	m.link.calls.WithLabelValues(info.FullMethod, code(err)).Inc()
	m.link.callTime.WithLabelValues(info.FullMethod).Observe(time.Since(began).Seconds())
	if info.FullMethod == linkv1.Identity_Enroll_FullMethodName && fault.KindOf(err) == fault.Exceeded && err != nil {
		m.Enrolled("limit")
	}
	return res, err
}

// Stream counts a stream of an agent and what goes over it.
func (m *Metrics) Stream(ss grpc.ServerStream, method string) (grpc.ServerStream, func(error), error) {
	return &counted{ss, m}, func(err error) { m.link.calls.WithLabelValues(method, code(err)).Inc() }, nil
}

// code is the word for how a call ended.
func code(err error) string {
	switch {
	case err == nil:
		return codes.OK.String()
	case errors.Is(err, context.Canceled):
		return codes.Canceled.String()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded.String()
	}
	if f, ok := fault.As(err); ok {
		return string(f.Kind)
	}
	return status.Code(err).String()
}

// counted is a stream whose messages are counted.
type counted struct {
	grpc.ServerStream
	m *Metrics
}

// SendMsg counts what the hub sends.
func (c *counted) SendMsg(msg any) error {
	err := c.ServerStream.SendMsg(msg)
	if err != nil {
		return err
	}
	switch v := msg.(type) {
	case *linkv1.FollowDown:
		for _, r := range v.GetBatch().GetRows() {
			c.m.link.rows.WithLabelValues(rowKind(r.GetKind())).Inc()
		}
		c.m.sent(v.GetBatch().GetBlobs())
	case *linkv1.FetchReply:
		c.m.sent(v.GetBlobs())
		c.m.link.blobs.WithLabelValues("missing").Add(float64(len(v.GetMissing())))
	}
	return nil
}

// RecvMsg counts what agents send.
func (c *counted) RecvMsg(msg any) error {
	if err := c.ServerStream.RecvMsg(msg); err != nil {
		return err
	}
	switch v := msg.(type) {
	case *linkv1.FollowUp:
		if v.GetAck() != nil {
			c.m.link.acks.Inc()
		}
	case *linkv1.Beat:
		if trip := time.Duration(v.GetRoundTripNano()); trip > 0 && trip < time.Hour {
			c.m.link.roundTrip.Observe(trip.Seconds())
		}
	}
	return nil
}

func (m *Metrics) sent(blobs []*linkv1.Blob) {
	m.link.blobs.WithLabelValues("sent").Add(float64(len(blobs)))
	for _, b := range blobs {
		m.link.blobBytes.Add(float64(len(b.GetSealed())))
	}
}

func rowKind(k linkv1.RowKind) string {
	switch k {
	case linkv1.RowKind_ROW_KIND_STATE:
		return "state"
	case linkv1.RowKind_ROW_KIND_OPERATION:
		return "operation"
	case linkv1.RowKind_ROW_KIND_TERMINATE:
		return "terminate"
	case linkv1.RowKind_ROW_KIND_FORGET:
		return "forget"
	case linkv1.RowKind_ROW_KIND_UNSPECIFIED:
	}
	return "end"
}

// LinkFigures are the connections of this replica by lane.
type LinkFigures struct {
	Lane           string
	Sessions       int
	Streams        int
	Received, Sent int64   // bytes since the start, ended sessions included
	Silence        float64 // seconds since the last byte of the most silent
	Backlog        int64   // records that agents hold back
}

// Link adds the metrics of connections, read at each scrape.
func (m *Metrics) Link(read func() []LinkFigures) { m.reg.MustRegister(links(read)) }

type links func() []LinkFigures

func linkDescs() []*prometheus.Desc {
	return []*prometheus.Desc{
		desc("capstan_link_sessions", "Connections of agents to this replica.", "lane"),
		desc("capstan_link_streams", "Streams that are open on them.", "lane"),
		desc("capstan_link_received_bytes_total", "Bytes received from agents.", "lane"),
		desc("capstan_link_sent_bytes_total", "Bytes sent to agents.", "lane"),
		desc("capstan_link_silence_seconds", "Longest time since an agent has sent anything.", "lane"),
		desc("capstan_link_backlog_records", "Records that agents have not reported yet, from their last heartbeat.", "lane"),
	}
}

// Describe names the metrics.
func (l links) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range linkDescs() {
		ch <- d
	}
}

// Collect reads them.
func (l links) Collect(ch chan<- prometheus.Metric) {
	d := linkDescs()
	for _, f := range l() {
		gauge(ch, d[0], float64(f.Sessions), f.Lane)
		gauge(ch, d[1], float64(f.Streams), f.Lane)
		ch <- prometheus.MustNewConstMetric(d[2], prometheus.CounterValue, float64(f.Received), f.Lane)
		ch <- prometheus.MustNewConstMetric(d[3], prometheus.CounterValue, float64(f.Sent), f.Lane)
		gauge(ch, d[4], f.Silence, f.Lane)
		gauge(ch, d[5], float64(f.Backlog), f.Lane)
	}
}

// PoolFigures is how one pool of database connections stands.
type PoolFigures struct {
	Name                                         string
	Open, InUse, Max, Acquired, Waited, TimedOut float64
	WaitSeconds                                  float64
}

// Pools adds the metrics of database connections.
func (m *Metrics) Pools(read func() []PoolFigures) { m.reg.MustRegister(pools(read)) }

type pools func() []PoolFigures

func poolDescs() []*prometheus.Desc {
	return []*prometheus.Desc{
		desc("capstan_database_connections", "Connections to the database.", "pool", "state"),
		desc("capstan_database_acquired_total", "Times that a connection was taken from the pool.", "pool"),
		desc("capstan_database_acquire_waits_total", "Of those, with none free.", "pool"),
		desc("capstan_database_acquire_wait_seconds_total", "Time waited for a connection.", "pool"),
		desc("capstan_database_acquire_canceled_total", "Waits for a connection that were given up.", "pool"),
	}
}

// Describe names the metrics.
func (p pools) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range poolDescs() {
		ch <- d
	}
}

// Collect reads them.
func (p pools) Collect(ch chan<- prometheus.Metric) {
	d := poolDescs()
	for _, f := range p() {
		gauge(ch, d[0], f.InUse, f.Name, "used")
		gauge(ch, d[0], f.Open-f.InUse, f.Name, "idle")
		gauge(ch, d[0], f.Max, f.Name, "max")
		for i, v := range []float64{f.Acquired, f.Waited, f.WaitSeconds, f.TimedOut} {
			ch <- prometheus.MustNewConstMetric(d[i+1], prometheus.CounterValue, v, f.Name)
		}
	}
}
