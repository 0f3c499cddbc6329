package settings

import "github.com/capstan-cd/capstan/hub"

// parameterKeys are the keys of argocd-cmd-params-cm that have no reader of
// their own. Most are flags of Argo CD's processes, of which this product has
// others.
func parameterKeys() []Known {
	return table(hub.ParamsMap, rowsOf(commonRows(), controllerRows(), clientRows(), serverRows(), brokerRows(), rendererRows(), generatorRows(), senderRows(), logRows())...)
}

const (
	byHub        = "it belongs to the configuration of the hub, which holds for all tenants"
	byPublicURL  = "the path is that of publicURL in the configuration of the hub, and one for all tenants"
	byWorkers    = "the hub scales its workers itself"
	byAgent      = "it belongs to the values of the agent's chart"
	oneProcess   = "the hub is one process, which calls no other of its parts over the network"
	noRedis      = "there is no Redis: the hub stores all in Postgres"
	noCaches     = "what is cached stays valid as long as its inputs are the same"
	noSharding   = "each cluster has an agent of its own"
	noBroker     = "the hub signs users in itself, without Dex"
	noTerminated = "the hub's own certificate and listener are part of its configuration"
)

// commonRows are parameters of all components (CFG-08).
func commonRows() []row {
	return []row{
		{"repo.server", "The address of the repo server.", "argocd-repo-server:8081", endpoint, oneProcess, ""},
		{"commit.server", "The address of the commit server.", "argocd-commit-server:8086", endpoint, oneProcess, ""},
		{"redis.server", "The address of Redis.", "argocd-redis:6379", endpoint, noRedis, ""},
		{"redis.sentinel.hosts", "The addresses of Redis Sentinel.", "a:26379,b:26379", anyText, noRedis, ""},
		{"redis.sentinel.master", "The name of Redis' master.", "master", anyText, noRedis, ""},
		{"redis.compression", "How what is in Redis is compressed.", "gzip", among("gzip", "none"), noRedis, ""},
		{"redis.db", "The number of Redis' database.", "0", count, noRedis, ""},
		{"hydrator.enabled", "Whether the source hydrator runs.", "false", truth, "", ""},
		{"otlp.address", "Where traces are sent.", "otel-collector:4317", endpoint, byHub, ""},
		{"otlp.insecure", "Whether traces are sent without TLS.", "true", truth, byHub, ""},
		{"otlp.headers", "Headers of requests with traces.", "a=b", pairs, byHub, ""},
		{"otlp.attrs", "Attributes of traces.", "a:b", pairs, byHub, ""},
		{"otlp.sample.ratio", "The part of traces that is sent.", "0.1", ratio, byHub, ""},
		{"log.format.timestamp", "The form of times in logs.", "2006-01-02T15:04:05Z07:00", anyText, byHub, ""},
	}
}

// controllerRows are parameters of the application controller (CFG-09 to CFG-11).
func controllerRows() []row {
	const healing = "a person's edit is reverted at once, and only what a controller changes again and again is backed off from"
	const serverSide = "every first comparison is a dry run by the API server, and later ones need no request"
	return []row{
		{"controller.status.processors", "How many applications are compared at once.", "20", positive, byWorkers, ""},
		{"controller.operation.processors", "How many operations run at once.", "10", positive, byWorkers, ""},
		{"controller.hydration.processors", "How many sources are hydrated at once.", "5", positive, byWorkers, ""},
		{"controller.kubectl.parallelism.limit", "How many objects are applied at once.", "20", count, "an agent applies as many objects of a wave at once as its API server admits", ""},
		{"controller.sharding.algorithm", "How clusters are distributed over controllers.", "legacy", among("legacy", "round-robin", "consistent-hashing"), noSharding, ""},
		{"controller.diff.server.side", "Whether objects are compared by a dry run.", "false", truth, serverSide, ""},
		{"controller.sync.timeout.seconds", "How long a sync may take; 0: without a limit.", "0", count, "a sync takes at most 30 minutes, or what its option SyncTimeout says", ""},
		{"controller.ignore.normalizer.jq.timeout", "How long one jq expression of ignoreDifferences may run.", "1s", period, "expressions are bounded by steps and memory, not by time", ""},
		{"controller.self.heal.timeout.seconds", "How long self-heal waits.", "5", count, healing, ""},
		{"controller.self.heal.backoff.timeout.seconds", "The first pause of repeated self-heal.", "2", count, healing, ""},
		{"controller.self.heal.backoff.factor", "The factor of that pause.", "3", count, healing, ""},
		{"controller.self.heal.backoff.cap.seconds", "The longest such pause.", "300", count, healing, ""},
		{"controller.self.heal.backoff.cooldown.seconds", "How long after the last one the pause is the first one again.", "330", count, healing, ""},
		{"controller.app.state.cache.expiration", "How long states of applications are cached.", "1h", period, noCaches, ""},
		{"controller.default.cache.expiration", "How long other things are cached.", "24h", period, noCaches, ""},
		{"controller.metrics.cache.expiration", "How long metrics of gone applications are served.", "24h", period, "metrics of a gone application end with it", ""},
		{"controller.metrics.application.labels", "Labels of applications that metrics have.", "team", anyText, byHub, ""},
		{"controller.metrics.application.conditions", "Conditions that metrics count.", "SyncError", anyText, byHub, ""},
		{"controller.metrics.cluster.labels", "Labels of clusters that metrics have.", "region", anyText, byHub, ""},
		{"controller.cluster.cache.batch.events.processing", "Whether events of clusters are processed in batches.", "true", truth, "an event costs no comparison of an application", ""},
		{"controller.cluster.cache.events.processing.interval", "How often such a batch is processed.", "100ms", period, "an event costs no comparison of an application", ""},
		{"controller.resource.health.persist.interval", "How often health is stored in the Application.", "1m", period, noPersist, ""},
		{"controller.profile.enabled", "Whether profiles of the process are served.", "false", truth, byHub, ""},
	}
}

