package apply

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// causes returns the causes in an API server's error, one text per field.
func causes(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}

// immutable reports whether an object was refused because one of its fields
// cannot be changed.
func immutable(err error) bool {
	if !apierrors.IsInvalid(err) {
		return false
	}
	for _, c := range causes(err) {
		if strings.Contains(c.Message, "immutable") || strings.Contains(c.Message, "may not be changed") ||
			strings.Contains(c.Message, "updates to statefulset spec") || strings.Contains(c.Message, "field cannot be changed") {
			return true
		}
	}
	return strings.Contains(err.Error(), "field is immutable")
}

// repeated reports whether server-side apply refused a list with a duplicate
// key, which other writes accept.
func repeated(err error) bool {
	return err != nil && strings.Contains(err.Error(), "duplicate entries for key")
}

// undeclared reports whether server-side apply refused a field that the kind
// does not have.
func undeclared(err error) bool {
	return err != nil && strings.Contains(err.Error(), "field not declared in schema")
}

// noApply reports whether the server of a kind does not support server-side
// apply.
func noApply(err error) bool {
	return apierrors.IsUnsupportedMediaType(err)
}

// otherUID reports whether an apply named a uid that is not the live one.
func otherUID(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "uid")
}

// terminating reports whether the object's namespace is being deleted.
func terminating(err error) bool {
	return apierrors.HasStatusCause(err, "NamespaceTerminating")
}

// isGone reports whether an object does not exist, although its resource is
// known.
func isGone(err error) bool { return apierrors.IsNotFound(err) && !unknownResource(err) }

// dying reports whether the kind itself is being deleted.
func dying(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating")
}

// unknownResource reports whether the server does not know the resource itself,
// whatever the object's name.
func unknownResource(err error) bool {
	return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "could not find the requested resource")
}
