package storetest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	superuser  = "postgres"
	startLimit = 5 * time.Minute // a machine that starts several at once is slow
	stopLimit  = time.Minute
	maxTries   = 20 // to copy or drop a database
	folder     = "capstan-storetest-"
)

// A server is the Postgres of one test process. It listens on a private
// socket only, and the kernel ends it when the process ends in any way.
type server struct {
	bin  string
	dir  string
	as   *syscall.Credential
	cmd  *exec.Cmd
	done chan struct{}
}

// startServer makes an empty database cluster with the hub's roles.
func startServer(ctx context.Context) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	removeStale()
	s := &server{done: make(chan struct{})}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if err := s.boot(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) prepare() (err error) {
	if s.bin, err = binaries(); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("/tmp", folder+strconv.Itoa(os.Getpid())+"-"); err != nil {
		return fmt.Errorf("make a folder for Postgres: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	// Postgres refuses to run as root.
	who, err := user.Lookup("postgres")
	if err != nil {
		who, err = user.Lookup("nobody")
	}
	if err != nil {
		return fmt.Errorf("choose a user for Postgres: %w", err)
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return fmt.Errorf("read uid of %s: %w", who.Username, err)
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return fmt.Errorf("read gid of %s: %w", who.Username, err)
	}
	s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(s.dir, int(uid), int(gid))
}

func (s *server) boot(ctx context.Context) error {
	initdb := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "--pgdata", s.data(), "--username", superuser,
		"--encoding", "UTF8", "--locale", "C.UTF-8", "--auth", "trust", "--no-sync", "--no-instructions")
	initdb.Dir = "/"
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	if err := s.launch(); err != nil {
		return err
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.admin(ctx,
		`CREATE ROLE capstan_owner LOGIN NOSUPERUSER NOBYPASSRLS CREATEROLE NOCREATEDB`,
		`CREATE ROLE capstan_app LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB`,
		`CREATE ROLE capstan_system LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB`)
}

// launch starts the server under an operating system thread that lives as long
// as the server. The kernel sends the parent-death signal when the thread that
// started a process ends.
func (s *server) launch() error {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return fmt.Errorf("open the log of Postgres: %w", err)
	}
	defer log.Close()
	args := []string{"-D", s.data(), "-k", s.dir}
	for _, setting := range []string{
		"listen_addresses=", "fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0", "shared_buffers=64MB",
		"max_connections=300", "jit=off", "timezone=UTC", "log_timezone=UTC", "autovacuum_naptime=10s",
	} {
		args = append(args, "-c", setting)
	}
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = "/", log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Pdeathsig: syscall.SIGQUIT, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		s.cmd = nil
		return fmt.Errorf("start Postgres: %w", err)
	}
	return nil
}

func (s *server) ready(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, s.url(superuser, "postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.done:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("postgres ended while it started: %s", log)
		case <-ctx.Done():
			return fmt.Errorf("postgres is not ready in time: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server by its handle and removes its folder.
func (s *server) stop() error {
	if s.cmd != nil {
		if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop Postgres: %w", err)
		}
		select {
		case <-s.done:
		case <-time.After(stopLimit):
			_ = s.cmd.Process.Kill()
			<-s.done
		}
	}
	return os.RemoveAll(s.dir)
}

// admin runs statements as the superuser, outside transactions.
func (s *server) admin(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.url(superuser, "postgres"))
	if err != nil {
		return fmt.Errorf("connect to Postgres: %w", err)
	}
	defer conn.Close(ctx)
	for _, statement := range statements {
		_, err := conn.Exec(ctx, statement)
		for try := 1; inUse(err) && try < maxTries; try++ {
			_, err = conn.Exec(ctx, statement)
		}
		if err != nil {
			return fmt.Errorf("run %q: %w", statement, err)
		}
	}
	return nil
}

// inUse reports that a database could not be copied or dropped because of a
// connection. Postgres has waited five seconds before that error, which is
// short for backends on a busy machine.
func inUse(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "55006"
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) url(role, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(role), Path: "/" + database, RawQuery: url.Values{"host": {s.dir}, "connect_timeout": {"60"}}.Encode()}
	return u.String()
}

// removeStale removes the folders of test processes that ended without
// stopping their server; the kernel has ended the server itself.
func removeStale() {
	found, _ := filepath.Glob("/tmp/" + folder + "*")
	for _, dir := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), folder), "-")
		n, err := strconv.Atoi(pid)
		if err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir)
		}
	}
}

// binaries finds initdb and postgres: in the PATH, or the newest that Debian
// has installed outside of it.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "postgres")); err == nil {
				return filepath.Dir(path), nil
			}
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errors.New("initdb and postgres are neither in the PATH nor in /usr/lib/postgresql: install them, on Debian with: apt-get install postgresql")
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })
	return filepath.Dir(newest), nil
}

// major reads the version from /usr/lib/postgresql/15/bin/initdb.
func major(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}
