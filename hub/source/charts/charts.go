// Package charts fetches charts from chart repositories over HTTP and from OCI
// registries (rows HELM-15, KUST-08). Other charts depend on them, and
// kustomizations inflate them. It goes through the same guard as the
// connections to Git repositories. Indices and archives are cached in memory,
// separately for each tenant and project; an index that was read before is
// requested conditionally.
//
// The daemon runs one Client per replica; the render stage calls it. Only the
// render workers read the content of an archive.
package charts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/lru"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// An Access opens a repository.
type Access struct {
	Credential  hub.Credential
	Insecure    bool   // do not verify the server's certificate
	PlainHTTP   bool   // a registry has no TLS
	Authorities string // PEM of the server's authorities, in place of the usual ones; empty: those of the system
}

// Repositories is what the hub knows of chart repositories.
type Repositories interface {
	// ChartAccess returns what opens the repository with a normalised URL for
	// the applications of a project. Empty: nothing is known of it.
	ChartAccess(ctx context.Context, tenant hub.TenantID, project, url string) (Access, error)
	// ChartRepository returns the URL of the repository that is registered
	// under a name for a project; fault.Missing if there is none.
	ChartRepository(ctx context.Context, tenant hub.TenantID, project, name string) (url string, err error)
}

// Config sets what may be read. Zero values mean the defaults.
type Config struct {
	AllowedNetworks []netip.Prefix // internal networks that repositories may be in all the same; default: none
	Proxies         []guard.Proxy  // that repositories may name; default: none
	Timeout         time.Duration  // one index or archive with all redirects; default 60 s
	Fresh           time.Duration  // an index is not requested again within; default 10 s
	CacheBytes      int64          // memory for indices and archives of all tenants, each; default 64 MiB
	IndexBytes      int64          // the largest index; default 64 MiB
	ArchiveBytes    int64          // the largest archive; default 20 MiB
	Now             func() time.Time
	// Observe is called after each request to a registry: get-tags,
	// resolve-revision or extract. It may be nil.
	Observe func(kind, address string, err error, took time.Duration)
}

// A Client reads charts. It is safe for many goroutines.
type Client struct {
	cfg          Config
	repositories Repositories
	transport    *http.Transport

	indices  *lru.Cache[key, Index]
	chosen   *lru.Cache[key, choice]
	archives *lru.Cache[key, hub.ChartArchive]
	flight   singleflight.Group
	loading  chan struct{} // a token for each index that is being read: they are large
}

// A key names what was read by whom. Nothing is shared between tenants or
// projects: one could learn from it what another one reads.
type key struct {
	tenant  hub.TenantID
	project string
	name    string
}

// maxIndices is how many indices are read at one time.
const maxIndices = 2

// New makes a client.
func New(cfg Config, repositories Repositories) *Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Minute
	}
	if cfg.Fresh == 0 {
		cfg.Fresh = 10 * time.Second
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = 64 << 20
	}
	if cfg.IndexBytes == 0 {
		cfg.IndexBytes = 64 << 20
	}
	if cfg.ArchiveBytes == 0 {
		cfg.ArchiveBytes = 20 << 20
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Observe == nil {
		cfg.Observe = func(string, string, error, time.Duration) {}
	}
	return &Client{
		cfg: cfg, repositories: repositories, transport: source.GuardedTransport(cfg.AllowedNetworks, nil),
		indices: lru.New[key, Index](cfg.CacheBytes), archives: lru.New[key, hub.ChartArchive](cfg.CacheBytes),
		chosen: lru.New[key, choice](4 << 20), loading: make(chan struct{}, maxIndices),
	}
}

// Locate returns the normalised address of the repository that a ref names.
func (c *Client) Locate(ctx context.Context, tenant hub.TenantID, project string, ref hub.ChartRef) (string, error) {
	address := ref.Repository
	if name, is := ref.Alias(); is {
		registered, err := c.repositories.ChartRepository(ctx, tenant, project, name)
		if fault.KindOf(err) == fault.Missing {
			return "", fault.With(fault.New(fault.Invalid, "the chart %q comes from the repository %q, and none is registered under that name", short(ref.Name), short(name)), "",
				"register it with `capstan repo add URL --type helm --name NAME`, or write its address")
		}
		if err != nil {
			return "", fmt.Errorf("find the chart repository: %w", err)
		}
		address = registered
	}
	located, err := repourl.Normalize(address)
	if err != nil {
		return "", fault.With(fault.New(fault.Invalid, "the chart %q has no usable repository: %s", short(ref.Name), fault.Sentence(err)), "", "write an http, https or oci address")
	}
	if u, err := url.Parse(located); err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "oci" {
		return "", fault.With(fault.New(fault.Invalid, "the chart %q has the repository %s, which is none of charts", short(ref.Name), located), "", "write an http, https or oci address")
	}
	return located, nil
}

