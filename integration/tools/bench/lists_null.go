package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// nullList is the floor of B18: a server that answers each request with the
// names and ages of 50 applications, read by one statement by primary key. It
// knows no tenants, rights, filters or numbers.
type nullList struct {
	pool    *pgxpool.Pool
	writers sync.Pool // of *gzip.Writer
	server  *http.Server
	address string
}

func startNullList(ctx context.Context, s *stack.Stack) (*nullList, error) {
	pool, err := pgxpool.New(ctx, s.Postgres.Superuser("capstan"))
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		pool.Close()
		return nil, err
	}
	n := &nullList{pool: pool, address: "http://" + ln.Addr().String()}
	n.writers.New = func() any {
		z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		return z
	}
	n.server = &http.Server{ReadHeaderTimeout: time.Second, Handler: n}
	go func() {
		if err := n.server.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "null system of B18:", err)
		}
	}()
	return n, nil
}

func (n *nullList) stop() {
	_ = n.server.Close()
	n.pool.Close()
}

func (n *nullList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	type row struct {
		ID, Name string
		Created  time.Time
	}
	rows, err := n.pool.Query(r.Context(), "SELECT a.id::text, a.name, a.created_at FROM application a ORDER BY a.tenant_id, a.id LIMIT 50")
	if err == nil {
		var out []row
		if out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[row]); err == nil {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z, _ := n.writers.Get().(*gzip.Writer)
			z.Reset(w)
			if err = json.NewEncoder(z).Encode(out); err == nil {
				err = z.Close()
			}
			n.writers.Put(z)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// quantiles orders times and names the middle one and that of 99 of 100.
func quantiles(took []time.Duration) string {
	slices.Sort(took)
	return fmt.Sprintf("p50 %s, p99 %s", took[len(took)/2].Round(100*time.Microsecond), took[len(took)*99/100].Round(100*time.Microsecond))
}
