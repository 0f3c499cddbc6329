package platform

import (
	"archive/zip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// An Export is an archive of a tenant that is about to be written.
type Export struct {
	Tenant hub.Tenant

	p  *Platform
	at time.Time
}

// ExportTenant begins an export of all that a tenant owns. It leaves a record
// in the logs of both tenants.
func (p *Platform) ExportTenant(ctx context.Context, by hub.Caller, name string) (*Export, error) {
	t, err := p.carryOut(ctx, by, name, ActionExport, func(context.Context, hub.Tenant, time.Time) (act, error) {
		return act{action: ActionExport}, nil
	})
	return &Export{Tenant: t, p: p, at: p.transact.Now().UTC()}, err
}

// WriteTo writes a ZIP archive. It has no value of a secret and no hash of a
// password or token. Each file is as of one moment, save for those that are
// read in pages: applications, history and the audit log. A slow reader holds no
// transaction.
func (e *Export) WriteTo(ctx context.Context, w io.Writer) error {
	z := zip.NewWriter(w)
	for _, f := range []struct {
		name  string
		write func(ctx context.Context, l *lines) error
	}{
		{"tenant.json", e.tenant},
		{"applications.yaml", e.applications},
		{"projects.yaml", e.projects},
		{"settings.jsonl", e.settings},
		{"policy.csv", e.policy},
		{"repositories.jsonl", e.repositories},
		{"clusters.jsonl", e.clusters},
		{"accounts.jsonl", e.accounts},
		{"history.jsonl", e.history},
		{"audit.jsonl", e.audit},
	} {
		to, err := z.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: e.at})
		if err != nil {
			return fmt.Errorf("export tenant %s: %s: %w", e.Tenant.Name, f.name, err)
		}
		if err := f.write(ctx, &lines{to}); err != nil {
			return fmt.Errorf("export tenant %s: %s: %w", e.Tenant.Name, f.name, err)
		}
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("export tenant %s: %w", e.Tenant.Name, err)
	}
	return nil
}

// lines is a file of the archive.
type lines struct{ io.Writer }

// put writes a value as one line.
func (l *lines) put(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = l.Write(append(b, '\n'))
	return err
}

// manifest writes an object of Argo CD as a document of YAML, in the form of
// JSON: capstan apply -f takes it.
func (l *lines) manifest(kind string, m hub.Meta, spec json.RawMessage) error {
	if _, err := io.WriteString(l, "---\n"); err != nil {
		return err
	}
	type metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace,omitempty"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
		Finalizers  []string          `json:"finalizers,omitempty"`
	}
	return l.put(struct {
		APIVersion string          `json:"apiVersion"`
		Kind       string          `json:"kind"`
		Metadata   metadata        `json:"metadata"`
		Spec       json.RawMessage `json:"spec"`
	}{validation.ArgoVersion, kind, metadata{m.Name, m.Namespace, m.Labels, m.Annotations, m.Finalizers}, spec})
}

// read reads in one transaction, and then writes: nothing is written twice when
// a transaction is repeated.
func read[T any](ctx context.Context, e *Export, from func(ctx context.Context, tx transact.Tx) (T, error)) (out T, err error) {
	err = e.p.transact.Store.ReadTenant(ctx, e.Tenant.ID, func(ctx context.Context, tx transact.Tx) (err error) {
		out, err = from(ctx, tx)
		return err
	})
	return out, err
}

// putAll writes a line for each.
func putAll[T any](l *lines, all []T) error {
	for _, v := range all {
		if err := l.put(v); err != nil {
			return err
		}
	}
	return nil
}

func (e *Export) tenant(ctx context.Context, l *lines) error {
	n, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) (hub.TenantCounts, error) { return tx.Counts(ctx) })
	if err != nil {
		return err
	}
	return l.put(map[string]any{"exportedAt": e.at, "tenant": e.Tenant, "counts": n})
}

// exportPage is how many objects are read at once.
const exportPage = 500

// eachApplication calls do with pages of all applications.
func (e *Export) eachApplication(ctx context.Context, do func(page []hub.Application) error) error {
	f := hub.ApplicationFilter{All: true, Limit: exportPage}
	for {
		page, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) ([]hub.Application, error) { return tx.Applications(ctx, f) })
		if err != nil || len(page) == 0 {
			return err
		}
		if err := do(page); err != nil {
			return err
		}
		last := page[len(page)-1]
		f.After = hub.ApplicationKey{Namespace: last.Namespace, Name: last.Name}
	}
}

