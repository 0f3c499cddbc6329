package importer

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// prune deletes sets, applications, projects, repositories and credential templates
// that the input does not have. Objects in clusters stay. Clusters and settings
// are never deleted: an agent would lose its connection, and a key its value.
func (im *importer) prune(ctx context.Context) error {
	if !im.opts.Prune {
		return nil
	}
	for _, step := range []func(context.Context) error{im.pruneSets, im.pruneApplications, im.pruneProjects, im.pruneRepositories} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether the input has an object, also one that was left out or
// refused.
func (im *importer) has(kind string, same func(*Item) bool) bool {
	return slices.ContainsFunc(im.items, func(it *Item) bool { return it.Kind == kind && same(it) })
}

// remove deletes one object, or says that it would.
func (im *importer) remove(kind, namespace, name string, do func() error) {
	it := &Item{Kind: kind, Namespace: namespace, Name: name, Result: deleted}
	if !im.opts.DryRun {
		if err := do(); err != nil {
			it.Result = refused
			it.note(client.Text(err))
		}
	}
	im.items = append(im.items, it)
}

func (im *importer) pruneApplications(ctx context.Context) error {
	keys := make([]string, 0, len(im.stored))
	for key := range im.stored {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		m := im.stored[key].Metadata
		if im.generatedBy(im.stored[key]) || im.has("Application", func(it *Item) bool { return id(it.Namespace, it.Name) == key }) {
			continue
		}
		im.remove("Application", m.Namespace, m.Name, func() error {
			no := false
			_, err := client.Read(im.api.DeleteApplication(ctx, m.Namespace, m.Name, apimodel.DeleteApplicationParams{Cascade: &no}))
			return err
		})
	}
	return nil
}

func (im *importer) pruneProjects(ctx context.Context) error {
	all, _, err := client.Call[struct {
		Items []apimodel.AppProject `json:"items"`
	}](im.api.ListProjects(ctx))
	if err != nil {
		return err
	}
	for _, p := range all.Items {
		if p.Metadata.Name == "default" || im.has("AppProject", func(it *Item) bool { return it.Name == p.Metadata.Name }) {
			continue
		}
		im.remove("AppProject", "", p.Metadata.Name, func() error {
			_, err := client.Read(im.api.DeleteProject(ctx, p.Metadata.Name))
			return err
		})
	}
	return nil
}

func (im *importer) pruneRepositories(ctx context.Context) error {
	repos, _, err := client.Call[struct {
		Items []apimodel.Repository `json:"items"`
	}](im.api.ListRepositories(ctx))
	if err != nil {
		return err
	}
	for _, r := range repos.Items {
		if !r.Registered || im.declares("repository", r.Url, r.Project) {
			continue
		}
		im.remove("Repository", "", r.Url, func() error {
			_, err := client.Read(im.api.DeleteRepository(ctx, r.Id))
			return err
		})
	}
	templates, _, err := client.Call[struct {
		Items []apimodel.RepositoryCredential `json:"items"`
	}](im.api.ListRepositoryCredentials(ctx))
	if err != nil {
		return err
	}
	for _, t := range templates.Items {
		if im.declares("repo-creds", t.Url, "") {
			continue
		}
		im.remove("RepositoryCredential", "", t.Url, func() error {
			_, err := client.Read(im.api.DeleteRepositoryCredential(ctx, t.Id))
			return err
		})
	}
	return nil
}

// declares reports whether a Secret of the input is about a repository. URLs
// are compared without what does not tell repositories apart.
func (im *importer) declares(kind, url, project string) bool {
	return im.has("Secret", func(it *Item) bool {
		return it.doc.labels()[secretType] == kind && plainURL(it.value("url")) == plainURL(url) && it.value("project") == project
	})
}

func plainURL(url string) string {
	url = strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(url), "/"), ".git"))
	if scheme, rest, ok := strings.Cut(url, "://"); ok {
		if _, after, found := strings.Cut(rest, "@"); found && scheme != "ssh" {
			rest = after
		}
		return scheme + "://" + rest
	}
	return url
}

// value is that of a key of a Secret.
func (it *Item) value(key string) string {
	return cmp.Or(textOf(mapOf(it.doc.object, "stringData"), key), it.decoded(key))
}

func (it *Item) decoded(key string) string {
	b, err := base64.StdEncoding.DecodeString(textOf(mapOf(it.doc.object, "data"), key))
	if err != nil {
		return ""
	}
	return string(b)
}

func mapOf(m map[string]any, key string) map[string]any {
	out, _ := m[key].(map[string]any)
	return out
}

// report collects what became of the documents, and what to do next.
func (im *importer) report() Report {
	out := Report{DryRun: im.opts.DryRun}
	for _, it := range im.items {
		if it.class == application && it.Result != refused && it.doc.annotations()[Imported] == Observed {
			out.Observed++
		}
		out.Items = append(out.Items, *it)
	}
	if versions := im.otherVersions(); len(versions) > 0 {
		out.Proposals = append(out.Proposals, fmt.Sprintf("Applications ask for versions of Kustomize that are not built here. Compare their manifests by `capstan app diff`, then: capstan settings set kustomize.versions='%s'", strings.Join(versions, ", ")))
	}
	return out
}

// otherVersions are the versions of Kustomize that applications ask for and that
// the hub does not build with.
func (im *importer) otherVersions() (out []string) {
	for _, it := range im.items {
		if it.class != application || it.Result == refused {
			continue
		}
		for _, v := range it.kustomizeVersions() {
			if !im.builds(v) {
				out = append(out, v)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// builds reports whether a version of Kustomize is the one that the hub builds
// with.
func (im *importer) builds(version string) bool {
	served := strings.TrimPrefix(im.opts.KustomizeServed, "v")
	version = strings.TrimPrefix(version, "v")
	major, _, _ := strings.Cut(served, ".")
	return version == major || version == served || strings.HasPrefix(version, served+".")
}
