package settings_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A want is what a row of the contract says of keys: all have the same kind of
// value, of which bad is none. An empty bad value means that any text is fine.
type want struct {
	name string // of the map; empty: that of the row
	keys string
	bad  string
}

const (
	noTruth    = "perhaps"
	noNumber   = "many"
	noDuration = "soon"
	noAddress  = "javascript:alert(1)"
)

// rows are the rows CFG-01 to CFG-20 of the contract, key by key. The words of a
// family stand with a name of the family.
func rows() map[string][]want {
	clients, renderers, logs := "", "", ""
	for _, c := range []string{"controller", "server", "applicationsetcontroller"} {
		for _, k := range []string{"k8s.client.qps", "k8s.client.burst", "k8s.client.max.idle.connections", "k8sclient.retry.max", "k8sclient.retry.base.backoff"} {
			clients += " " + c + "." + k
		}
	}
	for _, c := range []string{"controller", "server", "applicationsetcontroller", "notificationscontroller"} {
		renderers += " " + c + ".repo.server.plaintext " + c + ".repo.server.strict.tls " + c + ".grpc.enable.txt.service.config"
	}
	for _, c := range []string{"controller", "server", "reposerver", "applicationsetcontroller", "notificationscontroller", "commitserver", "dexserver"} {
		logs += " " + c + ".log.format " + c + ".log.level"
	}
	const prefix = "resource.customizations."
	params := func(keys, bad string) want { return want{"argocd-cmd-params-cm", keys, bad} }
	cm := func(keys, bad string) want { return want{"argocd-cm", keys, bad} }
	secret := func(keys, bad string) want { return want{"argocd-secret", keys, bad} }
	return map[string][]want{
		"CFG-01 address and console": {
			cm("url statusbadge.url ui.cssurl ui.bannerurl help.chatUrl help.download.linux-amd64", noAddress),
			cm("statusbadge.enabled ui.bannerpermanent ui.view.resources.disabled ga.anonymizeusers", noTruth),
			cm("ui.bannerposition", "left"), cm("additionalUrls", "a: b"),
			cm("ui.bannercontent ui.loginButtonText help.chatText ga.trackingid", ""),
		},
		"CFG-02 users": {
			cm("admin.enabled accounts.ci.enabled users.anonymous.enabled oidc.tls.insecure.skip.verify", noTruth),
			cm("accounts.ci", "root"), cm("users.session.duration", noDuration), cm("passwordPattern", "("),
			cm("dex.config oidc.config", "- a"), cm("dex.auth.connectorId", ""),
		},
		"CFG-03 resource customisation": {
			cm("resource.customizations resource.compareoptions", "- a"), cm("resource.exclusions resource.inclusions", "a: b"),
			cm(prefix+"actions.a_B "+prefix+"ignoreDifferences.a_B "+prefix+"ignoreResourceUpdates.a_B", "- a"), cm(prefix+"knownTypeFields.a_B", "a: b"),
			cm(prefix+"useOpenLibs.a_B resource.ignoreResourceUpdatesEnabled", noTruth), cm("resource.respectRBAC", "some"),
			cm(prefix+"health.a_B resource.sensitive.mask.annotations resource.customLabels resource.includeEventLabelKeys resource.excludeEventLabelKeys", ""),
		},
		"CFG-04 tools": {
			cm("helm.enable kustomize.enable jsonnet.enable", noTruth), cm("helm.valuesFileSchemes", "ht tp"),
			cm("kustomize.buildOptions kustomize.buildOptions.v5.8.0", "--enable-exec"), cm("kustomize.path.v5.8.0 kustomize.version.v5.8.0", ""),
		},
		"CFG-05 tracking and timing": {
			cm("application.instanceLabelKey", "no label"), cm("application.resourceTrackingMethod", "labels"), cm("installationID application.allowedNodeLabels", ""),
			cm("timeout.reconciliation timeout.reconciliation.jitter timeout.hard.reconciliation", noDuration),
		},
		"CFG-06 switches of behaviour": {
			cm("cluster.inClusterEnabled exec.enabled server.rbac.disableApplicationFineGrainedRBACInheritance server.rbac.rollback.enforce.enable "+
				"application.sync.impersonation.enabled application.sync.impersonation.enforced application.sync.requireOverridePrivilegeForRevisionSync", noTruth),
			cm("server.maxPodLogsToRender", noNumber), cm("globalProjects", "a: b"), cm("exec.shells", ""),
		},
		"CFG-07 webhooks, links, extensions and hydrator": {
			cm("webhook.maxPayloadSizeMB webhook.refresh.jitter.threshold", noNumber), cm("webhook.refresh.jitter", noDuration),
			cm("project.links application.links resource.links", "- title: a"), cm("extension.config extension.config.metrics", "- a"),
			cm("commit.author.name commit.author.email sourceHydrator.commitMessageTemplate sourceHydrator.readmeMessageTemplate", ""),
		},
		"CFG-08 parameters of all components": {
			params("repo.server commit.server redis.server otlp.address", "nowhere"), params("redis.compression", "zip"), params("redis.db", noNumber),
			params("hydrator.enabled otlp.insecure", noTruth), params("otlp.headers otlp.attrs", "a"), params("otlp.sample.ratio", "2"),
			params("redis.sentinel.hosts redis.sentinel.master application.namespaces log.format.timestamp", ""),
		},
		"CFG-09 work of the controller": {
			params("controller.status.processors controller.operation.processors controller.hydration.processors controller.kubectl.parallelism.limit "+
				"controller.sync.timeout.seconds controller.sync.wave.delay.seconds controller.repo.error.grace.period.seconds", noNumber),
			params("controller.sharding.algorithm", "random"), params("controller.diff.server.side controller.resource.health.persist", noTruth),
		},
		"CFG-10 self-heal": {
			params("controller.self.heal.timeout.seconds controller.self.heal.backoff.timeout.seconds controller.self.heal.backoff.factor controller.self.heal.backoff.cap.seconds", noNumber),
		},
		"CFG-11 caches and metrics": {
			params("controller.app.state.cache.expiration controller.default.cache.expiration controller.metrics.cache.expiration controller.cluster.cache.events.processing.interval", noDuration),
			params("controller.cluster.cache.batch.events.processing", noTruth),
			params("controller.metrics.application.labels controller.metrics.application.conditions controller.metrics.cluster.labels", ""),
		},
		"CFG-12 clients of Kubernetes": {
			params(clients, noNumber),
			params("controller.k8s.tcp.timeout server.k8s.tcp.keepalive applicationsetcontroller.k8s.tcp.idle.timeout controller.k8s.tls.handshake.timeout", noDuration),
		},
		"CFG-13 clients of renderers": {
			params(renderers, noTruth), params("controller.repo.server.timeout.seconds server.repo.server.timeout.seconds", noNumber),
			params("server.repo.server.ca.cert.path controller.repo.server.client.cert.path notificationscontroller.repo.server.client.cert.key.path", ""),
		},
		"CFG-14 the server": {
			params("server.insecure server.disable.auth server.disable.swagger.ui server.enable.gzip server.sync.replace.allowed server.enable.proxy.extension server.profile.enabled", noTruth),
			params("server.tls.minversion server.tls.maxversion", "1.9"), params("server.glob.cache.size server.webhook.parallelism.limit server.webhook.refresh.workers", noNumber),
			params("server.listen.address server.metrics.listen.address", "a b"),
			params("server.basehref server.rootpath server.staticassets server.api.content.types server.x.frame.options server.tls.ciphers", ""),
		},
		"CFG-15 caches of the server and Dex": {
			params("server.connection.status.cache.expiration server.oidc.cache.expiration server.app.state.cache.expiration server.default.cache.expiration", noDuration),
			params("server.dex.server.plaintext server.dex.server.strict.tls dexserver.disable.tls dexserver.connector.failure.continue", noTruth),
			params("server.dex.server", "nowhere"), params("dexserver.log.level", "loud"),
		},
		"CFG-16 renderers": {
			params("reposerver.parallelism.limit reposerver.git.lsremote.parallelism.limit", noNumber), params("reposerver.repo.cache.expiration reposerver.git.request.timeout", noDuration),
			params("reposerver.disable.tls reposerver.plugin.use.manifest.generate.paths reposerver.allow.oob.symlinks reposerver.enable.git.submodule "+
				"reposerver.enable.builtin.git.config reposerver.include.hidden.directories reposerver.profile.enabled", noTruth),
			params("reposerver.max.combined.directory.manifests.size reposerver.streamed.manifest.max.tar.size reposerver.streamed.manifest.max.extracted.size reposerver.oci.manifest.max.extracted.size", "big"),
			params("reposerver.listen.address", "a b"), params("reposerver.tls.minversion reposerver.client.ca.path reposerver.plugin.tar.exclusions reposerver.oci.layer.media.types", ""),
		},
		"CFG-17 ApplicationSets": {
			params("applicationsetcontroller.policy", "all"), params("applicationsetcontroller.requeue.after", noDuration),
			params("applicationsetcontroller.concurrent.reconciliations.max applicationsetcontroller.webhook.parallelism.limit applicationsetcontroller.status.max.resources.count", noNumber),
			params("applicationsetcontroller.enable.policy.override applicationsetcontroller.dryrun applicationsetcontroller.enable.progressive.syncs applicationsetcontroller.enable.new.git.file.globbing "+
				"applicationsetcontroller.enable.git.submodule applicationsetcontroller.enable.scm.providers applicationsetcontroller.enable.tokenref.strict.mode applicationsetcontroller.enable.github.api.metrics "+
				"applicationsetcontroller.enable.leader.election", noTruth),
			params("applicationsetcontroller.namespaces applicationsetcontroller.allowed.scm.providers applicationsetcontroller.scm.root.ca.path "+
				"applicationsetcontroller.global.preserved.annotations applicationsetcontroller.global.preserved.labels", ""),
		},
		"CFG-18 notifications and commit server": {
			params("notificationscontroller.processors.count", noNumber), params("notificationscontroller.selfservice.enabled notificationscontroller.repo.server.plaintext", noTruth),
			params("commitserver.listen.address commitserver.metrics.listen.address", "a b"), params("notificationscontroller.log.level commitserver.log.format", "loud"),
		},
		"CFG-19 logs": {params(logs, "loud")},
		"CFG-20 keys of argocd-secret": {
			secret("admin.password admin.passwordMtime server.secretkey accounts.ci.password accounts.ci.passwordMtime tls.crt tls.key dex.github.clientSecret oidc.okta.clientSecret", ""),
			secret("webhook.github.secret webhook.gitlab.secret webhook.bitbucket.uuid webhook.bitbucketserver.secret webhook.gogs.secret webhook.azuredevops.username webhook.azuredevops.password", ""),
			secret("accounts.ci.tokens", "no tokens"),
		},
	}
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	for title, wants := range rows() {
		t.Run(title+": each key is known, a good value is accepted, a bad one is refused with its cause", func(t *testing.T) {
			t.Parallel()
			for _, w := range wants {
				for _, key := range strings.Fields(w.keys) {
					checkKey(t, w.name, key, w.bad)
				}
			}
		})
	}
}

