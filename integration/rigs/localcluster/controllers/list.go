package controllers

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/kubernetes/pkg/controller/volume/persistentvolume"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	quota "k8s.io/kubernetes/pkg/quota/v1/install"
	tokens "k8s.io/kubernetes/pkg/serviceaccount"
)

// How many objects of one controller are worked on at once, as in
// kube-controller-manager.
const (
	workers        = 5
	accountWorkers = 1
	nsWorkers      = 10
	gcWorkers      = 20
	slicePods      = 100 // endpoints in one slice
)

// builders make the controllers. Whoever needs another one adds it here.
var builders = map[string]func(context.Context, *setting) (loop, error){
	"serviceaccount-token":    accountTokens,
	"serviceaccount":          accounts,
	"root-ca-cert-publisher":  rootCertificate,
	"clusterrole-aggregation": clusterRoles,
	"namespace":               namespaces,
	"garbagecollector":        garbage,
	"resourcequota":           quotas,
	"pvc-protection":          claims,
	"persistentvolume-binder": volumes,
	"deployment":              deployments,
	"replicaset":              replicaSets,
	"statefulset":             statefulSets,
	"daemonset":               daemonSets,
	"disruption":              disruptions,
	"job":                     jobs,
	"cronjob":                 cronJobs,
	"ttl-after-finished":      finishedJobs,
	"endpoint":                endpoints,
	"endpointslice":           endpointSlices,
}

func accountTokens(ctx context.Context, s *setting) (loop, error) {
	key, err := keyutil.PrivateKeyFromFile(s.options.signingKey)
	if err != nil {
		return nil, err
	}
	generator, err := tokens.JWTTokenGenerator(tokens.LegacyIssuer, key)
	if err != nil {
		return nil, err
	}
	client, err := s.clientFor("tokens-controller")
	if err != nil {
		return nil, err
	}
	core := s.informers.Core().V1()
	c, err := serviceaccount.NewTokensController(klog.FromContext(ctx), core.ServiceAccounts(), core.Secrets(), client,
		serviceaccount.TokensControllerOptions{TokenGenerator: generator, RootCA: s.rootCA})
	return func(ctx context.Context) { c.Run(ctx, workers) }, err
}

func accounts(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("service-account-controller")
	if err != nil {
		return nil, err
	}
	core := s.informers.Core().V1()
	c, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	return func(ctx context.Context) { c.Run(ctx, accountWorkers) }, err
}

func rootCertificate(_ context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("root-ca-cert-publisher")
	if err != nil {
		return nil, err
	}
	core := s.informers.Core().V1()
	c, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, s.rootCA)
	return func(ctx context.Context) { c.Run(ctx, accountWorkers) }, err
}

func clusterRoles(_ context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("clusterrole-aggregation-controller")
	if err != nil {
		return nil, err
	}
	c := clusterroleaggregation.NewClusterRoleAggregation(s.informers.Rbac().V1().ClusterRoles(), client.RbacV1())
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

// namespaces reads what kinds there are and deletes all objects of each, for
// which the limit on requests is raised as in kube-controller-manager.
func namespaces(ctx context.Context, s *setting) (loop, error) {
	config := s.as("namespace-controller")
	config.QPS, config.Burst = 20*requests, 100*burst
	own := *s
	own.config = config
	client, err := own.clientFor("namespace-controller")
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		s.informers.Core().V1().Namespaces(), 5*time.Minute, v1.FinalizerKubernetes)
	return func(ctx context.Context) { c.Run(ctx, nsWorkers) }, nil
}

func garbage(ctx context.Context, s *setting) (loop, error) {
	const name = "generic-garbage-collector"
	client, err := s.clientFor(name)
	if err != nil {
		return nil, err
	}
	config := s.as(name)
	config.QPS *= 2 // each deletion takes two requests
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, s.metadata, s.mapper, garbagecollector.DefaultIgnoredResources(), s.any, s.started)
	c, err := garbagecollector.NewComposedGarbageCollector(ctx, client, objects, s.mapper, graph)
	return both(
		func(ctx context.Context) { c.Run(ctx, gcWorkers, relearn) },
		func(ctx context.Context) { c.Sync(ctx, client.Discovery(), relearn) },
	), err
}

func quotas(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("resourcequota-controller")
	if err != nil {
		return nil, err
	}
	discover := client.Discovery().ServerPreferredNamespacedResources
	rules, err := quota.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(s.informers.ForResource), s.informers)
	if err != nil {
		return nil, err
	}
	c, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               client.CoreV1(),
		ResourceQuotaInformer:     s.informers.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(5 * time.Minute),
		InformerFactory:           s.any,
		ReplenishmentResyncPeriod: period,
		DiscoveryFunc:             discover,
		IgnoredResourcesFunc:      rules.IgnoredResources,
		InformersStarted:          s.started,
		Registry:                  generic.NewRegistry(rules.Evaluators()),
		UpdateFilter:              quota.DefaultUpdateFilter(),
	})
	return both(
		func(ctx context.Context) { c.Run(ctx, workers) },
		func(ctx context.Context) { c.Sync(ctx, discover, relearn) },
	), err
}

