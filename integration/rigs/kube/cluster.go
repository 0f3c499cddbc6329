// Package kube runs real Kubernetes control planes without containers: etcd,
// the API server with RBAC and an audit log, and on demand the controllers,
// the scheduler and fake nodes. It applies, watches and counts what a test
// needs, signs in users, and holds the rights of the agent's chart. It can
// also use a cluster that is there already.
package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-cd/capstan/integration/rigs/build"
	"github.com/capstan-cd/capstan/integration/rigs/pki"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

const (
	startLimit = 5 * time.Minute // a limit for what hangs; mostly four seconds
	// stopGrace is for parts that have something to flush.
	stopGrace = 5 * time.Second
	// detachGrace is for a cluster of someone else to forget the agent.
	detachGrace = 30 * time.Second
	// adminGroup may do everything in every cluster.
	adminGroup = "system:masters"
	// Admin is the user that a cluster's own Kubeconfig names, and under
	// which the methods of Cluster appear in the audit log.
	Admin = "harness"
)

// Options say which parts of Kubernetes a cluster has. Every cluster
// has etcd and an API server with RBAC and an audit log; that is enough for
// applies, watches and permissions, and ready in about four seconds.
type Options struct {
	// Controllers adds those of kube-controller-manager that are listed in
	// integration/rigs/localcluster/controllers: Deployments, Jobs, garbage
	// collection, namespaces that end, service accounts and more.
	Controllers bool
	// Nodes adds kube-scheduler and one large fake node whose pods run at
	// once (kwok.yaml says how to make them fail). It implies Controllers.
	Nodes bool
	// Dir holds everything and survives Stop. Empty: a folder of its own,
	// removed by Stop.
	Dir string
	// Durable makes etcd wait for the disk, as production does.
	Durable bool
	// Progress hears of builds that take minutes. Nil: standard error.
	Progress io.Writer
}

// A Cluster is a running Kubernetes control plane on loopback. Its methods
// may be called by several goroutines, apart from those that start and stop.
type Cluster struct {
	Name string

	options   Options
	binary    string // all parts in one
	dir       *process.Scratch
	authority *pki.Authority
	socket    string // of etcd, as an address
	port      int    // of the API server
	kubelet   int    // of the fake kubelets
	clients   *clients
	given     *clientapi.Cluster // of Attach; nil: the cluster is our own

	etcd, api, controllers, scheduler, kwok *process.Process
}

