package why

import "regexp"

// A rule recognises one cause by what a cluster or the hub says of it.
type rule struct {
	class   string
	title   string
	advice  string
	command string         // $APP, $NAMESPACE, $NAME, $KIND and $CONTAINER are filled in
	reason  *regexp.Regexp // of an event, a state or a condition; nil: any
	text    *regexp.Regexp // of its message; nil: any
	logs    bool           // the last lines of the container's log say more
}

func re(pattern string) *regexp.Regexp { return regexp.MustCompile("(?i)" + pattern) }

const (
	showEvents   = "capstan app events $APP --kind $KIND --resource-name $NAME"
	showLive     = "capstan app get-resource $APP --kind $KIND --resource-name $NAME"
	showPrevious = "capstan app logs $APP --pod $NAME --container $CONTAINER --previous --tail 100"
	showLogs     = "capstan app logs $APP --pod $NAME --container $CONTAINER --tail 100"
	showDiff     = "capstan app diff $APP"
	showResult   = "capstan app get $APP --show-operation"
)

// rules are all that are recognised, the more specific ones first: of several
// that fit an object, the first one is its cause.
func rules() []rule {
	out := podRules()
	out = append(out, objectRules()...)
	return append(out, generalRules()...)
}

// podRules are about pods and their containers.
func podRules() []rule {
	return []rule{
		{class: "out-of-memory", title: "Out of memory", reason: re(`^OOMKilled$`), logs: true, command: showPrevious,
			advice: "The container uses more memory than its limit. Raise resources.limits.memory, or make the program use less."},
		{class: "image-credentials", title: "The registry refuses to give the image", text: re(`(unauthorized|authentication required|denied: |403 forbidden|no basic auth|pull access denied|insufficient_scope)`), reason: re(`^(ErrImagePull|ImagePullBackOff|Failed)$`), command: showEvents,
			advice: "Give the pod a pull secret that may read the image (imagePullSecrets), and check that the name of the image is right."},
		{class: "image-name", title: "The name of the image is not valid", reason: re(`^InvalidImageName$`), command: showLive,
			advice: "Correct the name of the image in Git."},
		{class: "image-pull", title: "The image cannot be pulled", reason: re(`^(ErrImagePull|ImagePullBackOff|ErrImageNeverPull|RegistryUnavailable)$`), command: showEvents,
			advice: "Check that the image and its tag exist, and that the nodes reach the registry."},
		{class: "image-pull", title: "The image cannot be pulled", reason: re(`^Failed$`), text: re(`failed to pull (and unpack )?image`), command: showEvents,
			advice: "Check that the image and its tag exist, and that the nodes reach the registry."},
		{class: "missing-configuration", title: "A ConfigMap or Secret that the container needs is missing", reason: re(`^CreateContainerConfigError$`), command: showEvents,
			advice: "Add the ConfigMap, the Secret or the key that the message names, or make the reference optional."},
		{class: "command-not-found", title: "The container's command cannot be run", reason: re(`^(RunContainerError|ContainerCannotRun|StartError|CreateContainerError)$`), command: showEvents,
			advice: "Check command and args of the container, that the file exists and is executable, and that the image is for the node's processor."},
		{class: "command-not-found", title: "The container's command cannot be run", text: re(`(executable file not found|exec format error)`), command: showEvents,
			advice: "Check command and args of the container, that the file exists and is executable, and that the image is for the node's processor."},
		{class: "evicted", title: "The pod was evicted from its node", reason: re(`^(Evicted|Preempted|Preempting|TerminationByKubelet|DisruptionTarget)$`), command: showEvents,
			advice: "The node lacks memory or disk, or something more important needed the room. Set requests that match the use, and check the node."},
		{class: "node-not-ready", title: "The node of the pod is not ready", reason: re(`^(NodeNotReady|NodeLost|NodeShutdown|TaintManagerEviction)$`), command: showEvents,
			advice: "Check the node: its kubelet does not report. The pod moves once the node is gone."},
		{class: "init-container", title: "An init container fails", reason: re(`^InitContainerFailed$`), logs: true, command: showPrevious,
			advice: "The containers start only after it has succeeded. Its last lines say why it fails."},
		{class: "liveness-probe", title: "A liveness probe kills the container", reason: re(`^Unhealthy$`), text: re(`^liveness probe`), logs: true, command: showPrevious,
			advice: "Check path, port and timeout of livenessProbe. A program that starts slowly needs a startupProbe."},
		{class: "startup-probe", title: "A startup probe kills the container", reason: re(`^Unhealthy$`), text: re(`^startup probe`), logs: true, command: showPrevious,
			advice: "The program does not start in time. Raise failureThreshold of startupProbe, or find what it waits for."},
		{class: "crash-loop", title: "The container crashes again and again", reason: re(`^(CrashLoopBackOff|BackOff)$`), logs: true, command: showPrevious,
			advice: "The program ends by itself. Its last lines say why; the instance before the current one has them."},
		{class: "volume-claim", title: "A volume claim is not bound", text: re(`(unbound immediate persistentvolumeclaims|persistentvolumeclaim .* not found|waiting for (a )?volume to be created|no persistent volumes available|storageclass\S* .* not found|ProvisioningFailed)`), command: showEvents,
			advice: "Check that the claim exists, and that its storage class exists and can create volumes of this size and access mode."},
		{class: "volume-claim", title: "A volume claim is not bound", reason: re(`^(ProvisioningFailed|FailedBinding)$`), command: showEvents,
			advice: "Check that the claim exists, and that its storage class exists and can create volumes of this size and access mode."},
		{class: "unschedulable-resources", title: "No node has enough room", text: re(`insufficient (cpu|memory|ephemeral-storage|pods|[a-z./-]+)|too many pods`), reason: re(`^(Unschedulable|FailedScheduling)$`), command: showEvents,
			advice: "Lower the pod's requests, or add nodes."},
		{class: "unschedulable-placement", title: "No node fits the pod", reason: re(`^(Unschedulable|FailedScheduling)$`), command: showEvents,
			advice: "Check nodeSelector, affinity, topology and tolerations of the pod against labels and taints of the nodes."},
		{class: "volume-mount", title: "A volume cannot be mounted", reason: re(`^(FailedMount|FailedAttachVolume|FailedMapVolume)$`), command: showEvents,
			advice: "Check the volume that the message names: a missing ConfigMap or Secret, or a disk that is attached to another node."},
		{class: "sandbox", title: "The pod gets no network or sandbox", reason: re(`^(FailedCreatePodSandBox|NetworkNotReady|CNI)$`), command: showEvents,
			advice: "This is a defect of the node or its network plugin, not of the application. Tell the owners of the cluster."},
		{class: "readiness-probe", title: "A readiness probe fails", reason: re(`^Unhealthy$`), text: re(`^readiness probe`), logs: true, command: showLogs,
			advice: "The program runs and does not answer as readinessProbe expects. Check path and port, and what it waits for."},
	}
}

