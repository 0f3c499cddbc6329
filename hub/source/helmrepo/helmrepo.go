// Package helmrepo is the source of charts: of chart repositories over HTTP,
// which have an index, and of OCI registries. The revision of a chart is its
// version. hub/source/archives stores what it downloads.
//
// The index of a repository is stored with the validators that the server sent,
// and asked for again with them: an index that has not changed costs one small
// answer.
package helmrepo

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts"
)

// An Origin finds and reads charts.
type Origin struct {
	client *charts.Client
	fresh  time.Duration
	now    func() time.Time
}

var _ archives.Origin = (*Origin)(nil)

// New makes the origin of charts. What readers need within fresh of the newest
// look at an index is answered by that index.
func New(client *charts.Client, fresh time.Duration, now func() time.Time) *Origin {
	return &Origin{client, fresh, now}
}

// Open prepares calls to a repository.
func (o *Origin) Open(p archives.Place, fresh bool) (archives.Session, error) {
	conn, err := o.client.Open(p.Repository.URL, p.Access)
	if err != nil {
		return nil, err
	}
	return &session{Origin: o, place: p, conn: conn, renew: fresh}, nil
}

type session struct {
	*Origin
	place archives.Place
	conn  *charts.Connection
	renew bool // the index is asked for even if it is fresh
	// recent says that index is one that was not asked for in this session.
	recent bool
	index  *charts.Index
}

func (s *session) Close() { s.conn.Close() }

// Check reads the index, or contacts the registry.
func (s *session) Check(ctx context.Context) error {
	if s.place.Repository.Registry() {
		return s.conn.Ping(ctx)
	}
	return s.load(ctx)
}

// List returns the charts of the index, or the tags of a chart of a registry.
func (s *session) List(ctx context.Context, chart string) (hub.Listing, error) {
	if s.place.Repository.Registry() {
		tags, err := s.conn.ChartTags(ctx, hub.ChartRef{Repository: s.place.Repository.URL, Name: chart})
		return hub.Listing{Tags: tags}, err
	}
	if err := s.load(ctx); err != nil {
		return hub.Listing{}, err
	}
	all, err := s.index.Charts()
	return hub.Listing{Charts: all}, err
}

// Choose finds the version that a target selects.
func (s *session) Choose(ctx context.Context, t hub.Target) (archives.Choice, error) {
	found, err := s.choose(ctx, t)
	if err != nil && s.recent {
		// What is not in an index of some seconds ago may be published since.
		s.index, s.renew = nil, true
		found, err = s.choose(ctx, t)
	}
	if err != nil {
		return archives.Choice{}, err
	}
	return archives.Choice{Target: t, Commit: found.Version, Digest: found.Digest, Origin: found}, nil
}

func (s *session) choose(ctx context.Context, t hub.Target) (charts.Chosen, error) {
	var of charts.Index
	if !s.place.Repository.Registry() {
		if err := s.load(ctx); err != nil {
			return charts.Chosen{}, err
		}
		of = *s.index
	}
	return s.conn.Choose(ctx, hub.ChartRef{Repository: s.place.Repository.URL, Name: t.Chart, Version: t.Revision}, of)
}

// Download reads the archive of a chart and checks it against the digest that
// the repository has published.
func (s *session) Download(ctx context.Context, c archives.Choice, into *archives.Download) error {
	chosen, ok := c.Origin.(charts.Chosen)
	if !ok {
		return errors.New("the choice is none of this origin")
	}
	data, err := s.conn.Archive(ctx, chosen, c.Target.PassCredentials)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if c.Digest != "" && c.Digest != digest {
		return charts.OtherDigest(hub.ChartRef{Repository: s.place.Repository.URL, Name: c.Target.Chart}, c.Commit)
	}
	if err := into.Unpack(bytes.NewReader(data), true); err != nil {
		return err
	}
	return into.IsChart(digest, c.Target.Chart)
}

const (
	indexFile = "index"
	stateFile = "index-state"
)

// A state is what is known of the stored index.
type state struct {
	ETag     string    `json:"etag,omitempty"`
	Modified string    `json:"modified,omitempty"`
	Checked  time.Time `json:"checked"`
	Sum      string    `json:"sum"` // of the stored index
}

// load has the index in memory for the calls of the session.
func (s *session) load(ctx context.Context) error {
	if s.index != nil {
		return nil
	}
	old, checked := s.stored()
	if age := s.now().Sub(checked); !s.renew && len(old.Packed) > 0 && age >= 0 && age < s.fresh {
		s.index, s.recent = &old, true
		return nil
	}
	s.recent = false
	now, err := s.conn.Index(ctx, old)
	if err != nil {
		return err
	}
	s.index = &now
	return s.store(now)
}

// stored reads the index of the newest look. One that is damaged is asked for
// again.
func (s *session) stored() (charts.Index, time.Time) {
	if s.place.Dir == "" {
		return charts.Index{}, time.Time{}
	}
	text, err := os.ReadFile(filepath.Join(s.place.Dir, stateFile))
	if err != nil {
		return charts.Index{}, time.Time{}
	}
	var st state
	if json.Unmarshal(text, &st) != nil {
		return charts.Index{}, time.Time{}
	}
	packed, err := os.ReadFile(filepath.Join(s.place.Dir, indexFile))
	if err != nil || sumOf(packed) != st.Sum {
		return charts.Index{}, time.Time{}
	}
	return charts.Index{Packed: packed, ETag: st.ETag, Modified: st.Modified}, st.Checked
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (s *session) store(i charts.Index) error {
	if s.place.Dir == "" {
		return nil
	}
	text, err := json.Marshal(state{ETag: i.ETag, Modified: i.Modified, Checked: s.now(), Sum: sumOf(i.Packed)})
	if err != nil {
		return fmt.Errorf("write the state of an index: %w", err)
	}
	if err := os.MkdirAll(s.place.Dir, 0o700); err != nil {
		return fmt.Errorf("create the folder of a repository: %w", err)
	}
	if err := archives.Replace(filepath.Join(s.place.Dir, indexFile), i.Packed); err != nil {
		return err
	}
	return archives.Replace(filepath.Join(s.place.Dir, stateFile), text)
}
