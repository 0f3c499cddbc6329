package tenancy

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// An AuthoritiesOf is a user's input for one Git server over HTTPS.
type AuthoritiesOf struct {
	Server string
	PEM    string
}

// Authorities lists the certificates that the tenant has stored for Git
// servers over HTTPS, one for each certificate, in order of server. What
// cannot be read is left out: an earlier release has stored it, and every fetch
// from that server says so.
func (c *Tenancy) Authorities(ctx context.Context, by hub.Caller) ([]hub.Authority, error) {
	var out []hub.Authority
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Certificates, access.Get); err != nil {
			return err
		}
		all, _, err := r.Tx.Settings(ctx)
		for _, s := range all {
			if s.Map == hub.CertificatesMap && r.Rights.Check(access.Certificates, access.Get, s.Key) {
				of, _ := hub.ParseAuthorities(s.Key, s.Value)
				out = append(out, of...)
			}
		}
		return err
	})
	return out, err
}

// PutAuthorities stores, for each server, the certificates that its own must
// come from, in the place of those that were stored for it. Others than the
// stored ones are a conflict unless upsert is set. All are stored, or none.
func (c *Tenancy) PutAuthorities(ctx context.Context, by hub.Caller, given []AuthoritiesOf, upsert bool) ([]hub.Authority, error) {
	var out []hub.Authority
	changes := make([]hub.SettingChange, 0, len(given))
	for _, g := range given {
		server, err := hub.AuthorityServer(g.Server)
		if err != nil {
			return nil, err
		}
		of, err := hub.ParseAuthorities(server, g.PEM)
		if err != nil {
			return nil, fault.With(err, "server "+server, "")
		}
		if slices.ContainsFunc(changes, func(s hub.SettingChange) bool { return s.Key == server }) {
			return nil, fault.With(fault.New(fault.Invalid, "it is named twice"), "server "+server, "give all its certificates in one text")
		}
		var text strings.Builder
		for _, a := range of {
			text.WriteString(a.PEM())
		}
		value := text.String()
		if err := settings.Check(hub.CertificatesMap, server, value); err != nil {
			return nil, err
		}
		changes = append(changes, hub.SettingChange{Map: hub.CertificatesMap, Key: server, Value: &value})
		out = append(out, of...)
	}
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if err := w.LockSettings(ctx); err != nil { // nobody stores others between the read and the write
			return err
		}
		if err := w.knownAuthorities(ctx, changes, upsert); err != nil {
			return err
		}
		_, _, err := w.patchSettings(ctx, changes, 0)
		return err
	})
	return out, err
}

// knownAuthorities refuses what would replace other certificates unasked.
func (w *writer) knownAuthorities(ctx context.Context, changes []hub.SettingChange, upsert bool) error {
	for _, change := range changes {
		old, err := w.SettingValues(ctx, hub.CertificatesMap, []string{change.Key})
		if err != nil {
			return err
		}
		before, there := old[change.Key]
		if !there || upsert || sameAuthorities(before, *change.Value) {
			continue
		}
		if err := w.needAuthority(change, true); err != nil {
			return err
		}
		return fault.With(fault.New(fault.Conflict, "other certificates are stored for it: %s", fingerprints(change.Key, before)), "server "+change.Key,
			"if these are to take their place, add them with --upsert")
	}
	return nil
}

// sameAuthorities reports whether two texts hold the same certificates.
func sameAuthorities(a, b string) bool {
	return a == b || fingerprints("", a) != "" && fingerprints("", a) == fingerprints("", b)
}

// fingerprints name the certificates of a text for people.
func fingerprints(server, text string) string {
	of, _ := hub.ParseAuthorities(server, text)
	var all []string
	for _, a := range of {
		all = append(all, a.Fingerprint())
	}
	return strings.Join(all, ", ")
}

// needAuthority checks the right to change what is stored for a Git server: on
// certificates, or on settings, where they are stored.
func (w *writer) needAuthority(change hub.SettingChange, there bool) error {
	return w.needStored(access.Certificates, change, there)
}

// needStored checks the right to change something that is stored as a setting:
// on the resource that it is, or on settings.
func (w *writer) needStored(resource string, change hub.SettingChange, there bool) error {
	if w.Rights.Check(access.Settings, access.Update, validation.SettingName(change.Map, change.Key)) {
		return nil
	}
	action := access.Create
	switch {
	case change.Value == nil:
		action = access.Delete
	case there:
		action = access.Update
	}
	return w.Need(resource, action, change.Key)
}

