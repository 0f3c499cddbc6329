package health

import "fmt"

func unseen() Status { return Status{Progressing, "the controller has not seen the newest spec yet"} }

func healthy() Status { return Status{State: Healthy} }

func progressing(format string, args ...any) Status {
	return Status{Progressing, fmt.Sprintf(format, args...)}
}

// deployment is HLT-10.
func deployment(v view) Status {
	if v.yes("spec", "paused") {
		return Status{Suspended, "the rollout is paused"}
	}
	if v.behind() {
		return unseen()
	}
	if c := v.condition("Progressing"); c.text("reason") == "ProgressDeadlineExceeded" {
		return Status{Degraded, orElse(c.text("message"), "the rollout exceeded its progress deadline")}
	}
	want := v.numberOr(1, "spec", "replicas")
	total, updated, available := v.number("status", "replicas"), v.number("status", "updatedReplicas"), v.number("status", "availableReplicas")
	switch {
	case updated < want:
		return progressing("%d of %d replicas are updated", updated, want)
	case total > updated:
		return progressing("%d old replicas are still there", total-updated)
	case available < updated:
		return progressing("%d of %d updated replicas are available", available, updated)
	}
	return healthy()
}

// daemonSet is HLT-11.
func daemonSet(v view) Status {
	if v.behind() {
		return unseen()
	}
	if v.text("spec", "updateStrategy", "type") == "OnDelete" {
		return healthy()
	}
	want := v.number("status", "desiredNumberScheduled")
	updated, available := v.number("status", "updatedNumberScheduled"), v.number("status", "numberAvailable")
	switch {
	case updated < want:
		return progressing("%d of %d pods are updated", updated, want)
	case available < want:
		return progressing("%d of %d pods are available", available, want)
	}
	return healthy()
}

// replicaSet is HLT-12.
func replicaSet(v view) Status {
	if v.behind() {
		return unseen()
	}
	if v.is("ReplicaFailure") {
		return Status{Degraded, orElse(v.condition("ReplicaFailure").text("message"), "pods cannot be created")}
	}
	want, available := v.numberOr(1, "spec", "replicas"), v.number("status", "availableReplicas")
	if available < want {
		return progressing("%d of %d replicas are available", available, want)
	}
	return healthy()
}

// statefulSet is HLT-13.
func statefulSet(v view) Status {
	if v.number("status", "observedGeneration") == 0 || v.behind() {
		return unseen()
	}
	want, ready, updated := v.numberOr(1, "spec", "replicas"), v.number("status", "readyReplicas"), v.number("status", "updatedReplicas")
	if ready < want {
		return progressing("%d of %d replicas are ready", ready, want)
	}
	strategy := v.text("spec", "updateStrategy", "type")
	if partition := v.numberOr(-1, "spec", "updateStrategy", "rollingUpdate", "partition"); strategy == "RollingUpdate" && partition >= 0 {
		if updated < want-partition {
			return progressing("%d of %d replicas above the partition are updated", updated, want-partition)
		}
		return healthy()
	}
	if strategy == "OnDelete" {
		return healthy()
	}
	if v.text("status", "updateRevision") != v.text("status", "currentRevision") {
		return progressing("%d replicas are at the new revision", updated)
	}
	return healthy()
}

// job is HLT-17, with one improvement: a Job that was suspended and runs again
// is Progressing until it completes.
func job(v view) Status {
	if v.is("Failed") {
		return Status{Degraded, orElse(v.condition("Failed").text("message"), "the job failed")}
	}
	if v.is("Complete") {
		return Status{Healthy, v.condition("Complete").text("message")}
	}
	if v.is("Suspended") {
		return Status{Suspended, orElse(v.condition("Suspended").text("message"), "the job is suspended")}
	}
	return progressing("%d active, %d succeeded, %d failed pods", v.number("status", "active"), v.number("status", "succeeded"), v.number("status", "failed"))
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