func checkKey(t *testing.T, name, key, bad string) {
	t.Helper()
	known, ok := settings.Find(name, key)
	if !ok {
		t.Errorf("%s: no such setting", key)
		return
	}
	good := known.Sample
	if strings.HasPrefix(key, "accounts.") && strings.HasSuffix(key, ".enabled") {
		good = "true" // the family has keys of two types
	}
	if err := settings.Check(name, key, good); err != nil {
		t.Errorf("%s: the sample is refused: %v", key, err)
	}
	if err := settings.Check(name, key, ""); err != nil && !known.Used && known.Instead == "" {
		t.Errorf("%s: an empty value means that the key is not set: %v", key, err)
	}
	says := settings.Unused(name, key)
	if good := known.Used == (says == "") && strings.Contains(says, cmp.Or(known.Instead, map[bool]string{true: "", false: "not used yet"}[known.Used])); !good {
		t.Errorf("%s: used %v, and the answer is %q", key, known.Used, says)
	}
	if bad == "" {
		return
	}
	err := settings.Check(name, key, bad)
	if e, _ := fault.As(err); fault.KindOf(err) != fault.Invalid || !strings.Contains(e.Object, name+", key "+key) {
		t.Errorf("%s: %q: %v", key, bad, err)
	} else if e.Cause == "" {
		t.Errorf("%s: the refusal has no cause", key)
	}
}