// needSettings is the right to some changes of settings.
func (w *writer) needSettings(ctx context.Context, changes []hub.SettingChange) error {
	resources := map[string]string{hub.CertificatesMap: access.Certificates, hub.GPGKeysMap: access.GPGKeys}
	for _, change := range changes {
		resource, apart := resources[change.Map]
		if !apart {
			if err := w.Need(access.Settings, access.Update, validation.SettingName(change.Map, change.Key)); err != nil {
				return err
			}
			continue
		}
		old, err := w.SettingValues(ctx, change.Map, []string{change.Key})
		if err != nil {
			return err
		}
		_, there := old[change.Key]
		if err := w.needStored(resource, change, there); err != nil {
			return err
		}
	}
	return nil
}

// Kinds of what is known of a server.
const (
	certSSH   = "ssh"
	certHTTPS = "https"
)

// DeleteCertificates deletes a server's host keys and TLS certificates, one of
// these kinds alone, or the host key of a type. It returns the deleted ones.
func (c *Tenancy) DeleteCertificates(ctx context.Context, by hub.Caller, server, kind, keyType string) ([]hub.HostKey, []hub.Authority, error) {
	if kind == certHTTPS && keyType != "" {
		return nil, nil, fault.With(fault.New(fault.Invalid, "a type picks host keys, not TLS certificates"), "server "+validation.Shorten(server),
			"leave the type out: the certificates of a server are stored, and go, together")
	}
	var keys []hub.HostKey
	var stored []hub.Authority
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		if !w.Rights.Check(access.Certificates, access.Get, server) {
			return w.Refuse(access.Certificates, access.Delete, server, transact.Missing(access.Certificates, validation.Shorten(server)))
		}
		if err := w.Need(access.Certificates, access.Delete, server); err != nil {
			return err
		}
		var err error
		if keys, err = w.dropHostKeys(ctx, server, kind, keyType); err != nil {
			return err
		}
		var there bool
		if stored, there, err = w.dropAuthorities(ctx, server, kind, keyType); err == nil && !there && len(keys) == 0 {
			err = transact.Missing(access.Certificates, validation.Shorten(server))
		}
		return err
	})
	return keys, stored, err
}

func (w *writer) dropHostKeys(ctx context.Context, host, kind, keyType string) ([]hub.HostKey, error) {
	if kind == certHTTPS {
		return nil, nil
	}
	own, err := w.Tx.HostKeys(ctx)
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(own, func(k hub.HostKey) bool { return k.Host != host || keyType != "" && k.Type != keyType })
	if len(gone) == 0 {
		return nil, nil
	}
	for _, k := range gone {
		w.Note(access.Delete, access.Certificates, host, k.Type+" "+k.Fingerprint(), k, nil)
	}
	w.Due = append(w.Due, hub.WorkFetch)
	return gone, w.Tx.DeleteHostKeys(ctx, host, keyType)
}

// dropAuthorities says too whether anything was stored, readable or not.
func (w *writer) dropAuthorities(ctx context.Context, server, kind, keyType string) ([]hub.Authority, bool, error) {
	if kind == certSSH || keyType != "" {
		return nil, false, nil
	}
	server = strings.ToLower(server)
	old, err := w.SettingValues(ctx, hub.CertificatesMap, []string{server})
	text, there := old[server]
	if err != nil || !there {
		return nil, false, err
	}
	gone, _ := hub.ParseAuthorities(server, text)
	_, _, err = w.patchSettings(ctx, []hub.SettingChange{{Map: hub.CertificatesMap, Key: server}}, 0)
	return gone, true, err
}

// refreshOverTLS enqueues fetches of the repositories whose servers are checked
// with other certificates from now on.
func (w *writer) refreshOverTLS(ctx context.Context, changes []hub.SettingChange) error {
	hosts := map[string]bool{}
	for _, change := range changes {
		if change.Map == hub.CertificatesMap {
			hosts[change.Key] = true
		}
	}
	if len(hosts) == 0 {
		return nil
	}
	all, err := w.Repositories(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		if u, err := url.Parse(r.URL); err == nil && u.Scheme == "https" && hosts[strings.ToLower(u.Hostname())] {
			if err := w.Fetch(ctx, r.ID); err != nil {
				return err
			}
		}
	}
	w.Due = append(w.Due, hub.WorkFetch)
	return nil
}
