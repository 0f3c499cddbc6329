package health

import (
	"encoding/json"
	"slices"
)

// service is HLT-18.
func service(v view) Status {
	if v.text("spec", "type") == "LoadBalancer" && len(v.list("status", "loadBalancer", "ingress")) == 0 {
		return progressing("waiting for the load balancer's address")
	}
	return healthy()
}

// ingress is HLT-19.
func ingress(v view) Status {
	if len(v.list("status", "loadBalancer", "ingress")) == 0 {
		return progressing("waiting for the load balancer's address")
	}
	return healthy()
}

// volumeClaim is HLT-20.
func volumeClaim(v view) Status {
	switch phase := v.text("status", "phase"); phase {
	case "Bound":
		return healthy()
	case "Pending":
		return progressing("waiting for a volume")
	case "Lost":
		return Status{Degraded, "the volume is lost"}
	default:
		return Status{Unknown, "phase " + orElse(phase, "not set")}
	}
}

// namespace has no feature id of its own: Active is Healthy.
func namespace(v view) Status {
	switch phase := v.text("status", "phase"); phase {
	case "Active":
		return healthy()
	case "Terminating":
		return progressing("being deleted")
	default:
		return progressing("not active yet")
	}
}

// definition is the rule of CustomResourceDefinitions (HLTX-01).
func definition(v view) Status {
	names := v.condition("NamesAccepted")
	switch {
	case v.is("Terminating"):
		return progressing("being deleted")
	case names.text("status") == "False":
		return Status{Degraded, orElse(names.text("message"), "the names are used by another definition")}
	case v.is("Established"):
		return healthy()
	}
	return progressing("not established yet")
}

// autoscaler is HLT-21.
func autoscaler(v view) Status {
	conditions := v.list("status", "conditions")
	if text := annotation(v, "autoscaling.alpha.kubernetes.io/conditions"); len(conditions) == 0 && text != "" {
		var raw []any
		if err := json.Unmarshal([]byte(text), &raw); err != nil {
			return Status{Unknown, "its conditions annotation is not JSON"}
		}
		conditions = views(raw)
	}
	good := false
	for _, c := range conditions {
		if cannotScale(c) {
			return Status{Degraded, orElse(c.text("message"), c.text("reason"))}
		}
		if kind := c.text("type"); (kind == "AbleToScale" || kind == "ScalingLimited") && c.text("status") == "True" {
			good = true
		}
	}
	if good {
		return healthy()
	}
	return progressing("waiting to autoscale")
}

func cannotScale(c view) bool {
	var bad []string
	switch c.text("type") {
	case "AbleToScale":
		bad = []string{"FailedGetScale", "FailedUpdateScale"}
	case "ScalingActive":
		bad = []string{
			"FailedGetResourceMetric", "FailedGetObjectMetric", "FailedGetPodsMetric", "FailedGetExternalMetric",
			"FailedComputeMetricsReplicas", "InvalidSelector",
		}
	}
	return slices.Contains(bad, c.text("reason"))
}

func annotation(v view, name string) string {
	all, _ := v.get("metadata", "annotations").(map[string]any)
	s, _ := all[name].(string)
	return s
}

// apiService is HLT-22.
func apiService(v view) Status {
	if v.is("Available") {
		return healthy()
	}
	return progressing("%s", orElse(v.condition("Available").text("message"), "not available yet"))
}

// workflow is HLT-23.
func workflow(v view) Status {
	message := v.text("status", "message")
	switch phase := v.text("status", "phase"); phase {
	case "", "Pending", "Running":
		return progressing("%s", orElse(message, "running"))
	case "Succeeded":
		return Status{Healthy, message}
	case "Failed", "Error":
		return Status{Degraded, orElse(message, phase)}
	default:
		return Status{Unknown, "phase " + phase}
	}
}