// Start starts a cluster and returns when it serves. The caller must
// Stop it. Any number can run side by side.
func Start(ctx context.Context, name string, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	o.Controllers = o.Controllers || o.Nodes
	binary, err := build.ControlPlane(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	dir, err := process.NewScratch("cluster", o.Dir)
	if err != nil {
		return nil, fmt.Errorf("prepare cluster %q: %w", name, err)
	}
	c := &Cluster{Name: name, options: o, binary: binary, dir: dir}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := c.boot(ctx); err != nil {
		return nil, fmt.Errorf("start cluster %q: %w", name, errors.Join(err, c.Stop()))
	}
	return c, nil
}

// boot is everything between an empty folder and a cluster that serves.
func (c *Cluster) boot(ctx context.Context) error {
	if err := os.Chmod(c.dir.Path, 0o700); err != nil { // keys are in it
		return err
	}
	var err error
	if c.authority, err = pki.Open(c.dir.Path); err != nil {
		return fmt.Errorf("make its authority: %w", err)
	}
	if err := c.writeInputs(); err != nil {
		return fmt.Errorf("write its settings: %w", err)
	}
	if err := c.startEtcd(); err != nil {
		return err
	}
	if err := c.startAPI(ctx); err != nil {
		return err
	}
	if c.clients, err = newClients(c.RESTConfig()); err != nil {
		return fmt.Errorf("make its clients: %w", err)
	}
	if err := c.api.Ready(ctx, c.clients.hasDefaultNamespace, c.etcd); err != nil {
		return err
	}
	if !c.options.Controllers {
		return nil
	}
	if err := c.startControllers(); err != nil {
		return err
	}
	if c.options.Nodes { // while the controllers start
		if err := c.startNodes(ctx); err != nil {
			return err
		}
	}
	return c.controllers.Ready(ctx, c.clients.hasDefaultAccount)
}

// startEtcd starts the database on a socket that only we can reach. The API
// server waits for it.
func (c *Cluster) startEtcd() error {
	folder, err := c.dir.SocketFolder()
	if err != nil {
		return err
	}
	c.socket = "unix://" + filepath.Join(folder, "etcd.sock")
	args := []string{
		"--name=default", "--data-dir=" + c.file("etcd-data"), "--log-level=warn", "--logger=zap",
		"--listen-client-urls=" + c.socket, "--advertise-client-urls=http://127.0.0.1:1",
		"--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls=http://127.0.0.1:1",
		"--initial-cluster=default=http://127.0.0.1:1", "--quota-backend-bytes=8589934592",
	}
	if !c.options.Durable {
		args = append(args, "--unsafe-no-fsync")
	}
	c.etcd, err = c.spawn("etcd", args...)
	return err
}

// startAPI starts the API server, on another port if someone was faster.
func (c *Cluster) startAPI(ctx context.Context) error {
	var err error
	for range process.PortAttempts {
		if c.port == 0 {
			if c.port, err = process.FreePort(); err != nil {
				return err
			}
		}
		if err = c.runAPI(ctx); err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), "address already in use") {
			return err
		}
		c.port = 0
	}
	return err
}

func (c *Cluster) runAPI(ctx context.Context) error {
	if err := c.writeKubeconfigs(); err != nil {
		return fmt.Errorf("write its kubeconfig files: %w", err)
	}
	args := []string{
		"--etcd-servers=" + c.socket, "--etcd-prefix=/registry",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.port),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--tls-cert-file=" + c.file("server.crt"), "--tls-private-key-file=" + c.file("server.key"),
		"--client-ca-file=" + c.file("ca.crt"), "--cert-dir=" + c.dir.Path,
		"--authorization-mode=RBAC", "--anonymous-auth=true",
		"--service-account-issuer=https://kubernetes.default.svc", "--api-audiences=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + c.file("accounts.key"), "--service-account-key-file=" + c.file("accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true",
		"--audit-policy-file=" + c.file("audit-policy.yaml"), "--audit-log-path=" + c.file("audit.log"), "--audit-log-maxsize=100000",
		"--disable-admission-plugins=" + strings.Join(c.disabledAdmission(), ","),
		"--profiling=false", "--shutdown-delay-duration=0s",
	}
	var err error
	if c.api, err = c.spawn("kube-apiserver", args...); err != nil {
		return err
	}
	ready, err := readiness(c.RESTConfig())
	if err != nil {
		return err
	}
	return c.api.Ready(ctx, ready, c.etcd)
}

// disabledAdmission are the plugins whose counterpart does not run here.
func (c *Cluster) disabledAdmission() []string {
	off := []string{"TaintNodesByCondition"} // nobody would remove the taint
	if !c.options.Controllers {
		off = append(off, "ServiceAccount") // nobody would make the accounts
	}
	return off
}

// startControllers starts the controllers.
func (c *Cluster) startControllers() (err error) {
	c.controllers, err = c.spawn("kube-controller-manager",
		"--kubeconfig="+c.file("kube-controller-manager.kubeconfig"),
		"--service-account-private-key-file="+c.file("accounts.key"), "--root-ca-file="+c.file("ca.crt"),
	)
	return err
}

