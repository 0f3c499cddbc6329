package apply

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxAccounts is how many clients of service accounts are cached. A client is a
// few hundred bytes; the connections are those of the agent.
const maxAccounts = 256

// accounts are clients that act as service accounts.
type accounts struct {
	open func(user string) (dynamic.Interface, error) // nil: the agent cannot act as others

	mu      sync.Mutex
	clients map[string]dynamic.Interface
}

// client returns the client of a user, such as system:serviceaccount:shop:deployer.
func (s *accounts) client(user string) (dynamic.Interface, error) {
	if s == nil || s.open == nil {
		return nil, fault.New(fault.Invalid, "this agent cannot act as a service account")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.clients[user]; ok {
		return c, nil
	}
	c, err := s.open(user)
	if err != nil {
		return nil, fmt.Errorf("prepare requests as %s: %w", user, err)
	}
	if s.clients == nil || len(s.clients) >= maxAccounts {
		s.clients = map[string]dynamic.Interface{}
	}
	s.clients[user] = c
	return c, nil
}

// as sends requests as another user, in the same slots.
func (k *kube) as(user string) *kube {
	client, err := k.accounts.client(user)
	if err != nil {
		return k.refusing(err)
	}
	c := *k
	c.client = client
	return &c
}

// refusing sends no requests: each fails with the error.
func (k *kube) refusing(err error) *kube {
	c := *k
	c.refused = err
	return &c
}

// kube sends the requests for the application: as its service account while the
// tenant's settings enable impersonation, otherwise as the agent (IMP-01). The
// watch is the agent's own.
func (a *app) kube() *kube {
	s := a.e.tenantSettings()
	if !s.Impersonate {
		return a.e.kube
	}
	to, err := a.actsAs(s)
	switch {
	case err != nil:
		return a.e.kube.refusing(err)
	case to == "":
		return a.e.kube
	}
	return a.e.kube.as(to)
}

// actsAs is the user as which the agent acts for the application; empty: as
// itself. It does not need mu.
func (a *app) actsAs(s Settings) (string, error) {
	switch account := a.account.Load(); {
	case !s.Impersonate:
		return "", nil
	case account == nil:
		return "", fault.New(fault.Offline, "the application's state is missing")
	case account.user != "":
		return account.user, nil
	case s.ImpersonateOptional:
		return "", nil
	default:
		return "", fault.With(fault.New(fault.Denied, "project %s names no service account for the application's destination, and %s of argocd-cm requires one", account.project, impersonationEnforced), "",
			"add an entry to destinationServiceAccounts of the project")
	}
}

const impersonationEnforced = "application.sync.impersonation.enforced"

// An account is as whom an application's newest state lets the agent act.
type account struct {
	user    string // empty: the project names none
	project string
}

// A lackedRight is a right that a reply of the API server says is missing.
type lackedRight struct {
	user, verb, resource, group, namespace string
}

var lacks = regexp.MustCompile(`User "([^"]+)" cannot (\S+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]*)")?`)

func lackedBy(err error) (lackedRight, bool) {
	if !apierrors.IsForbidden(err) {
		return lackedRight{}, false
	}
	m := lacks.FindStringSubmatch(err.Error())
	if m == nil {
		return lackedRight{}, false
	}
	return lackedRight{m[1], m[2], m[3], m[4], m[5]}, true
}

// impersonates reports whether it is the right to act as another user. API
// servers with constrained impersonation name impersonate-on:… instead.
func (r lackedRight) impersonates() bool { return strings.HasPrefix(r.verb, "impersonate") }

// fix says how to grant the right.
func (r lackedRight) fix() string {
	resource := r.resource
	if r.group != "" {
		resource += "." + r.group
	}
	if r.impersonates() {
		return "permit the agent to act as service accounts: set impersonation.enabled in the values of its chart"
	}
	who := r.user
	if namespace, name, ok := serviceAccount(r.user); ok {
		who = fmt.Sprintf("service account %s of namespace %s", name, namespace)
	}
	if r.namespace != "" {
		return fmt.Sprintf("give the %s the right to %s %s in namespace %s, by a Role and a RoleBinding", who, r.verb, resource, r.namespace)
	}
	return fmt.Sprintf("give the %s the right to %s %s, by a ClusterRole and a ClusterRoleBinding", who, r.verb, resource)
}

// serviceAccount splits the user name of a service account.
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ":")
}
