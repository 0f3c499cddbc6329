package faultproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capstan-cd/capstan/integration/rigs/faultproxy"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/postgres"
)

// echo answers every line with itself.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return ln.Addr().String()
}

func TestWire(t *testing.T) {
	w, err := faultproxy.NewWire(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Stop() })
	dial := func() net.Conn {
		c, err := net.Dial("tcp", w.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	say := func(c net.Conn, text string) (string, error) {
		if _, err := io.WriteString(c, text+"\n"); err != nil {
			return "", err
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		return strings.TrimSpace(line), err
	}
	c := dial()
	if got, err := say(c, "hello"); got != "hello" || err != nil {
		t.Fatal(got, err)
	}
	w.Set(faultproxy.NetworkFaults{Delay: time.Millisecond, Jitter: time.Millisecond, Rate: 1 << 20})
	if got, err := say(c, "slow"); got != "slow" || err != nil {
		t.Fatal(got, err)
	}
	w.Set(faultproxy.NetworkFaults{Corrupt: 1})
	damaged := []byte("damaged\n") // the end of the line may be what is damaged
	got := make([]byte, len(damaged))
	for range 20 { // the way back may mend what the way there has done
		if _, err := c.Write(damaged); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, damaged) {
			break
		}
	}
	if bytes.Equal(got, damaged) {
		t.Error("nothing was damaged")
	}
	w.Set(faultproxy.NetworkFaults{Swallow: faultproxy.Down})
	if _, err := io.WriteString(c, "lost\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d, %v from a one-way link", n, err)
	}
	_ = c.SetReadDeadline(time.Time{})
	if w.Cut() != 1 {
		t.Error("not one connection was open")
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a cut link ended with %v", err)
	}
	w.Set(faultproxy.NetworkFaults{})
	w.Budget(6)
	if got, err := say(dial(), "0123456789"); err == nil {
		t.Errorf("%q came through beyond the budget", got)
	}
	w.Set(faultproxy.NetworkFaults{Refuse: true})
	if c, err := net.Dial("tcp", w.Addr()); err == nil { // or it is refused before that
		defer c.Close()
		if got, err := say(c, "x"); err == nil {
			t.Errorf("%q came through a refused connection", got)
		}
	}
}

func TestSQLWire(t *testing.T) {
	p := postgres.New(t, postgres.Options{})
	if _, err := p.CreateDatabase(t.Context(), "wire"); err != nil {
		t.Fatal(err)
	}
	w, err := faultproxy.NewSQLWire(p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Stop() })
	url := strings.Replace(p.NetworkURLs("wire").Owner, p.Address(), w.Addr(), 1)
	connect := func() *pgx.Conn {
		t.Helper()
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
		return c
	}
	c := connect()
	if _, err := c.Exec(t.Context(), "CREATE TABLE x (n integer)"); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		t.Helper()
		w.Decide(nil)
		var n int
		if err := connect().QueryRow(t.Context(), "SELECT count(*) FROM x WHERE n > $1", -1).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	put := func(c *pgx.Conn) error {
		tx, err := c.Begin(t.Context())
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue("INSERT INTO x VALUES ($1)", 1)
		b.Queue("INSERT INTO x VALUES ($1)", 2)
		if err := tx.SendBatch(t.Context(), b).Close(); err != nil {
			_ = tx.Rollback(t.Context())
			return err
		}
		return tx.Commit(t.Context())
	}
	at := func(sql string, act faultproxy.SQLAct) {
		hit := false
		w.Decide(func(s faultproxy.Statement) faultproxy.SQLAct {
			if hit || !s.Tx || !strings.HasPrefix(strings.ToLower(s.SQL), sql) {
				return faultproxy.SQLAct{}
			}
			hit = true
			return act
		})
	}
	if err := put(c); err != nil || count() != 2 {
		t.Fatal("without a fault", err)
	}
	at("insert", faultproxy.SQLAct{Error: "40001"})
	err = put(c)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "40001" || count() != 2 {
		t.Fatalf("refused: %v, %d rows", err, count())
	}
	if err := put(c); err != nil || count() != 4 {
		t.Fatalf("the connection cannot be used after an error: %v", err)
	}
	at("commit", faultproxy.SQLAct{Error: "40P01"})
	if err := put(c); err == nil || count() != 4 {
		t.Fatalf("refused commit: %v, %d rows", err, count())
	}
	at("insert", faultproxy.SQLAct{CutBefore: true})
	if err := put(c); err == nil || count() != 4 {
		t.Fatalf("cut: %v, %d rows", err, count())
	}
	at("commit", faultproxy.SQLAct{Lose: true})
	if err := put(connect()); err == nil || count() != 6 {
		t.Fatalf("lost answer: %v, %d rows", err, count())
	}
	at("insert", faultproxy.SQLAct{Lose: true})
	if err := put(connect()); err == nil || count() != 6 {
		t.Fatalf("lost answer of a statement: %v, %d rows", err, count())
	}
}

func TestLedger(t *testing.T) {
	cluster := kube.New(t, "ledger", kube.Options{})
	l, err := faultproxy.NewLedger(cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Stop() })
	const objects = `apiVersion: v1
kind: ServiceAccount
metadata: {name: writer, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: writer, namespace: default}]
`
	if err := cluster.Apply(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	file, err := cluster.AccountKubeconfigTo(t.Context(), "default", "writer", l.URL)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	apply := func(value string) error {
		_, err := maps.Apply(t.Context(), "ledger", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "ledger"}, "data": map[string]any{"v": value},
		}}, metav1.ApplyOptions{FieldManager: "me", Force: true})
		return err
	}
	if err := apply("1"); err != nil {
		t.Fatal(err)
	}
	l.Fault(faultproxy.KubeFault{Verb: "apply", Resource: "configmaps", Lose: true})
	if err := apply("2"); err == nil {
		t.Error("the answer was not lost")
	}
	l.Fault(faultproxy.KubeFault{Verb: "apply", Resource: "configmaps", Status: http.StatusTooManyRequests})
	if err := apply("3"); err == nil {
		t.Error("429 was not seen")
	}
	l.ClearFaults()
	if err := apply("2"); err != nil {
		t.Fatal(err)
	}
	var got []string
	entries := l.In("default")
	for _, e := range entries {
		got = append(got, strings.TrimSpace(e.Verb+" "+e.Object()+" "+e.Manager+" "+e.Fault))
	}
	want := []string{"apply configmaps default/ledger me", "apply configmaps default/ledger me answer lost", "apply configmaps default/ledger me answered 429", "apply configmaps default/ledger me"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("ledger %q", got)
	}
	if entries[0].User != "system:serviceaccount:default:writer" || entries[1].Code != 200 || entries[1].RV == entries[0].RV || entries[3].RV != entries[1].RV || entries[3].Content != entries[1].Content {
		t.Errorf("entries %+v", entries)
	}
}