// clientRows are parameters of clients of Kubernetes and of the repo server
// (CFG-12, CFG-13).
func clientRows() []row {
	var out []row
	for _, c := range [...]string{"controller", "server", "applicationsetcontroller"} {
		out = append(
			out,
			row{c + ".k8s.client.qps", "Requests per second to an API server.", "50", count, byAgent, ""},
			row{c + ".k8s.client.burst", "Requests to an API server at once.", "100", count, byAgent, ""},
			row{c + ".k8s.client.max.idle.connections", "Idle connections to an API server.", "500", count, byAgent, ""},
			row{c + ".k8s.tcp.timeout", "How long a connection to an API server may take.", "30s", period, byAgent, ""},
			row{c + ".k8s.tcp.keepalive", "How often a connection is kept alive.", "30s", period, byAgent, ""},
			row{c + ".k8s.tcp.idle.timeout", "How long a connection may be idle.", "5m", period, byAgent, ""},
			row{c + ".k8s.tls.handshake.timeout", "How long a TLS handshake may take.", "10s", period, byAgent, ""},
			row{c + ".k8sclient.retry.max", "How often a request is tried again.", "0", count, byAgent, ""},
			row{c + ".k8sclient.retry.base.backoff", "The first pause before a request is tried again, in milliseconds.", "100", count, byAgent, ""},
		)
	}
	for _, c := range [...]string{"controller", "server", "applicationsetcontroller", "notificationscontroller"} {
		out = append(
			out,
			row{c + ".repo.server.timeout.seconds", "How long the repo server may take.", "60", count, "a render has a time limit of the hub's configuration, and its worker is ended by it", ""},
			row{c + ".repo.server.plaintext", "Whether the repo server is called without TLS.", "false", truth, oneProcess, ""},
			row{c + ".repo.server.strict.tls", "Whether the repo server's certificate is checked.", "false", truth, oneProcess, ""},
			row{c + ".repo.server.ca.cert.path", "The authority of the repo server's certificate.", "/tls/ca.crt", anyText, oneProcess, ""},
			row{c + ".repo.server.client.cert.path", "The certificate for calls of the repo server.", "/tls/tls.crt", anyText, oneProcess, ""},
			row{c + ".repo.server.client.cert.key.path", "The key of that certificate.", "/tls/tls.key", anyText, oneProcess, ""},
			row{c + ".grpc.enable.txt.service.config", "Whether gRPC reads its configuration from DNS.", "false", truth, oneProcess, ""},
		)
	}
	return out
}

