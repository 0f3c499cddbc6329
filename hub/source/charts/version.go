package charts

import (
	"errors"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// ErrNone is in the chain of an error if a repository has no such chart or
// version.
var ErrNone = errors.New("there is none")

// ErrRefused is in the chain of an error if a server does not accept the
// credential.
var ErrRefused = errors.New("the credential is refused")

// Exact reports whether a version is one, and not a range.
func Exact(version string) bool { return exact(version) }

func exact(version string) bool {
	_, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	return err == nil
}

// pick returns the version of a list that Helm would choose: the one that is
// written the same, else the highest in the range. An empty range is that of
// all releases. The place is that in the list.
func pick(ref hub.ChartRef, versions []string) (place int, err error) {
	if i := slices.Index(versions, ref.Version); ref.Version != "" && i >= 0 {
		return i, nil
	}
	within := ref.Version
	if within == "" {
		within = "*"
	}
	constraint, err := semver.NewConstraint(within)
	if err != nil {
		return 0, fault.With(fault.Wrap(fault.Invalid, ErrNone, "%q is neither a version nor a range of versions of the chart %s", short(ref.Version), ref.Name), "", "write it like 1.2.3 or ^1.2")
	}
	best, found := -1, (*semver.Version)(nil)
	for i, text := range versions {
		v, err := semver.NewVersion(text)
		if err != nil || !constraint.Check(v) {
			continue
		}
		if found == nil || v.GreaterThan(found) {
			best, found = i, v
		}
	}
	if best < 0 {
		return 0, noVersion(ref)
	}
	return best, nil
}

func noVersion(ref hub.ChartRef) error {
	return fault.With(fault.Wrap(fault.Invalid, ErrNone, "%s has no version %q of the chart %s", ref.Repository, short(ref.Version), ref.Name), "",
		"correct the version; a range leaves out pre-releases unless it names one")
}
