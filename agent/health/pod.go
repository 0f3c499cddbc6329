package health

import (
	"fmt"
	"strings"
)

// pod is HLT-14 to HLT-16.
func pod(v view) Status {
	policy := v.text("spec", "restartPolicy")
	always := policy == "" || policy == "Always" || (v.annotation("ignore-restart-policy") == "true" && !v.hook())
	containers := append(v.list("status", "initContainerStatuses"), v.list("status", "containerStatuses")...)
	if always {
		if s, stuck := waitingForever(containers); stuck {
			return s
		}
	}
	switch v.text("status", "phase") {
	case "Succeeded":
		return healthy()
	case "Failed":
		return Status{Degraded, failure(v, containers)}
	case "Running":
		if always {
			return running(v)
		}
	}
	return progressing("%s", orElse(v.text("status", "message"), pending(v)))
}

// waitingForever finds a container that waits for a permanent reason.
func waitingForever(containers []view) (Status, bool) {
	for _, c := range containers {
		reason := c.text("state", "waiting", "reason")
		if strings.HasPrefix(reason, "Err") || strings.HasSuffix(reason, "Error") || strings.HasSuffix(reason, "BackOff") {
			return Status{Degraded, fmt.Sprintf("container %s: %s", c.text("name"), orElse(c.text("state", "waiting", "message"), reason))}, true
		}
	}
	return Status{}, false
}

func running(v view) Status {
	if v.is("Ready") {
		return healthy()
	}
	for _, c := range v.list("status", "containerStatuses") {
		if _, ended := c.get("lastState", "terminated").(map[string]any); ended {
			return Status{Degraded, fmt.Sprintf("not ready, and container %s was restarted", c.text("name"))}
		}
	}
	return progressing("not all containers are ready")
}

// failure says why a pod failed: its own message, else that of a container.
func failure(v view, containers []view) string {
	if m := v.text("status", "message"); m != "" {
		return m
	}
	for _, c := range containers {
		ended, ok := c.get("state", "terminated").(map[string]any)
		if !ok {
			continue
		}
		t := view{ended}
		switch code := t.number("exitCode"); {
		case t.text("message") != "":
			return t.text("message")
		case t.text("reason") == "OOMKilled":
			return fmt.Sprintf("container %s: OOMKilled", c.text("name"))
		case code != 0:
			return fmt.Sprintf("container %s failed with exit code %d", c.text("name"), code)
		}
	}
	return orElse(v.text("status", "reason"), "the pod failed")
}

// pending says what a pod waits for.
func pending(v view) string {
	if c := v.condition("PodScheduled"); c.text("status") == "False" {
		return orElse(c.text("message"), "not scheduled")
	}
	return orElse(strings.ToLower(v.text("status", "phase")), "not started")
}
