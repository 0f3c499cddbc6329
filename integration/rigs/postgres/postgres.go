// Package postgres runs a real PostgreSQL server, as the hub's database: its
// roles, one database for each test, a standby with streaming replication, and
// stops as orderly or as rude as a test needs. It finds the programs on this
// machine, and knows nothing of the hub's tables.
package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/build"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// The roles of a database, as the hub expects them.
const (
	OwnerRole  = "capstan_owner"  // runs migrations, owns the database
	AppRole    = "capstan_app"    // serves tenants, bound by row security
	SystemRole = "capstan_system" // leases work, holds ids only
)

const (
	superuser  = "postgres"
	startLimit = 3 * time.Minute // a limit for what hangs
	stopGrace  = 20 * time.Second
)

// Options say how a server is run. The zero value is right for tests.
type Options struct {
	// Dir holds the data and survives Stop; a later start with the same Dir
	// finds its databases again. Empty: a folder of its own, removed by Stop.
	Dir string
	// Durable waits for the disk, as production does. Without it a commit
	// survives a killed server but not a killed machine.
	Durable bool
	// Settings are added to the server's, such as "log_statement": "all".
	Settings map[string]string
}

// A Server is a running server with the three roles of the hub. Its methods
// may be called by several goroutines, apart from Restart and Stop.
type Server struct {
	dir      *process.Scratch
	bin      string
	as       *process.Account
	options  Options
	sockets  string
	port     int
	password string // of all roles over TCP; the private socket asks for none
	process  *process.Process
}

// URLs are the ways into one database, one for each role.
type URLs struct{ Owner, App, System string }

// A StopMode says how rudely a server ends.
type StopMode int

// The modes. Each comment says what clients and data see.
const (
	StopFast      StopMode = iota // clients are disconnected, data is flushed
	StopImmediate                 // as after a crash: the next start recovers
)

// Start starts a server and returns when it accepts connections. The
// caller must Stop it.
func Start(ctx context.Context, o Options) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := process.NewScratch("postgres", o.Dir)
	if err != nil {
		return nil, fmt.Errorf("prepare Postgres: %w", err)
	}
	p := &Server{dir: dir, bin: bin, options: o, password: rand.Text()}
	if err := p.boot(ctx); err != nil {
		return nil, errors.Join(err, p.Stop(StopImmediate))
	}
	return p, nil
}

// boot is everything between an empty folder and a server with roles.
func (p *Server) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := p.prepare(); err != nil {
		return err
	}
	if err := p.initialise(ctx); err != nil {
		return err
	}
	if err := p.run(ctx); err != nil {
		return err
	}
	return p.createRoles(ctx)
}

// prepare makes the folders, owned by the user who will run the server.
func (p *Server) prepare() error {
	if os.Geteuid() == 0 { // Postgres refuses to run as root
		as, err := process.FirstAccount("postgres", "nobody")
		if err != nil {
			return fmt.Errorf("choose a user for Postgres: %w", err)
		}
		p.as = as
	}
	var err error
	if p.sockets, err = p.dir.SocketFolder(); err != nil {
		return err
	}
	if err := os.Mkdir(p.data(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the data folder of Postgres: %w", err)
	}
	if p.as == nil {
		return nil
	}
	for _, path := range []string{p.data(), p.sockets} {
		if err := os.Chown(path, p.as.UID, p.as.GID); err != nil {
			return fmt.Errorf("give %q to user %s: %w", path, p.as.Name, err)
		}
	}
	return p.reachable()
}

// reachable checks that the other user gets to the data at all.
func (p *Server) reachable() error {
	for dir := p.dir.Path; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at %q: %w", dir, err)
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		mine := ok && int(owner.Uid) == p.as.UID
		if !mine && info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("postgres does not run as root, and user %s cannot enter %q: choose a folder elsewhere, or chmod a+x this one", p.as.Name, dir)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// initialise fills an empty data folder, and checks the version of a full one.
func (p *Server) initialise(ctx context.Context) error {
	have, err := os.ReadFile(filepath.Join(p.data(), "PG_VERSION"))
	if err == nil {
		return p.sameVersion(ctx, strings.TrimSpace(string(have)))
	}
	if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the version of the data: %w", err)
	}
	return p.tool(ctx, "initdb",
		"--pgdata", p.data(), "--username", superuser, "--encoding", "UTF8", "--locale", "C.UTF-8",
		"--auth-local", "trust", "--auth-host", "scram-sha-256", "--no-sync", "--no-instructions")
}

// tool runs a program of Postgres to its end, as the server's user.
func (p *Server) tool(ctx context.Context, name string, args ...string) error {
	made, err := process.Start(process.Command{
		Name: name, Path: filepath.Join(p.bin, name), As: p.as, Dir: "/", Args: args, Log: p.LogFile(), Orphan: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	select {
	case <-made.Done():
	case <-ctx.Done():
		_ = made.Stop(syscall.SIGKILL, 0)
		return made.Explain(fmt.Errorf("%s: %w", name, ctx.Err()))
	}
	if err := made.Err(); err != nil {
		return made.Explain(fmt.Errorf("%s: %w", name, err))
	}
	return nil
}

// sameVersion refuses data that another major version has written.
func (p *Server) sameVersion(ctx context.Context, have string) error {
	out, err := exec.CommandContext(ctx, filepath.Join(p.bin, "postgres"), "--version").Output()
	if err != nil {
		return fmt.Errorf("ask Postgres for its version: %w", err)
	}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (…)
	if len(fields) < 3 {
		return fmt.Errorf("ask Postgres for its version: unexpected answer %q", out)
	}
	if major, _, _ := strings.Cut(fields[2], "."); major != have {
		return fmt.Errorf("the data in %q was written by Postgres %s, and this is %s: remove the folder to start afresh", p.data(), have, fields[2])
	}
	return nil
}

// run starts the server, on another port if someone was faster.
func (p *Server) run(ctx context.Context) error {
	var err error
	for range process.PortAttempts {
		if p.port == 0 {
			if p.port, err = process.FreePort(); err != nil {
				return err
			}
		}
		if err = p.runOnce(ctx); err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), "could not create any TCP/IP sockets") {
			return err
		}
		p.port = 0
	}
	return err
}

func (p *Server) runOnce(ctx context.Context) error {
	orphan := syscall.SIGQUIT
	if p.options.Durable {
		orphan = syscall.SIGINT
	}
	server, err := process.Start(process.Command{
		Name: "postgres", Path: filepath.Join(p.bin, "postgres"), Args: p.settings(),
		As: p.as, Dir: "/", Log: p.LogFile(), Orphan: orphan,
	})
	if err != nil {
		return err
	}
	p.process = server
	return server.Ready(ctx, func(ctx context.Context) error {
		conn, err := p.super(ctx)
		if err != nil {
			return err
		}
		return conn.Close(ctx)
	})
}

// settings are the server's arguments.
func (p *Server) settings() []string {
	set := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(p.port),
		"unix_socket_directories": p.sockets,
		"max_connections":         "200",
		"shared_buffers":          "128MB",
		"max_wal_size":            "1GB",
		"jit":                     "off",
		"log_line_prefix":         "%m [%p] %u@%d ",
		"timezone":                "UTC",
		"log_timezone":            "UTC",
	}
	if !p.options.Durable {
		set["fsync"] = "off"
		set["full_page_writes"] = "off"
		set["shared_buffers"] = "32MB"
	}
	for name, value := range p.options.Settings {
		set[name] = value
	}
	args := []string{"-D", p.data()}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		args = append(args, "-c", name+"="+set[name])
	}
	return args
}

