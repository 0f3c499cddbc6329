package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/process"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A databaseSize is what the hub costs its database at one moment.
type databaseSize struct {
	connections int     // of the hub
	backends    float64 // MiB of PSS of their processes
	server      float64 // MiB of PSS of all processes of the server, shared buffers included
	stored      float64 // MiB on the disk
}

func (d databaseSize) String() string {
	return fmt.Sprintf("%d connections with %.0f MiB PSS; server %.0f MiB PSS; %.0f MiB stored", d.connections, d.backends, d.server, d.stored)
}

// sizeOfDatabase reads it from the server and from its processes.
func sizeOfDatabase(ctx context.Context, s *stack.Stack) (d databaseSize, err error) {
	db, err := pgx.Connect(ctx, s.Postgres.Superuser("capstan"))
	if err != nil {
		return d, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	var own int
	var stored int64
	if err := db.QueryRow(ctx, "SELECT pg_backend_pid(), pg_database_size(current_database())").Scan(&own, &stored); err != nil {
		return d, err
	}
	rows, err := db.Query(ctx, "SELECT pid FROM pg_stat_activity WHERE application_name = 'capstan-hub'")
	if err != nil {
		return d, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return d, err
	}
	server, err := process.Parent(own)
	if err != nil {
		return d, err
	}
	d.connections, d.backends, d.stored = len(pids), process.PSS(pids...), float64(stored)/(1<<20)
	d.server = process.PSS(append(process.Children(server), server)...) - process.PSS(own)
	return d, nil
}