// Chart returns the archive of a chart whose Repository is an address that
// Locate returned. It comes without Data if it is the one with the digest
// known. A version that is exact and known is not requested again: versions do
// not change.
func (c *Client) Chart(ctx context.Context, tenant hub.TenantID, project string, ref hub.ChartRef, known string) (hub.ChartArchive, error) {
	if err := checkRef(ref); err != nil {
		return hub.ChartArchive{}, err
	}
	if known != "" && exact(ref.Version) {
		return hub.ChartArchive{Version: ref.Version, Digest: known}, nil
	}
	type outcome struct {
		archive hub.ChartArchive
		err     error
	}
	flight := strings.Join([]string{string(tenant), project, ref.String(), known}, "\n")
	// A caller that is cancelled does not cancel the request of the others.
	result := c.flight.DoChan(flight, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout)
		defer cancel()
		a, err := c.chart(ctx, tenant, project, ref, known)
		return outcome{a, err}, nil
	})
	select {
	case <-ctx.Done():
		return hub.ChartArchive{}, fmt.Errorf("fetch chart %s: %w", ref.Name, ctx.Err())
	case r := <-result:
		out, ok := r.Val.(outcome)
		if !ok {
			return hub.ChartArchive{}, fmt.Errorf("fetch chart %s: %w", ref.Name, r.Err)
		}
		return out.archive, out.err
	}
}

// A choice is the version that was chosen for a ref, and for how long it is
// valid.
type choice struct {
	version, address, digest string     // the digest is empty if the repository has none
	layer                    Descriptor // of a registry
	until                    time.Time
}

func (c *Client) chart(ctx context.Context, tenant hub.TenantID, project string, ref hub.ChartRef, known string) (hub.ChartArchive, error) {
	access, err := c.repositories.ChartAccess(ctx, tenant, project, ref.Repository)
	if err != nil {
		return hub.ChartArchive{}, fmt.Errorf("find what opens %s: %w", ref.Repository, err)
	}
	conn, err := c.Open(ref.Repository, access)
	if err != nil {
		return hub.ChartArchive{}, err
	}
	defer conn.Close()
	var from repository = &httpRepository{c, conn, tenant, project}
	if strings.HasPrefix(ref.Repository, "oci://") {
		from = &registry{c, conn}
	}
	k := key{tenant, project, ref.String()}
	pick, have := c.chosen.Get(k)
	if !have || !exact(ref.Version) && c.cfg.Now().After(pick.until) {
		if pick, err = from.choose(ctx, ref); err != nil {
			return hub.ChartArchive{}, err
		}
		pick.until = c.cfg.Now().Add(c.cfg.Fresh)
		c.chosen.Put(k, pick, int64(len(k.name)+len(pick.address)+256))
	}
	if known != "" && pick.digest == known {
		return hub.ChartArchive{Version: pick.version, Digest: known}, nil
	}
	packed := key{tenant, project, pick.address + " " + pick.digest}
	if a, ok := c.archives.Get(packed); ok {
		return a, nil
	}
	data, err := from.fetch(ctx, ref, pick)
	if err != nil {
		return hub.ChartArchive{}, err
	}
	sum := sha256.Sum256(data)
	a := hub.ChartArchive{Version: pick.version, Digest: "sha256:" + hex.EncodeToString(sum[:]), Data: data}
	if pick.digest != "" && pick.digest != a.Digest {
		return hub.ChartArchive{}, otherDigest(ref, pick.version)
	}
	c.archives.Put(packed, a, int64(len(data)))
	return a, nil
}

func otherDigest(ref hub.ChartRef, version string) error {
	return fault.With(fault.New(fault.Invalid, "the archive of the chart %s %s has another digest than that of %s", ref.Name, version, ref.Repository), "",
		"publish the chart again")
}

// A repository is one place of charts, of either kind.
type repository interface {
	// choose finds the version that a ref selects.
	choose(ctx context.Context, ref hub.ChartRef) (choice, error)
	// fetch returns the archive of a choice.
	fetch(ctx context.Context, ref hub.ChartRef, pick choice) ([]byte, error)
}

// maxName and maxVersion bound names and versions in a Chart.yaml, in bytes.
const (
	maxName    = 256
	maxVersion = 256
)

func checkRef(ref hub.ChartRef) error {
	bad := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.' || r == '/'
	}
	name := strings.Trim(ref.Name, "/")
	if name == "" || name != ref.Name || len(name) > maxName || strings.Contains(name, "..") || strings.ContainsFunc(name, func(r rune) bool { return !bad(r) }) {
		return fault.With(fault.New(fault.Invalid, "%q is not the name of a chart", short(ref.Name)), "", "use letters, digits, - and .")
	}
	if len(ref.Version) > maxVersion {
		return fault.Wrap(fault.Invalid, ErrNone, "the version of the chart %q is longer than %d bytes", name, maxVersion)
	}
	return nil
}

// short bounds a text of a repository in a message.
func short(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// Forget drops what was read for a tenant.
func (c *Client) Forget(tenant hub.TenantID) {
	of := func(k key) bool { return k.tenant == tenant }
	c.indices.Drop(of)
	c.chosen.Drop(of)
	c.archives.Drop(of)
}
