package tunnel

import (
	"container/list"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	// handshakeTimeout is after how long a handshake may be evicted by another
	// one of the same source. A normal handshake takes milliseconds.
	handshakeTimeout = 2 * time.Second
	// evictionNotes is the least time between two log lines about evictions.
	evictionNotes = time.Minute
)

// pending are the connections whose handshake is not done, by source. At the
// limit, a new one evicts the oldest of the busiest source: a source that opens
// many and finishes none loses its own.
type pending struct {
	most, perSource int
	log             *slog.Logger

	mu      sync.Mutex
	count   int
	sources map[string]*list.List // of *waiting, the oldest first
	evicted int                   // since the last note
	noted   time.Time
}

// waiting is a connection during its handshake.
type waiting struct {
	conn    io.Closer
	source  string
	since   time.Time
	element *list.Element // nil: evicted, or done
}

func newPending(most, perSource int, log *slog.Logger) *pending {
	return &pending{most: most, perSource: perSource, log: log, sources: map[string]*list.List{}}
}

// enter admits a connection; false if it must be closed. Another one may be
// evicted for it.
func (p *pending) enter(ctx context.Context, c io.Closer, address string) (*waiting, bool) {
	w := &waiting{conn: c, source: clientip.Key(address), since: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.sources[w.source]
	if p.count >= p.most || own != nil && own.Len() >= p.perSource {
		busiest := p.busiest(own)
		oldest, _ := busiest.Front().Value.(*waiting)
		evict := busiest != own || w.since.Sub(oldest.since) >= handshakeTimeout
		p.note(ctx, oldest.source, w.since)
		if !evict {
			// Many agents behind one address connect at once: the first ones
			// finish first.
			return nil, false
		}
		p.remove(oldest)
		_ = oldest.conn.Close()
		own = p.sources[w.source]
	}
	if own == nil {
		own = list.New()
		p.sources[w.source] = own
	}
	w.element = own.PushBack(w)
	p.count++
	return w, true
}

// busiest is the source with the most handshakes. It is the new connection's
// own if that is at its limit, or has as many as any other.
func (p *pending) busiest(own *list.List) *list.List {
	most := own
	if own != nil && own.Len() >= p.perSource {
		return own
	}
	for _, l := range p.sources {
		if most == nil || l.Len() > most.Len() {
			most = l
		}
	}
	return most
}

// leave removes a connection whose handshake has ended.
func (p *pending) leave(w *waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(w)
}

func (p *pending) remove(w *waiting) {
	if w.element == nil {
		return
	}
	l := p.sources[w.source]
	l.Remove(w.element)
	w.element = nil
	p.count--
	if l.Len() == 0 {
		delete(p.sources, w.source)
	}
}

// note logs evictions, with a limited rate.
func (p *pending) note(ctx context.Context, source string, now time.Time) {
	p.evicted++
	if now.Sub(p.noted) < evictionNotes {
		return
	}
	p.log.WarnContext(ctx, "too many handshakes at once, connections closed", logkey.Address, source, logkey.Closed, p.evicted, logkey.Security, 3, logkey.CWE, 400)
	p.noted, p.evicted = now, 0
}