// createRoles makes the roles if they are not there, and gives them today's
// password.
func (p *Server) createRoles(ctx context.Context) error {
	conn, err := p.super(ctx)
	if err != nil {
		return p.process.Explain(err)
	}
	defer conn.Close(ctx)
	for role, rights := range map[string]string{OwnerRole: "CREATEROLE", AppRole: "NOCREATEROLE", SystemRole: "NOCREATEROLE"} {
		var there bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&there); err != nil {
			return fmt.Errorf("look for role %s: %w", role, err)
		}
		verb := "CREATE"
		if there {
			verb = "ALTER"
		}
		text := fmt.Sprintf("%s ROLE %s LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOREPLICATION %s PASSWORD '%s'", verb, role, rights, p.password)
		if _, err := conn.Exec(ctx, text); err != nil {
			return fmt.Errorf("create role %s: %w", role, err)
		}
	}
	return nil
}

// Address is where the server listens, as host:port.
func (p *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

// LogFile is the server's log.
func (p *Server) LogFile() string { return filepath.Join(p.dir.Path, "postgres.log") }

// Restart stops the server in the given mode and starts it again on the same
// port and socket, with all its data.
func (p *Server) Restart(ctx context.Context, mode StopMode) error {
	if err := p.Halt(mode); err != nil {
		return err
	}
	return p.Resume(ctx)
}

// Halt stops the server and keeps its data for Resume.
func (p *Server) Halt(mode StopMode) error {
	if p.process == nil {
		return nil
	}
	sig := syscall.SIGINT
	if mode == StopImmediate {
		sig = syscall.SIGQUIT
	}
	return p.process.Stop(sig, stopGrace)
}

// Resume starts a server that Halt has stopped, at its old address.
func (p *Server) Resume(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return p.runOnce(ctx)
}

// Stop ends the server and removes what it left, apart from a Dir that the
// caller chose. It may be called twice.
func (p *Server) Stop(mode StopMode) error {
	if p.dir == nil {
		return nil
	}
	err := errors.Join(p.Halt(mode), p.dir.Close())
	p.dir, p.process = nil, nil
	return err
}

func (p *Server) data() string { return filepath.Join(p.dir.Path, "data") }

// binaries finds the folder of initdb and postgres: that of the PATH,
// or the newest that Debian has installed outside of it.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil && build.Executable(filepath.Join(filepath.Dir(real), "postgres")) {
			return filepath.Dir(real), nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	slices.SortFunc(found, func(a, b string) int { return majorOf(b) - majorOf(a) })
	for _, dir := range found {
		if build.Executable(filepath.Join(dir, "initdb")) && build.Executable(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", errors.New("the programs of a Postgres server (initdb, postgres) are neither in the PATH nor in /usr/lib/postgresql: install them, on Debian with: apt-get install postgresql")
}

// majorOf reads the version from /usr/lib/postgresql/15/bin.
func majorOf(dir string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	if err != nil {
		return 0
	}
	return n
}