// serverRows are parameters of the API server (CFG-14).
func serverRows() []row {
	return []row{
		{"server.listen.address", "The address that the API is served on.", "0.0.0.0", listen, noTerminated, ""},
		{"server.metrics.listen.address", "The address that metrics are served on.", "0.0.0.0", listen, byHub, ""},
		{"server.insecure", "Whether the API is served without TLS.", "true", truth, noTerminated, ""},
		{"server.basehref", "The path of the console behind a proxy.", "/argocd", anyText, byPublicURL, ""},
		{"server.rootpath", "The path of API and console.", "/argocd", anyText, byPublicURL, ""},
		{"server.staticassets", "A folder with files for the console.", "/shared/app", anyText, noStyle, ""},
		{"server.api.content.types", "Types of content that the API accepts.", "application/json", anyText, "the API accepts the types that its description names, and no others", ""},
		{"server.disable.auth", "Whether anybody may do anything.", "false", truth, "every request is checked", ""},
		{"server.disable.swagger.ui", "Whether the description of the API is not shown.", "false", truth, "the description of the API is public, as the program is", ""},
		{"server.enable.gzip", "Whether responses are compressed.", "true", truth, "responses are compressed for clients that accept it", ""},
		{"server.x.frame.options", "Who may show the console in a frame.", "sameorigin", anyText, "nobody may show the console in a frame", ""},
		{"server.content.security.policy", "The Content-Security-Policy of the console.", "frame-ancestors 'self';", anyText, "the console has a stricter policy of its own", ""},
		{"server.tls.minversion", "The oldest version of TLS.", "1.2", among("1.0", "1.1", "1.2", "1.3"), noTerminated, ""},
		{"server.tls.maxversion", "The newest version of TLS.", "1.3", among("1.0", "1.1", "1.2", "1.3"), noTerminated, ""},
		{"server.tls.ciphers", "Cipher suites of TLS.", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", anyText, noTerminated, ""},
		{"server.enable.proxy.extension", "Whether extensions of the console have services behind them.", "false", truth, noExtensions, ""},
		{"server.glob.cache.size", "How many patterns of policies are cached.", "10000", count, "policies are compiled once for each change", ""},
		{"server.webhook.parallelism.limit", "How many events of Git hosts are processed at once.", "50", positive, byWorkers, ""},
		{"server.webhook.refresh.workers", "How many refreshes of events run at once.", "20", positive, byWorkers, ""},
		{"server.profile.enabled", "Whether profiles of the process are served.", "false", truth, byHub, ""},
		{"server.http.cookie.maxnumber", "How many cookies a session may need.", "20", positive, "a session is one cookie", ""},
		{"server.enable.k8s.event", "Kubernetes events of the API server.", "all", commasAmong(eventReasons()...), "agents write events, as controller.enable.k8s.event says", ""},
	}
}

// brokerRows are parameters of the API server's caches and of Dex (CFG-15).
func brokerRows() []row {
	return []row{
		{"server.connection.status.cache.expiration", "How long the state of a connection is cached.", "1h", period, noCaches, ""},
		{"server.oidc.cache.expiration", "How long answers of an OpenID provider are cached.", "3m", period, noCaches, ""},
		{"server.app.state.cache.expiration", "How long states of applications are cached.", "1h", period, noCaches, ""},
		{"server.default.cache.expiration", "How long other things are cached.", "24h", period, noCaches, ""},
		{"server.dex.server", "The address of Dex.", "argocd-dex-server:5556", endpoint, noBroker, ""},
		{"server.dex.server.plaintext", "Whether Dex is called without TLS.", "false", truth, noBroker, ""},
		{"server.dex.server.strict.tls", "Whether Dex's certificate is checked.", "false", truth, noBroker, ""},
		{"dexserver.disable.tls", "Whether Dex serves without TLS.", "false", truth, noBroker, ""},
		{"dexserver.connector.failure.continue", "Whether Dex starts although a connector fails.", "false", truth, "a provider that cannot be reached stops no other", ""},
	}
}

// rendererRows are parameters of the repo server (CFG-16).
func rendererRows() []row {
	const renderer = "renderers are bounded by the configuration of the hub, which holds for all tenants"
	const sandboxed = "a render reads the files of its repository alone, wherever links point"
	return []row{
		{"reposerver.parallelism.limit", "How many renders run at once.", "10", count, byHub + ", as render.workers", ""},
		{"reposerver.listen.address", "The address that the repo server serves on.", "0.0.0.0", listen, oneProcess, ""},
		{"reposerver.metrics.listen.address", "The address that its metrics are served on.", "0.0.0.0", listen, oneProcess, ""},
		{"reposerver.disable.tls", "Whether the repo server serves without TLS.", "false", truth, oneProcess, ""},
		{"reposerver.tls.", "TLS of the repo server: minversion, maxversion, ciphers.", "1.2", anyText, oneProcess, "minversion"},
		{"reposerver.client.ca.path", "The authority of certificates of its clients.", "/tls/ca.crt", anyText, oneProcess, ""},
		{"reposerver.repo.cache.expiration", "How long renders are cached.", "24h", period, noCaches, ""},
		{"reposerver.default.cache.expiration", "How long other things are cached.", "24h", period, noCaches, ""},
		{"reposerver.revision.cache.expiration", "How long the commit of a branch is cached.", "3m", period, noCaches, ""},
		{"reposerver.revision.cache.lock.timeout", "How long a refresh of that cache may take.", "10s", period, noCaches, ""},
		{"reposerver.max.combined.directory.manifests.size", "The size of all manifests of a directory.", "10M", quantity, renderer, ""},
		{"reposerver.plugin.tar.exclusions", "Files that plugins do not get.", "*.mp4", anyText, "", ""},
		{"reposerver.plugin.use.manifest.generate.paths", "Whether plugins get only the paths of an application.", "false", truth, "", ""},
		{"reposerver.allow.oob.symlinks", "Whether links may point out of the repository.", "false", truth, sandboxed, ""},
		{hub.UploadSizeKey, "The size of an upload, at most 100 MiB.", "100M", quantity, "", ""},
		{hub.UploadExtractedKey, "The size of an upload, unpacked, at most 1 GiB.", "1G", quantity, "", ""},
		{"reposerver.helm.manifest.max.extracted.size", "The size of a chart, unpacked.", "1G", quantity, renderer, ""},
		{"reposerver.disable.helm.manifest.max.extracted.size", "Whether charts have no such limit.", "false", truth, renderer, ""},
		{"reposerver.oci.manifest.max.extracted.size", "The size of an OCI artifact, unpacked.", "1G", quantity, renderer, ""},
		{"reposerver.disable.oci.manifest.max.extracted.size", "Whether OCI artifacts have no such limit.", "false", truth, renderer, ""},
		{"reposerver.oci.layer.media.types", "Types of layers of OCI artifacts.", "application/vnd.oci.image.layer.v1.tar+gzip", anyText, "", ""},
		{"reposerver.enable.git.submodule", "Whether submodules are read.", "true", truth, "", ""},
		{"reposerver.git.lsremote.parallelism.limit", "How many Git servers are asked for their branches at once.", "0", count, byHub + ", as sources.parallel", ""},
		{"reposerver.git.request.timeout", "How long a request to a Git server may take.", "15s", period, byHub, ""},
		{"reposerver.enable.builtin.git.config", "Whether Git has a configuration of Argo CD's.", "true", truth, "Git is part of the hub, and reads no configuration", ""},
		{"reposerver.profile.enabled", "Whether profiles of the process are served.", "false", truth, oneProcess, ""},
	}
}

// generatorRows are parameters of the ApplicationSet controller that are not those
// of applicationSets (CFG-17).
func generatorRows() []row {
	const c = "applicationsetcontroller."
	return []row{
		{c + "debug", "Whether the controller logs more.", "false", truth, byHub, ""},
		{c + "concurrent.reconciliations.max", "How many ApplicationSets are generated at once.", "10", positive, byWorkers, ""},
		{c + "enable.git.submodule", "Whether generators read submodules.", "true", truth, "", ""},
		{c + "enable.tokenref.strict.mode", "Whether Secrets of tokens need a label.", "true", truth, "Secrets of generators always need the label scm-creds", ""},
		{c + "scm.root.ca.path", "The authority of certificates of Git hosts.", "/tls/ca.crt", anyText, "authorities are stored in argocd-tls-certs-cm, by host", ""},
		{c + "webhook.parallelism.limit", "How many events of Git hosts are processed at once.", "50", positive, byWorkers, ""},
		{c + "enable.github.api.metrics", "Whether requests to GitHub are counted.", "true", truth, byHub, ""},
		{c + "enable.leader.election", "Whether one of several controllers leads.", "true", truth, "all replicas of the hub work, and share their work by rows of its database", ""},
		{c + "profile.enabled", "Whether profiles of the process are served.", "false", truth, byHub, ""},
	}
}

// senderRows are parameters of notifications and of the commit server (CFG-18).
func senderRows() []row {
	return []row{
		{"notificationscontroller.selfservice.enabled", "Whether namespaces have notifications of their own.", "false", truth, "an organisation has one configuration of notifications; teams that need their own have an organisation", ""},
		{"commitserver.listen.address", "The address that the commit server serves on.", "0.0.0.0", listen, oneProcess, ""},
		{"commitserver.metrics.listen.address", "The address that its metrics are served on.", "0.0.0.0", listen, oneProcess, ""},
	}
}

// logRows are parameters of logs (CFG-19).
func logRows() []row {
	var out []row
	for _, c := range [...]string{"controller", "server", "reposerver", "applicationsetcontroller", "notificationscontroller", "commitserver", "dexserver"} {
		out = append(
			out,
			row{c + ".log.format", "The form of logs.", "json", among("text", "json", "json-with-trace-id"), byHub, ""},
			row{c + ".log.level", "What is logged.", "info", among("debug", "info", "warn", "error", "fatal", "panic", "trace"), byHub, ""},
		)
	}
	return out
}
