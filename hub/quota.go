package hub

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Quota is one thing that a tenant may have only so much of.
type Quota string

// The quotas. Those of rates are per minute, over all replicas.
const (
	QuotaApplications  Quota = "applications"
	QuotaClusters      Quota = "clusters"
	QuotaRepositories  Quota = "repositories" // registered ones
	QuotaUsers         Quota = "users"
	QuotaTokens        Quota = "tokens"
	QuotaStorage       Quota = "storageBytes" // of rendered manifests, in the database
	QuotaSets          Quota = "applicationSets"
	QuotaPerSet        Quota = "applicationsPerSet" // of one application set
	QuotaRenders       Quota = "rendersPerMinute"
	QuotaRequests      Quota = "requestsPerMinute" // to the API
	QuotaNotifications Quota = "notificationsPerHour"
)

// AllQuotas are all of them, in the order in which they are shown.
func AllQuotas() []Quota {
	return []Quota{
		QuotaApplications, QuotaClusters, QuotaRepositories, QuotaUsers, QuotaTokens, QuotaStorage, QuotaSets, QuotaPerSet, QuotaRenders, QuotaRequests, QuotaNotifications,
	}
}

// DefaultPerSet is the quota applicationsPerSet where nobody has set it.
const DefaultPerSet = 1000

// Quotas are limits. One that is absent, or zero, limits nothing.
type Quotas map[Quota]int64

// Over returns the quotas with those of a tenant before the defaults.
func (q Quotas) Over(defaults Quotas) Quotas {
	out := Quotas{}
	for _, name := range AllQuotas() {
		most, own := q[name]
		if !own {
			most = defaults[name]
		}
		if most > 0 {
			out[name] = most
		}
	}
	return out
}

// Check reports what is wrong with quotas that somebody wrote.
func (q Quotas) Check() error {
	for name, most := range q {
		if !slices.Contains(AllQuotas(), name) {
			var known []string
			for _, k := range AllQuotas() {
				known = append(known, string(k))
			}
			return fault.With(fault.New(fault.Invalid, "there is no quota %q", name), "", "write one of "+strings.Join(known, ", "))
		}
		if most < 0 {
			return fault.New(fault.Invalid, "the quota %s is below zero", name)
		}
	}
	return nil
}

// CodeQuota is the code of the error for what exceeds a quota.
const CodeQuota = "CAP-1430"

// ErrQuota is the error of a write that would exceed a quota.
func ErrQuota(name Quota, most, use int64) error {
	return &fault.Error{
		Kind: fault.Exceeded, Code: CodeQuota, Object: "quota " + string(name),
		Cause: fmt.Sprintf("the tenant may have %d and would have %d", most, use), Fix: "remove some, or ask a platform admin for a higher quota",
	}
}

// ErrRate is the error of a request that comes too soon.
func ErrRate(name Quota, most int64) error {
	return &fault.Error{
		Kind: fault.Exceeded, Object: "quota " + string(name), RetryAfter: 5 * time.Second,
		Cause: fmt.Sprintf("the tenant has used its %d for this minute", most), Fix: "wait a few seconds and try again, or ask a platform admin for a higher quota",
	}
}

// A Usage is what a tenant uses.
type Usage struct {
	TenantCounts
	StorageBytes int64
	StorageAt    *time.Time // when StorageBytes was measured; nil: never
	Registered   int64      // repositories that count
	Sets         int64      // application sets
}

// Of returns how much of a quota is used; false for rates, which are not
// stored, and for what each application set has.
func (u Usage) Of(name Quota) (int64, bool) {
	switch name {
	case QuotaApplications:
		return u.Applications, true
	case QuotaClusters:
		return u.Clusters, true
	case QuotaRepositories:
		return u.Registered, true
	case QuotaUsers:
		return u.Users, true
	case QuotaTokens:
		return u.Tokens, true
	case QuotaStorage:
		return u.StorageBytes, true
	case QuotaSets:
		return u.Sets, true
	}
	return 0, false
}
