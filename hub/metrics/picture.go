package metrics

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A Snapshot is what stored rows say at one time.
type Snapshot struct {
	Queues       []hub.QueueFigures
	Applications []Application
	Clusters     []Cluster
	Truncated    bool // there are more than are shown one by one
	Sync         map[[2]string]int
	Tenants      map[string]TenantFigures
}

// TenantFigures are counts of one tenant.
type TenantFigures struct{ Applications, Clusters int }

// Add adds one tenant's counts: they are all summed, and shown one by one while
// there is room.
func (p *Snapshot) Add(tenant string, apps []hub.ApplicationFigures, clusters []hub.ClusterFigures, room int) {
	if p.Sync == nil {
		p.Sync, p.Tenants = map[[2]string]int{}, map[string]TenantFigures{}
	}
	p.Tenants[tenant] = TenantFigures{len(apps), len(clusters)}
	for _, a := range apps {
		p.Sync[[2]string{a.Sync, a.Health}]++
		if len(p.Applications) >= room {
			p.Truncated = true
			continue
		}
		p.Applications = append(p.Applications, Application{a, tenant})
	}
	for _, c := range clusters {
		p.Clusters = append(p.Clusters, Cluster{c, tenant})
	}
}

// Rows reads a picture; the daemon provides it.
type Rows func(ctx context.Context, room int) (Snapshot, error)

const (
	snapshotAge     = 15 * time.Second // a scrape within it is answered from memory
	snapshotTimeout = 10 * time.Second // that reading one may take
)

// Show adds the metrics that are read from stored rows.
func (m *Metrics) Show(rows Rows, log *slog.Logger) {
	m.reg.MustRegister(&snapshots{m: m, rows: rows, log: log})
}

// snapshots caches the newest picture. One scrape at a time reads a new one.
type snapshots struct {
	m    *Metrics
	rows Rows
	log  *slog.Logger

	mu     sync.Mutex
	last   Snapshot
	taken  time.Time
	failed int64
}

// Describe returns none: the labels depend on the configuration.
func (c *snapshots) Describe(chan<- *prometheus.Desc) {}

// Collect shows the newest picture. While the database is unreachable, the
// series of stored rows end.
func (c *snapshots) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.taken) > snapshotAge {
		ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout)
		p, err := c.rows(ctx, c.m.options.MaxSeries)
		cancel()
		if err != nil {
			c.failed++
			c.log.WarnContext(ctx, "metrics of stored rows are not known", logkey.Error, err)
		}
		c.last, c.taken = p, time.Now()
	}
	ch <- prometheus.MustNewConstMetric(desc("capstan_metrics_rows_failed_total", "Times that metrics of stored rows could not be read."), prometheus.CounterValue, float64(c.failed))
	c.m.series(c.last, ch)
	if c.m.options.Argo {
		c.m.argoSeries(c.last, ch)
	}
}

func (m *Metrics) series(p Snapshot, ch chan<- prometheus.Metric) {
	items := desc("capstan_work_items", "Items in the work queue, of all replicas.", "kind", "state")
	oldest := desc("capstan_work_oldest_due_seconds", "How long the oldest due item has waited.", "kind")
	for _, kind := range []string{hub.WorkFetch, hub.WorkRefresh, hub.WorkOutcome, hub.WorkRetry, hub.WorkUpgrade} {
		var q hub.QueueFigures
		for _, o := range p.Queues {
			if o.Kind == kind {
				q = o
			}
		}
		gauge(ch, items, float64(q.Due), kind, "due")
		gauge(ch, items, float64(q.Later), kind, "later")
		gauge(ch, items, float64(q.Leased), kind, "leased")
		gauge(ch, oldest, q.Oldest, kind)
	}
	apps := desc("capstan_applications", "Applications, by sync and health status.", "sync", "health")
	for k, n := range p.Sync {
		gauge(ch, apps, float64(n), k[0], k[1])
	}
	m.clusterSeries(p, ch)
	if m.options.PerTenant {
		tenantApps := desc("capstan_tenant_applications", "Applications, by tenant.", "tenant")
		tenantClusters := desc("capstan_tenant_clusters", "Clusters, by tenant.", "tenant")
		for name, f := range p.Tenants {
			gauge(ch, tenantApps, float64(f.Applications), name)
			gauge(ch, tenantClusters, float64(f.Clusters), name)
		}
	}
}

func (m *Metrics) clusterSeries(p Snapshot, ch chan<- prometheus.Metric) {
	var connected, behind int
	var rows int64
	var worst float64
	for _, c := range p.Clusters {
		if c.Connected {
			connected++
		}
		if c.LagRows > 0 {
			behind++
		}
		rows += c.LagRows
		if c.Connected { // what an offline cluster lacks is no delay of ours
			worst = max(worst, c.LagSeconds)
		}
	}
	clusters := desc("capstan_clusters", "Clusters, by whether their agent is connected to any replica.", "connected")
	gauge(ch, clusters, float64(connected), "true")
	gauge(ch, clusters, float64(len(p.Clusters)-connected), "false")
	gauge(ch, desc("capstan_desired_clusters_behind", "Clusters that have not acknowledged all of their desired log."), float64(behind))
	gauge(ch, desc("capstan_desired_lag_rows", "Rows of desired logs that are not acknowledged, of all clusters."), float64(rows))
	gauge(ch, desc("capstan_desired_lag_seconds", "Age of the oldest row that a connected cluster has not acknowledged."), worst)
}
