// Package controllers runs the controllers of Kubernetes that the tests and
// the demo rely on, and no others. kube-controller-manager has twice as many:
// its own flags, volume plugins, and what watches real nodes and signs
// certificates would take minutes to compile, and nothing here has a use for
// them.
package controllers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
	"k8s.io/controller-manager/pkg/informerfactory"
)

const (
	// resync is how often informers hand out all that they hold again, at
	// least; the same as in kube-controller-manager.
	resync = 12 * time.Hour
	// relearn is how often the kinds that the API server serves are read anew.
	relearn = 30 * time.Second
	// requests per second of each controller, and how many at once.
	requests, burst = 400, 800
)

// options are the flags, named as those of kube-controller-manager are.
type options struct {
	kubeconfig string
	signingKey string // signs the tokens of service accounts
	rootCA     string // published to all namespaces
}

// NewCommand is the command that runs the controllers until it is killed.
func NewCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "kube-controller-manager",
		Short: "Run the controllers that a local cluster needs",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return run(c.Context(), o)
		},
	}
	c.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "file that says how to reach the API server")
	c.Flags().StringVar(&o.signingKey, "service-account-private-key-file", "", "file with the key that signs tokens of service accounts")
	c.Flags().StringVar(&o.rootCA, "root-ca-file", "", "file with the certificate of the API server's authority")
	return c
}

// A setting is what controllers are made from.
type setting struct {
	options   options
	config    *rest.Config
	client    kubernetes.Interface
	metadata  metadata.Interface
	mapper    meta.ResettableRESTMapper
	informers informers.SharedInformerFactory
	any       informerfactory.InformerFactory // of every kind, also of custom ones
	started   chan struct{}                   // closed when the informers have been started
	rootCA    []byte                          // in PEM
}

// A loop runs one controller until its context ends.
type loop func(context.Context)

// run makes all controllers before it starts any, because their informers are
// shared.
func run(ctx context.Context, o options) error {
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // kinds of old versions are watched on purpose
	s, err := newSetting(ctx, o)
	if err != nil {
		return err
	}
	var loops []loop
	for name, build := range builders {
		l, err := build(ctx, s)
		if err != nil {
			return fmt.Errorf("make the controller %s: %w", name, err)
		}
		loops = append(loops, l)
	}
	s.informers.Start(ctx.Done())
	s.any.Start(ctx.Done())
	close(s.started)
	var running sync.WaitGroup
	for _, l := range loops {
		running.Go(func() { l(ctx) })
	}
	running.Wait()
	return nil
}

func newSetting(ctx context.Context, o options) (*setting, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", o.kubeconfig, err)
	}
	config.QPS, config.Burst = requests, burst
	config.ContentType = "application/vnd.kubernetes.protobuf"
	s := &setting{options: o, config: config, started: make(chan struct{})}
	if s.rootCA, err = readCertificate(o.rootCA); err != nil {
		return nil, err
	}
	if s.client, err = s.clientFor("shared-informers"); err != nil {
		return nil, err
	}
	if s.metadata, err = metadata.NewForConfig(s.as("metadata-informers")); err != nil {
		return nil, err
	}
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.client.Discovery()))
	go wait.Until(s.mapper.Reset, relearn, ctx.Done())
	s.informers = informers.NewSharedInformerFactoryWithOptions(s.client, period(), informers.WithTransform(trim))
	others := metadatainformer.NewSharedInformerFactoryWithOptions(s.metadata, period(), metadatainformer.WithTransform(trim))
	s.any = informerfactory.NewInformerFactory(s.informers, others)
	return s, nil
}

// as is the configuration under the name of one controller.
func (s *setting) as(name string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(s.config), name)
}

// clientFor is a client with limits of its own.
func (s *setting) clientFor(name string) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(s.as(name))
}

// period is resync or up to twice as long, so that not all come at once.
func period() time.Duration { return resync + rand.N(resync) }

// trim leaves out what no controller reads and takes most of the room.
func trim(o any) (any, error) {
	if m, err := meta.Accessor(o); err == nil && m.GetManagedFields() != nil {
		m.SetManagedFields(nil)
	}
	return o, nil
}

func readCertificate(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the authority: %w", err)
	}
	if _, err := cert.ParseCertsPEM(b); err != nil {
		return nil, fmt.Errorf("read the certificate of the authority from %s: %w", path, err)
	}
	return b, nil
}