func (e *Export) applications(ctx context.Context, l *lines) error {
	return e.eachApplication(ctx, func(page []hub.Application) error {
		for _, a := range page {
			if err := l.manifest(validation.KindApplication, a.Meta, a.Spec); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Export) projects(ctx context.Context, l *lines) error {
	all, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) ([]hub.Project, error) { return tx.Projects(ctx) })
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := l.manifest(validation.KindProject, p.Meta, p.Spec); err != nil {
			return err
		}
	}
	return nil
}

func (e *Export) settings(ctx context.Context, l *lines) error {
	all, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) ([]hub.Setting, error) {
		all, _, err := tx.Settings(ctx)
		return all, err
	})
	for _, s := range all {
		line := map[string]any{"map": s.Map, "key": s.Key, "updatedAt": s.UpdatedAt, "updatedBy": s.UpdatedBy}
		if s.Secret {
			line["secret"] = true
		} else {
			line["value"] = s.Value
		}
		if err := l.put(line); err != nil {
			return err
		}
	}
	return err
}

func (e *Export) policy(ctx context.Context, l *lines) error {
	text, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) (string, error) {
		values, err := tx.SettingValues(ctx, rbac.Map, []string{rbac.PolicyKey})
		return values[rbac.PolicyKey], err
	})
	if err != nil {
		return err
	}
	_, err = io.WriteString(l, text)
	return err
}

func (e *Export) repositories(ctx context.Context, l *lines) error {
	all, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) ([]any, error) {
		var out []any
		repositories, err := tx.Repositories(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range repositories {
			out = append(out, map[string]any{"repository": r})
		}
		templates, err := tx.RepositoryTemplates(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range templates {
			out = append(out, map[string]any{"credentialTemplate": t})
		}
		keys, err := tx.HostKeys(ctx)
		for _, k := range keys {
			out = append(out, map[string]any{"hostKey": k})
		}
		return out, err
	})
	if err != nil {
		return err
	}
	return putAll(l, all)
}

func (e *Export) clusters(ctx context.Context, l *lines) error {
	all, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) ([]hub.Cluster, error) { return tx.Clusters(ctx) })
	if err != nil {
		return err
	}
	return putAll(l, all)
}

func (e *Export) accounts(ctx context.Context, l *lines) error {
	type account struct {
		hub.User
		Tokens []hub.APIToken `json:"tokens,omitempty"`
	}
	all, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) ([]account, error) {
		users, err := tx.Users(ctx)
		if err != nil {
			return nil, err
		}
		out := make([]account, len(users))
		for i, u := range users {
			tokens, err := tx.Tokens(ctx, u.ID)
			if err != nil {
				return nil, err
			}
			out[i] = account{u, tokens}
		}
		return out, nil
	})
	if err != nil {
		return err
	}
	return putAll(l, all)
}

func (e *Export) history(ctx context.Context, l *lines) error {
	return e.eachApplication(ctx, func(page []hub.Application) error {
		for _, a := range page {
			if err := e.historyOf(ctx, l, a); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Export) historyOf(ctx context.Context, l *lines, a hub.Application) error {
	type entry struct {
		Application string `json:"application"`
		hub.HistoryEntry
	}
	for before := int64(0); ; {
		part, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) ([]hub.HistoryEntry, error) {
			return tx.HistoryPage(ctx, a.ID, before, exportPage)
		})
		if err != nil {
			return err
		}
		for _, h := range part {
			if err := l.put(entry{a.Namespace + "/" + a.Name, h}); err != nil {
				return err
			}
		}
		if len(part) < exportPage {
			return nil
		}
		before = part[len(part)-1].ID
	}
}

func (e *Export) audit(ctx context.Context, l *lines) error {
	head, err := read(ctx, e, func(ctx context.Context, tx transact.Tx) (hub.AuditHead, error) { return tx.AuditHead(ctx) })
	if err != nil {
		return err
	}
	return tenancy.WriteAudit(ctx, e.p.transact, e.Tenant, head, l)
}