// objectRules are about what the API server refuses, and about controllers.
func objectRules() []rule {
	return []rule{
		{class: "quota", title: "A quota is used up", text: re(`exceeded quota`), command: showEvents,
			advice: "Lower requests or replicas, delete what is not needed, or have the ResourceQuota of the namespace raised."},
		{class: "limit-range", title: "The pod breaks a LimitRange", text: re(`(maximum|minimum) (cpu|memory|storage|ephemeral-storage) usage per|must specify limits|must specify requests`), command: showEvents,
			advice: "Set requests and limits within the LimitRange of the namespace."},
		{class: "pod-security", title: "Pod security refuses the pod", text: re(`violates podsecurity`), command: showEvents,
			advice: "Set the fields of securityContext that the message names, or have the namespace's level changed."},
		{class: "webhook-denied", title: "An admission webhook refuses the object", text: re(`admission webhook .* denied|denied the request|validatingadmissionpolicy`), command: showResult,
			advice: "Change the object as the message says, or ask the owners of the policy."},
		{class: "webhook-unreachable", title: "An admission webhook does not answer", text: re(`failed calling webhook|failed to call webhook|no endpoints available for service`), command: showResult,
			advice: "The cluster asks a webhook that does not run. Repair its Deployment, then sync again."},
		{class: "owner-policy", title: "The cluster's owner does not permit it", text: re(`local guard of the cluster|policy of the cluster's owner|this agent only observes|this agent sees only`), command: "capstan cluster get $CLUSTER",
			advice: "Ask the cluster's owner to change the values guard of the agent's chart."},
		{class: "project-restriction", title: "The project does not permit it", text: re(`project .* (does not permit|permits no|denies)|is not permitted in project`), command: "capstan project get $PROJECT",
			advice: "Have the project permit the repository, destination or kind that the message names."},
		{class: "rights", title: "A right is missing in the cluster", text: re(`is forbidden: user|cannot (get|list|watch|create|update|patch|delete|impersonate) resource|is forbidden`), command: "capstan app check-impersonation $APP",
			advice: "Give the agent, or the service account that the project names, the right that the message names."},
		{class: "missing-kind", title: "The cluster does not know this kind", text: re(`no matches for kind|the server could not find the requested resource|could not find the kind|kind .* is not (served|known)`), command: showResult,
			advice: "Install the CustomResourceDefinition first: in an earlier wave, or by another application."},
		{class: "missing-namespace", title: "The namespace does not exist", text: re(`namespaces? "?[^ ]*"? (not found|does not exist|is missing)`), command: showResult,
			advice: "Add the sync option CreateNamespace=true, or create the namespace."},
		{class: "namespace-terminating", title: "The namespace is being deleted", text: re(`because it is being terminated|namespace is terminating`), command: showResult,
			advice: "Wait until it is gone. If it stays, an object in it has a finalizer that nobody removes."},
		{class: "immutable-field", title: "A field cannot be changed", text: re(`field is immutable|is immutable|may not be (updated|changed)|forbidden: updates to|updates to .* are forbidden`), command: showDiff,
			advice: "Undo the change in Git, or sync with Replace=true and Force=true, which deletes the object and creates it again."},
		{class: "invalid-object", title: "The API server refuses the object as invalid", text: re(`is invalid: |unknown field|strict decoding|cannot unmarshal|unable to decode`), command: showResult,
			advice: "Correct the field that the message names, in Git."},
		{class: "other-owner", title: "Another application owns the object", text: re(`(belongs to|is owned by|is managed by|is part of) (another )?application|SharedResource`), command: showResult,
			advice: "Remove the object from one of the two applications."},
		{class: "job-deadline", title: "The Job took too long", reason: re(`^DeadlineExceeded$`), logs: true, command: "capstan app logs $APP --kind $KIND --resource-name $NAME --tail 100",
			advice: "Raise activeDeadlineSeconds, or find out what it waits for."},
		{class: "job-failed", title: "The Job has failed", reason: re(`^(BackoffLimitExceeded|PodFailurePolicy|FailedIndexes|MaxFailedIndexesExceeded)$`), logs: true, command: "capstan app logs $APP --kind $KIND --resource-name $NAME --tail 100",
			advice: "Its last lines say why. After the correction sync again; a hook is then run again."},
		{class: "rollout-stalled", title: "The rollout makes no progress", reason: re(`^ProgressDeadlineExceeded$`), command: showEvents,
			advice: "New pods do not become ready. Look at the newest pod of the newest ReplicaSet."},
		{class: "load-balancer", title: "The load balancer was not created", reason: re(`^(SyncLoadBalancerFailed|CreatingLoadBalancerFailed|EnsureLoadBalancerFailed)$`), command: showEvents,
			advice: "Check that the cluster can create load balancers, and the annotations of the Service."},
	}
}

