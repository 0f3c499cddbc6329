package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// Attach uses an existing cluster, such as one of kind, k3d or minikube:
// that of the current context of a kubeconfig file, whose user is a cluster
// admin. Stop removes the agent's namespace and rights and leaves the cluster
// running. It fails if an agent is installed there.
func Attach(ctx context.Context, name, kubeconfig string) (*Cluster, error) {
	c, err := attach(name, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("use the cluster of %s: %w", kubeconfig, err)
	}
	_, err = c.clients.dynamic.Resource(namespaces).Get(ctx, AgentNamespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return c, nil
	case err == nil:
		err = fmt.Errorf("it has a namespace %[1]s: an agent is installed there, or was left by a demo that was killed; if it was, kubectl delete namespace %[1]s", AgentNamespace)
	default:
		err = fmt.Errorf("its API server does not answer: %w", err)
	}
	c.clients.close()
	return nil, errors.Join(fmt.Errorf("use the cluster of %s: %w", kubeconfig, err), c.dir.Close())
}

// attach reads the file and makes clients and a folder.
func attach(name, kubeconfig string) (*Cluster, error) {
	all, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	if all.Contexts[all.CurrentContext] == nil {
		return nil, fmt.Errorf("it has no current context: choose one with kubectl config use-context")
	}
	if err := clientapi.MinifyConfig(all); err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(all); err != nil {
		return nil, err
	}
	if err := clientapi.FlattenConfig(all); err != nil {
		return nil, err
	}
	dir, err := process.NewScratch("cluster", "")
	if err != nil {
		return nil, err
	}
	c := &Cluster{Name: name, dir: dir, given: all.Clusters[all.Contexts[all.CurrentContext].Cluster]}
	err = errors.Join(os.Chmod(dir.Path, 0o700), clientcmd.WriteToFile(*all, c.Kubeconfig()))
	if err == nil {
		c.clients, err = newClients(c.RESTConfig())
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return c, nil
}

// detach removes what StartAgent has created in a cluster that is not ours.
func (c *Cluster) detach(ctx context.Context) error {
	rights, err := AgentRights("cluster")
	if err != nil {
		return err
	}
	return c.Delete(ctx, rights)
}

// Attached reports whether the cluster was there before.
func (c *Cluster) Attached() bool { return c.given != nil }

// reach is how kubeconfig files say where the API server is.
func (c *Cluster) reach(server string) *clientapi.Cluster {
	if c.given == nil {
		return &clientapi.Cluster{Server: server, CertificateAuthorityData: c.authority.PEM}
	}
	reach := c.given.DeepCopy()
	reach.Server = server
	return reach
}

// Kubeconfig is the file of a user who may do everything.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir.Path, "admin.kubeconfig") }