// startNodes starts the scheduler and the fake kubelets, and makes the node.
func (c *Cluster) startNodes(ctx context.Context) error {
	var err error
	c.scheduler, err = c.spawn("kube-scheduler",
		"--kubeconfig="+c.file("kube-scheduler.kubeconfig"), "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=400", "--kube-api-burst=800", "--profiling=false",
	)
	if err != nil {
		return err
	}
	if err := c.clients.makeNode(ctx); err != nil {
		return fmt.Errorf("make its node: %w", err)
	}
	for range process.PortAttempts {
		if err = c.startKwok(ctx); err == nil || !strings.Contains(err.Error(), "address already in use") {
			return err
		}
	}
	return err
}

func (c *Cluster) startKwok(ctx context.Context) error {
	var err error
	if c.kubelet, err = process.FreePort(); err != nil {
		return err
	}
	if err := c.writeKwokConfig(); err != nil {
		return fmt.Errorf("write its settings: %w", err)
	}
	c.kwok, err = c.spawn("kwok", "--config="+c.file("kwok.yaml"), "--kubeconfig="+c.file("kwok.kubeconfig"))
	if err != nil {
		return err
	}
	return c.kwok.Ready(ctx, func(ctx context.Context) error {
		return errors.Join(c.clients.nodeReady(ctx, c.kubelet), dial(ctx, c.kubelet))
	})
}

// HaltAPI stops the API server, so that clients see a cluster that is away.
func (c *Cluster) HaltAPI() error { return c.api.Stop(syscall.SIGKILL, stopGrace) }

// ResumeAPI starts the API server again at its old address.
func (c *Cluster) ResumeAPI(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return c.runAPI(ctx)
}

// Stop ends what Start started and removes its folder, unless the
// caller chose it. It may be called twice.
func (c *Cluster) Stop() error {
	if c.dir == nil {
		return nil
	}
	var errs []error
	if c.Attached() {
		ctx, cancel := context.WithTimeout(context.Background(), detachGrace)
		defer cancel()
		errs = append(errs, c.detach(ctx))
	}
	for _, p := range []*process.Process{c.kwok, c.scheduler, c.controllers, c.api} {
		if p != nil { // they keep nothing, so nothing is lost
			errs = append(errs, p.Stop(syscall.SIGKILL, stopGrace))
		}
	}
	if c.etcd != nil {
		sig := syscall.SIGKILL
		if c.options.Dir != "" {
			sig = syscall.SIGTERM
		}
		errs = append(errs, c.etcd.Stop(sig, stopGrace))
	}
	if c.clients != nil {
		c.clients.close()
	}
	errs = append(errs, c.dir.Close())
	c.dir = nil
	return errors.Join(errs...)
}

// spawn starts one part, with its log beside the others.
func (c *Cluster) spawn(name string, args ...string) (*process.Process, error) {
	return process.Start(process.Command{
		Name: name, Path: c.binary, Argv0: name, Args: args, Dir: c.dir.Path, Log: c.LogFile(name),
		Env: []string{"KWOK_WORKDIR=" + c.file("kwok"), "GOMEMLIMIT=", "GOTRACEBACK="}, Orphan: syscall.SIGKILL,
	})
}

// LogFile is the log of a part, such as "kube-apiserver".
func (c *Cluster) LogFile(part string) string { return c.file(part + ".log") }

// URL is where the API server listens.
func (c *Cluster) URL() string {
	if c.given != nil {
		return c.given.Server
	}
	return fmt.Sprintf("https://127.0.0.1:%d", c.port)
}

// CA is the certificate of the authority that signed the API server's, in PEM.
func (c *Cluster) CA() []byte {
	if c.given != nil {
		return c.given.CertificateAuthorityData
	}
	return c.authority.PEM
}

// ServerCertificate is one for a server on loopback that stands for the API
// server.
func (c *Cluster) ServerCertificate() (tls.Certificate, error) {
	pair, err := c.authority.Server("kube-apiserver")
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(pair.Cert, pair.Key)
}

func (c *Cluster) file(name string) string { return filepath.Join(c.dir.Path, name) }
