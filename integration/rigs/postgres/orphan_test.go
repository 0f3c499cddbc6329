package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
)

// orphanVariable turns this test binary into a process that starts a server
// and waits to be killed.
const orphanVariable = "HARNESS_TEST_ORPHAN"

func TestMain(m *testing.M) {
	if os.Getenv(orphanVariable) == "" {
		os.Exit(m.Run())
	}
	pg, err := postgres.Start(context.Background(), postgres.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(pg.Superuser("postgres"))
	select {}
}

func TestNothingOutlivesAKilledProcess(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	parent := exec.CommandContext(ctx, os.Args[0])
	parent.Env = append(os.Environ(), orphanVariable+"=1", "TMPDIR="+sharedDir(t))
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	url = strings.TrimSpace(url)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(ctx)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	err = poll.Until(ctx, func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil
		}
		_ = conn.Close(ctx)
		return errors.New("the server still answers")
	})
	if err != nil {
		t.Error(err)
	}
}
