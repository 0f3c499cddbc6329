package hub

import "time"

// A PolicyVersion is what the access policy of a tenant was after a change.
type PolicyVersion struct {
	Number  int64 // 1 is the oldest of the tenant
	At      time.Time
	By      string
	Reverts int64             // the version that was taken up again; 0: none
	Changed []string          // keys of argocd-rbac-cm, in order
	Values  map[string]string // by key; nil in lists
}

// MaxPolicyVersions is how many versions of a policy are kept.
const MaxPolicyVersions = 500
