package tenancy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Argo CD's place for host keys.
const (
	KnownHostsMap = "argocd-ssh-known-hosts-cm"
	knownHostsKey = "ssh_known_hosts"
)

// HostKeys lists the host keys of the tenant: its own, and after them the
// built-in ones that none of its own replaces.
func (c *Tenancy) HostKeys(ctx context.Context, by hub.Caller) ([]hub.HostKey, error) {
	var out []hub.HostKey
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Certificates, access.Get); err != nil {
			return err
		}
		own, err := r.Tx.HostKeys(ctx)
		if err != nil {
			return err
		}
		for _, k := range slices.Concat(own, hub.BuiltInHostKeys()) {
			replaced := k.BuiltIn && slices.ContainsFunc(own, func(o hub.HostKey) bool { return o.Matches(k.Host) })
			if !replaced && r.Rights.Check(access.Certificates, access.Get, k.Host) {
				out = append(out, k)
			}
		}
		return nil
	})
	return out, err
}

// PutHostKeys trusts the servers of a text in the format of known_hosts. A
// key that differs from the known one is a conflict unless upsert is set; with
// a fingerprint, other keys are passed over. All are stored, or none.
func (c *Tenancy) PutHostKeys(ctx context.Context, by hub.Caller, text, fingerprint string, upsert, dryRun bool) ([]hub.HostKey, transact.Outcome, error) {
	keys, err := hub.ParseKnownHosts(text)
	if err != nil {
		return nil, "", err
	}
	if fingerprint != "" {
		keys = slices.DeleteFunc(keys, func(k hub.HostKey) bool { return k.Fingerprint() != fingerprint })
	}
	if len(keys) == 0 && fingerprint != "" {
		return nil, "", fault.With(fault.New(fault.Invalid, "none of the host keys has the fingerprint %s", validation.Shorten(fingerprint)), "",
			"do not trust this server before its operator has confirmed the fingerprint")
	}
	if len(keys) == 0 {
		return nil, "", fault.With(fault.New(fault.Invalid, "there is no host key in it"), "", "give it what ssh-keyscan HOST prints")
	}
	var outcome transact.Outcome
	err = c.writeOr(ctx, by, dryRun, func(ctx context.Context, w *writer) error {
		var err error
		outcome, err = w.putHostKeys(ctx, keys, upsert)
		return err
	})
	return keys, outcome, err
}

func (w *writer) putHostKeys(ctx context.Context, keys []hub.HostKey, upsert bool) (transact.Outcome, error) {
	own, err := w.Tx.HostKeys(ctx)
	if err != nil {
		return "", err
	}
	outcome := transact.Unchanged
	var fresh []hub.HostKey
	for _, k := range keys {
		i := slices.IndexFunc(own, func(o hub.HostKey) bool { return o.Host == k.Host && o.Type == k.Type })
		switch {
		case i < 0:
			if err := w.Need(access.Certificates, access.Create, k.Host); err != nil {
				return "", err
			}
			w.Note(access.Create, access.Certificates, k.Host, k.Type+" "+k.Fingerprint(), nil, k)
			if outcome == transact.Unchanged {
				outcome = transact.Created
			}
		case own[i].Key == k.Key:
			if err := w.Need(access.Certificates, access.Create, k.Host); err != nil {
				return "", err
			}
			continue
		case !upsert:
			if err := w.Need(access.Certificates, access.Create, k.Host); err != nil {
				return "", err
			}
			return "", fault.With(fault.New(fault.Conflict, "another key of type %s is known: %s, and this one is %s", k.Type, own[i].Fingerprint(), k.Fingerprint()),
				"host "+k.Host, "ask the operator of the server whether its key was changed; if it was, add it with --upsert")
		default:
			if err := w.Need(access.Certificates, access.Update, k.Host); err != nil {
				return "", err
			}
			w.Note(access.Update, access.Certificates, k.Host, "from "+own[i].Fingerprint()+" to "+k.Fingerprint(), own[i], k)
			outcome = transact.Configured
		}
		fresh = append(fresh, k)
	}
	if len(own)+len(fresh) > maxHostKeys {
		return "", fault.With(fault.New(fault.Exceeded, "a tenant knows at most %d host keys", maxHostKeys), "", "remove some with capstan cert rm")
	}
	if len(fresh) == 0 {
		return outcome, nil
	}
	w.Due = append(w.Due, hub.WorkFetch)
	return outcome, w.Tx.PutHostKeys(ctx, fresh)
}

// maxHostKeys bounds what is read for every fetch over SSH.
const maxHostKeys = 1000

// ApplyKnownHosts applies Argo CD's ConfigMap of host keys. Keys are added and
// replaced; missing ones stay.
func (c *Tenancy) ApplyKnownHosts(ctx context.Context, by hub.Caller, o *manifest.Object, dryRun bool) (transact.Outcome, []string, error) {
	object := manifest.KeyOf(o).Describe()
	data, _ := o.Object["data"].(map[string]any)
	text, ok := data[knownHostsKey].(string)
	if !ok {
		return "", nil, fault.With(fault.New(fault.Invalid, "it has no text under data.%s", knownHostsKey), object, "write the lines of known_hosts there")
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if key != knownHostsKey {
			warnings = append(warnings, fmt.Sprintf("the key %s was not stored: there is none of that name", validation.Shorten(key)))
		}
	}
	_, outcome, err := c.PutHostKeys(ctx, by, text, "", true, dryRun)
	return outcome, warnings, fault.With(err, object, "")
}
