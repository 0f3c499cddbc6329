package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// CreateDatabase makes an empty database that OwnerRole owns.
func (p *Server) CreateDatabase(ctx context.Context, name string) (URLs, error) {
	return p.CloneDatabase(ctx, name, "template1")
}

// CloneDatabase makes a database as a copy of another one, to which nobody
// may be connected. It is how tests get a migrated database in no time.
func (p *Server) CloneDatabase(ctx context.Context, name, from string) (URLs, error) {
	quoted := pgx.Identifier{name}.Sanitize()
	return p.URLs(name), p.admin(ctx,
		"CREATE DATABASE "+quoted+" OWNER "+OwnerRole+" TEMPLATE "+pgx.Identifier{from}.Sanitize(),
		"REVOKE ALL ON DATABASE "+quoted+" FROM PUBLIC",
		"GRANT CONNECT ON DATABASE "+quoted+" TO "+AppRole+", "+SystemRole,
	)
}

// DropDatabase removes a database and disconnects whoever uses it.
func (p *Server) DropDatabase(ctx context.Context, name string) error {
	return p.admin(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

// Disconnect ends every connection to a database, as a failing network or a
// failover would.
func (p *Server) Disconnect(ctx context.Context, name string) error {
	conn, err := p.super(ctx)
	if err != nil {
		return p.process.Explain(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name); err != nil {
		return fmt.Errorf("disconnect the users of database %q: %w", name, err)
	}
	return nil
}

// HasDatabase reports whether a database is there, which matters to callers
// that keep their Dir.
func (p *Server) HasDatabase(ctx context.Context, name string) (bool, error) {
	conn, err := p.super(ctx)
	if err != nil {
		return false, p.process.Explain(err)
	}
	defer conn.Close(ctx)
	var there bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there)
	return there, err
}

// URLs are the ways into a database through the private socket.
func (p *Server) URLs(database string) URLs {
	return URLs{Owner: p.socketURL(OwnerRole, database), App: p.socketURL(AppRole, database), System: p.socketURL(SystemRole, database)}
}

// NetworkURLs are the ways into a database through TCP, with a password; for
// tests that put something between the hub and the server.
func (p *Server) NetworkURLs(database string) URLs {
	return URLs{Owner: p.networkURL(OwnerRole, database), App: p.networkURL(AppRole, database), System: p.networkURL(SystemRole, database)}
}

// Superuser is the way into a database past all rights, for tests that check
// what the roles cannot see.
func (p *Server) Superuser(database string) string { return p.socketURL(superuser, database) }

// admin runs statements as the superuser, outside transactions.
func (p *Server) admin(ctx context.Context, statements ...string) error {
	conn, err := p.super(ctx)
	if err != nil {
		return p.process.Explain(err)
	}
	defer conn.Close(ctx)
	for _, text := range statements {
		_, err := conn.Exec(ctx, text)
		for try := 1; inUse(err) && try < 20; try++ {
			_, err = conn.Exec(ctx, text)
		}
		if err != nil {
			return fmt.Errorf("run %q: %w", text, err)
		}
	}
	return nil
}

// inUse says that a database could not be copied or dropped because somebody
// was still connected. Postgres waits for five seconds before it says so, and
// backends that were told to end may take longer on a busy machine.
func inUse(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "55006"
}

func (p *Server) super(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, p.Superuser("postgres"))
}

func (p *Server) socketURL(role, database string) string {
	query := url.Values{"host": {p.sockets}, "port": {strconv.Itoa(p.port)}, "sslmode": {"disable"}}
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database, RawQuery: query.Encode()}
	return u.String()
}

func (p *Server) networkURL(role, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(role, p.password), Host: p.Address(), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}