// generalRules are about applications as a whole, and what is left.
func generalRules() []rule {
	return []rule{
		{class: "repository", title: "The repository cannot be read", text: re(`repository .*(not found|cannot be|unreachable|does not answer)|authentication (failed|required)|could not (read|fetch)|knows no such`), reason: re(`Error$`), command: "capstan repo list",
			advice: "Check address and credentials of the repository."},
		{class: "revision", title: "The revision does not exist", text: re(`revision .*(not found|does not exist|unknown)|no (branch|tag|such revision)|unknown revision`), reason: re(`Error$`), command: "capstan app get $APP",
			advice: "Check targetRevision: the branch, tag or commit is not there."},
		{class: "path", title: "The path does not exist in the repository", text: re(`path .*(not found|does not exist|is not there)|no such (file|directory|path)`), reason: re(`Error$`), command: "capstan app get $APP",
			advice: "Check the path of the source; it may have been moved."},
		{class: "destination", title: "The destination is no cluster", reason: re(`^InvalidSpecError$`), text: re(`destination|cluster`), command: "capstan cluster list",
			advice: "Correct destination.name or destination.server; the clusters that exist are listed."},
		{class: "render", title: "The manifests cannot be rendered", reason: re(`^(ComparisonError|InvalidSpecError)$`), command: "capstan app get $APP",
			advice: "Correct what the message names, in Git. What runs stays as it is until then."},
		{class: "deletion", title: "The deletion does not finish", reason: re(`^DeletionError$`), command: "capstan app get $APP",
			advice: "An object has a finalizer that nobody removes, or may not be deleted. The message names it."},
		{class: "hook-failed", title: "A hook has failed", reason: re(`^HookFailed$`), logs: true, command: "capstan app logs $APP --kind $KIND --resource-name $NAME",
			advice: "The sync ended with it. Its last lines say why; correct it, and sync again."},
		{class: "container-failed", title: "A container has failed", reason: re(`^(Error|ContainerFailed)$`), logs: true, command: showLogs,
			advice: "Its exit code is not 0. Its last lines say why."},
		{class: "sync-failed", title: "The last sync has failed", reason: re(`^(SyncFailed|SyncError|OperationFailed)$`), command: showResult,
			advice: "Correct what the message names, and sync again."},
	}
}