func claims(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("pvc-protection-controller")
	if err != nil {
		return nil, err
	}
	core := s.informers.Core().V1()
	c, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx), core.PersistentVolumeClaims(), core.Pods(), client)
	return func(ctx context.Context) { c.Run(ctx, 1) }, err
}

// volumes binds claims to volumes that are there. It makes none: there is no
// plugin that could.
func volumes(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("persistent-volume-binder")
	if err != nil {
		return nil, err
	}
	core := s.informers.Core().V1()
	c, err := persistentvolume.NewController(ctx, persistentvolume.ControllerParameters{
		KubeClient: client, SyncPeriod: 15 * time.Second, VolumeInformer: core.PersistentVolumes(), ClaimInformer: core.PersistentVolumeClaims(),
		ClassInformer: s.informers.Storage().V1().StorageClasses(), PodInformer: core.Pods(), NodeInformer: core.Nodes(),
	})
	return func(ctx context.Context) { c.Run(ctx) }, err
}

func deployments(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("deployment-controller")
	if err != nil {
		return nil, err
	}
	apps := s.informers.Apps().V1()
	c, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), s.informers.Core().V1().Pods(), client)
	return func(ctx context.Context) { c.Run(ctx, workers) }, err
}

func replicaSets(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("replicaset-controller")
	if err != nil {
		return nil, err
	}
	c := replicaset.NewReplicaSetController(ctx, s.informers.Apps().V1().ReplicaSets(), s.informers.Core().V1().Pods(), client, replicaset.BurstReplicas)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func statefulSets(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("statefulset-controller")
	if err != nil {
		return nil, err
	}
	apps, core := s.informers.Apps().V1(), s.informers.Core().V1()
	c := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), client)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func daemonSets(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("daemon-set-controller")
	if err != nil {
		return nil, err
	}
	apps, core := s.informers.Apps().V1(), s.informers.Core().V1()
	c, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), client,
		flowcontrol.NewBackOff(time.Second, 15*time.Minute))
	return func(ctx context.Context) { c.Run(ctx, workers) }, err
}

func disruptions(ctx context.Context, s *setting) (loop, error) {
	const name = "disruption-controller"
	client, err := s.clientFor(name)
	if err != nil {
		return nil, err
	}
	scales, err := scale.NewForConfig(s.as(name), s.mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, err
	}
	apps, core := s.informers.Apps().V1(), s.informers.Core().V1()
	c := disruption.NewDisruptionController(ctx, core.Pods(), s.informers.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(),
		apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, s.mapper, scales, client.Discovery())
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func jobs(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("job-controller")
	if err != nil {
		return nil, err
	}
	// Without the informers of a feature that is off.
	c, err := job.NewController(ctx, client, s.informers.Core().V1().Pods(), s.informers.Batch().V1().Jobs(), nil, nil)
	return func(ctx context.Context) { c.Run(ctx, workers) }, err
}

func cronJobs(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("cronjob-controller")
	if err != nil {
		return nil, err
	}
	batch := s.informers.Batch().V1()
	c, err := cronjob.NewControllerV2(ctx, batch.Jobs(), batch.CronJobs(), client)
	return func(ctx context.Context) { c.Run(ctx, workers) }, err
}

func finishedJobs(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("ttl-after-finished-controller")
	if err != nil {
		return nil, err
	}
	c := ttlafterfinished.New(ctx, s.informers.Batch().V1().Jobs(), client)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func endpoints(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("endpoint-controller")
	if err != nil {
		return nil, err
	}
	core := s.informers.Core().V1()
	c := endpoint.NewEndpointController(ctx, core.Pods(), core.Services(), core.Endpoints(), client, 0)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

func endpointSlices(ctx context.Context, s *setting) (loop, error) {
	client, err := s.clientFor("endpointslice-controller")
	if err != nil {
		return nil, err
	}
	core := s.informers.Core().V1()
	c := endpointslice.NewController(ctx, core.Pods(), core.Services(), core.Nodes(), s.informers.Discovery().V1().EndpointSlices(), slicePods, client, 0)
	return func(ctx context.Context) { c.Run(ctx, workers) }, nil
}

// both runs two loops of one controller.
func both(loops ...loop) loop {
	return func(ctx context.Context) {
		var running sync.WaitGroup
		for _, l := range loops {
			running.Go(func() { l(ctx) })
		}
		running.Wait()
	}
}
