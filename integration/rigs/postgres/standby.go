package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// Standby copies the running server and follows it by streaming replication,
// on a port of its own, with the same roles and passwords. With waits, each
// commit of this server waits until the standby has it on its disk; otherwise
// the standby lags, and lacks what was committed last when this server dies.
// The caller must Stop it.
func (p *Server) Standby(ctx context.Context, waits bool) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	dir, err := process.NewScratch("standby", "")
	if err != nil {
		return nil, fmt.Errorf("prepare a standby: %w", err)
	}
	s := &Server{dir: dir, bin: p.bin, options: p.options, password: p.password}
	s.options.Dir = ""
	err = s.prepare()
	if err == nil {
		err = s.copyOf(ctx, p)
	}
	if err == nil {
		err = s.run(ctx)
	}
	if err == nil {
		name := ""
		if waits {
			name = "*"
		}
		err = p.wait(ctx, name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a standby: %w", err), s.Stop(StopImmediate))
	}
	return s, nil
}

// copyOf fills the data folder from a running server, and leaves there how to
// follow it.
func (p *Server) copyOf(ctx context.Context, of *Server) error {
	return p.tool(ctx, "pg_basebackup",
		"--pgdata", p.data(), "--host", of.sockets, "--port", strconv.Itoa(of.port), "--username", superuser,
		"--checkpoint", "fast", "--wal-method", "stream", "--write-recovery-conf", "--no-sync")
}

// wait says for which standbys commits wait.
func (p *Server) wait(ctx context.Context, names string) error {
	conn, err := p.super(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT pg_reload_conf()")
	return err
}

// Promote makes a standby the server, and returns when it takes writes. For
// its own commits it waits for nobody.
func (p *Server) Promote(ctx context.Context) error {
	conn, err := p.super(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var done bool
	if err := conn.QueryRow(ctx, "SELECT pg_promote()").Scan(&done); err != nil || !done {
		return fmt.Errorf("promote the standby: done %v: %w", done, err)
	}
	return p.wait(ctx, "")
}