// A setting that nobody knows would be a mistake in silence.
func TestUnknownKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ name, key, says string }{
		"CFG-01 near":              {"argocd-cm", "ui.bannercontents", `did you mean "ui.bannercontent"`},
		"CFG-03 near a family":     {"argocd-cm", "resource.customizations.helth.argoproj.io_Rollout", `did you mean "resource.customizations.health.argoproj.io_Rollout"`},
		"CFG-09 of another map":    {"argocd-cm", "controller.status.processors", "it is a key of argocd-cmd-params-cm"},
		"CFG-20 near a secret":     {"argocd-secret", "webhook.githb.secret", `did you mean "webhook.github.secret"`},
		"CFG-20 reserved":          {"argocd-secret", "server.unheard.of", "no setting of that name"},
		"CFG-14 like nothing":      {"argocd-cmd-params-cm", "zzzzzzzzzzzz", "settings get --known"},
		"RBAC-02 a policy by name": {"argocd-rbac-cm", "policy.dev", "policy.NAME.csv"},
	} {
		t.Run("refuses a key, "+name, func(t *testing.T) {
			t.Parallel()
			err := settings.Check(c.name, c.key, "x")
			e, _ := fault.As(err)
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(e.Error()+e.Fix, c.says) || !strings.Contains(e.Object, c.key) {
				t.Errorf("%v: %+v", err, e)
			}
		})
	}
	t.Run("CFG-20 other settings refer to keys of argocd-secret by names of their own", func(t *testing.T) {
		t.Parallel()
		if err := settings.Check("argocd-secret", "okta-client-secret", "x"); err != nil {
			t.Error(err)
		}
	})
	t.Run("INST-03 every map of Argo CD is known; those with names of users' own take any key", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"argocd-notifications-cm", "argocd-notifications-secret", "argocd-image-updater-config"} {
			if err := settings.Check(name, "template.app-deployed", "message: done"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := settings.Check("argocd-unheard-of", "a", "b"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("an unknown map: %v", err)
		}
		if err := settings.Check("argocd-gpg-keys-cm", "4AEE18F83AFDEB23", "none"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("no key: %v", err)
		}
	})
	t.Run("CFG-02 values that people write credentials into are not in the audit log", func(t *testing.T) {
		t.Parallel()
		for key, public := range map[string]bool{"dex.config": false, "oidc.config": false, "extension.config.a": false, "url": true, "resource.exclusions": true} {
			if settings.Public("argocd-cm", key) != public {
				t.Errorf("%s: public %v", key, !public)
			}
		}
		if settings.Public("argocd-notifications-cm", "service.slack") || settings.Public("argocd-secret", "webhook.github.secret") {
			t.Error("a secret is public")
		}
	})
}

func TestCatalogueHasEachKeyOnce(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, k := range settings.Catalogue() {
		if slices.Contains(seen, k.Map+" "+k.Key) {
			t.Errorf("%s of %s is there twice", k.Key, k.Map)
		}
		seen = append(seen, k.Map+" "+k.Key)
	}
}

// Values that an earlier release has stored unchecked stop no other setting.
func TestCompileOfOldValues(t *testing.T) {
	t.Parallel()
	_, err := settings.Compile([]hub.Setting{{Map: "argocd-cm", Key: "url", Value: "no address"}, {Map: "argocd-cm", Key: "unheard.of", Value: "x"}})
	if err != nil {
		t.Error(err)
	}
}
