package kube

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
)

//go:embed kwok.yaml
var kwokStages string

// auditPolicy records who asked for what, once per request, and leaves out
// the parts of the cluster themselves and the health checks.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "kwok", "system:anonymous"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
`

// podLog is what every pod of a fake node has said.
const podLog = `2026-01-01T00:00:00.000000000Z stdout F started
2026-01-01T00:00:01.000000000Z stdout F listening on :8080
2026-01-01T00:00:02.000000000Z stderr F warning: this is a fake pod
`

// writeInputs puts everything into the folder that the parts read.
func (c *Cluster) writeInputs() error {
	pair, err := c.authority.Server("kube-apiserver")
	if err != nil {
		return err
	}
	if _, _, err := pair.Write(c.dir.Path, "server"); err != nil {
		return err
	}
	if err := os.WriteFile(c.file("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	return writeAccountKey(c.file("accounts.key"))
}

// writeAccountKey makes the key that signs service account tokens, once.
func writeAccountKey(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

// writeKwokConfig writes the settings of the fake kubelets. They serve logs
// on loopback to whoever asks, which is why these are made up and why there
// is no exec: it would run commands on this machine.
func (c *Cluster) writeKwokConfig() error {
	pair, err := c.authority.Server("kubelet")
	if err != nil {
		return err
	}
	cert, key, err := pair.Write(c.dir.Path, "kubelet")
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file("pod.log"), []byte(podLog), 0o644); err != nil {
		return err
	}
	text := fmt.Sprintf(`apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: true
  nodeIP: 127.0.0.1
  nodePort: %d
  serverAddress: 127.0.0.1:%d
  tlsCertFile: %s
  tlsPrivateKeyFile: %s
  cidr: 10.244.0.0/16
  nodeLeaseDurationSeconds: 0
  podPlayStageParallelism: 16
  podsOnNodeSyncParallelism: 4
  nodePlayStageParallelism: 4
  nodeLeaseParallelism: 1
  enableDebuggingHandlers: true
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata:
  name: all
spec:
  logs:
  - logsFile: %s
    follow: true
---
%s`, c.kubelet, c.kubelet, strconv.Quote(cert), strconv.Quote(key), strconv.Quote(c.file("pod.log")), kwokStages)
	return os.WriteFile(c.file("kwok.yaml"), []byte(text), 0o600)
}

// writeKubeconfigs writes the admin's and those of the parts.
func (c *Cluster) writeKubeconfigs() error {
	for file, user := range map[string]string{
		"admin": Admin, "kwok": "kwok",
		"kube-controller-manager": "system:kube-controller-manager",
		"kube-scheduler":          "system:kube-scheduler",
	} {
		if _, err := c.userKubeconfig(file, user, []string{adminGroup}); err != nil {
			return err
		}
	}
	return nil
}

// KubeconfigFor writes a kubeconfig file of its own for a user and groups,
// proved by a client certificate, and returns its name. The user may do what
// RBAC says, which at first is nothing.
func (c *Cluster) KubeconfigFor(user string, groups ...string) (string, error) {
	return c.userKubeconfig("user-"+rand.Text(), user, groups)
}

func (c *Cluster) userKubeconfig(file, user string, groups []string) (string, error) {
	pair, err := c.authority.Client(user, groups)
	if err != nil {
		return "", fmt.Errorf("sign a certificate for user %q: %w", user, err)
	}
	return c.kubeconfig(file, &clientapi.AuthInfo{ClientCertificateData: pair.Cert, ClientKeyData: pair.Key})
}

// kubeconfig writes a file with one context and everything inside it.
func (c *Cluster) kubeconfig(file string, as *clientapi.AuthInfo) (string, error) {
	return c.kubeconfigTo(c.URL(), file, as)
}

func (c *Cluster) kubeconfigTo(server, file string, as *clientapi.AuthInfo) (string, error) {
	path := filepath.Join(c.dir.Path, file+".kubeconfig")
	config := clientapi.NewConfig()
	config.Clusters[c.Name] = c.reach(server)
	config.AuthInfos["user"] = as
	config.Contexts[c.Name] = &clientapi.Context{Cluster: c.Name, AuthInfo: "user"}
	config.CurrentContext = c.Name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write %q: %w", path, err)
	}
	return path, nil
}

// RESTConfig is for clients that may do everything. Its user is Admin.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", c.Kubeconfig(), err)
	}
	config.QPS, config.Burst = -1, -1 // tests are not to wait for themselves
	return config, nil
}
