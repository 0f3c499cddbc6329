// Package exporter writes what a tenant has declared as manifests that Argo CD
// and Capstan both take: settings, repositories, clusters, projects,
// applications and ApplicationSets. It reads the hub's API page by page and writes as it reads, in
// an order that is the same for the same state. Values of secrets stand in it
// as Withheld. The export and admin commands call it.
package exporter

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/importer"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// Withheld stands for the value of a secret, which no API returns. Who applies
// it means the value that is stored.
const Withheld = "<not exported>"

const (
	namespace  = "argocd"
	secretType = "argocd.argoproj.io/secret-type"
	knownHosts = "argocd-ssh-known-hosts-cm"
)

// An exporter is one run.
type exporter struct {
	api *client.Client
	out io.Writer
	err error // of the first document that was not written
}

// Run writes all manifests. An error leaves an incomplete text behind.
func Run(ctx context.Context, api *client.Client, out io.Writer) error {
	x := &exporter{api: api, out: out}
	for _, step := range []func(context.Context) error{x.settings, x.hostKeys, x.repositories, x.templates, x.clusters, x.projects, x.applications, x.applicationSets} {
		if err := step(ctx); err != nil || x.err != nil {
			return cmp.Or(err, x.err)
		}
	}
	return nil
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Finalizers  []string          `json:"finalizers,omitempty"`
}

// An object is one manifest. Its fields are written in the order of their names.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metadata          `json:"metadata"`
	Data       map[string]string `json:"data,omitempty"`
	StringData map[string]string `json:"stringData,omitempty"`
	Spec       json.RawMessage   `json:"spec,omitempty"`
}

func (x *exporter) write(o object) {
	if x.err != nil {
		return
	}
	text, err := yaml.Marshal(o)
	if err == nil {
		_, err = x.out.Write(append([]byte("---\n"), text...))
	}
	x.err = err
}

// items calls a method of the API that lists something.
type items[T any] struct {
	Items []T `json:"items"`
}

func (x *exporter) settings(ctx context.Context) error {
	all, _, err := client.Call[apimodel.Settings](x.api.GetSettings(ctx))
	if err != nil {
		return err
	}
	byMap := map[string]*object{}
	for _, s := range all.Items {
		o := byMap[s.Map]
		if o == nil {
			o = &object{APIVersion: "v1", Kind: "ConfigMap", Metadata: metadata{Name: s.Map, Namespace: namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "argocd"}}}
			byMap[s.Map] = o
		}
		if !s.Secret {
			o.Data = with(o.Data, s.Key, s.Value)
			continue
		}
		o.Kind = "Secret"
		o.StringData = with(o.StringData, s.Key, Withheld)
	}
	for _, name := range slices.Sorted(maps.Keys(byMap)) {
		x.write(*byMap[name])
	}
	return nil
}

func with(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// hostKeys writes the keys of SSH servers that the tenant has added. The TLS
// certificates of servers are settings.
func (x *exporter) hostKeys(ctx context.Context) error {
	all, _, err := client.Call[items[apimodel.Certificate]](x.api.ListCertificates(ctx))
	if err != nil {
		return err
	}
	var lines []string
	for _, c := range all.Items {
		if c.Type == "ssh" && !c.BuiltIn {
			lines = append(lines, c.ServerName+" "+c.SubType+" "+c.Data)
		}
	}
	if slices.Sort(lines); len(lines) > 0 {
		x.write(object{
			APIVersion: "v1", Kind: "ConfigMap", Metadata: metadata{Name: knownHosts, Namespace: namespace},
			Data: map[string]string{"ssh_known_hosts": strings.Join(lines, "\n") + "\n"},
		})
	}
	return nil
}

func (x *exporter) repositories(ctx context.Context) error {
	all, _, err := client.Call[items[apimodel.Repository]](x.api.ListRepositories(ctx))
	if err != nil {
		return err
	}
	slices.SortFunc(all.Items, func(a, b apimodel.Repository) int {
		return cmp.Or(strings.Compare(a.Url, b.Url), strings.Compare(a.Project, b.Project))
	})
	for _, r := range all.Items {
		if !r.Registered {
			continue
		}
		values := map[string]string{"type": r.Type, "url": r.Url}
		optional(values, "name", r.Name)
		optional(values, "project", r.Project)
		if r.Insecure {
			values["insecure"] = "true"
		}
		if r.EnableOCI && r.Type == "helm" {
			values["enableOCI"] = "true"
		}
		if r.InsecureOCIForceHttp {
			values["insecureOCIForceHttp"] = "true"
		}
		optional(values, "proxy", r.Proxy)
		optional(values, "noProxy", r.NoProxy)
		if r.EnableLfs {
			values["enableLfs"] = "true"
		}
		if r.Depth > 0 {
			values["depth"] = strconv.Itoa(r.Depth)
		}
		credential(values, r.Url, r.Username, r.HasCredential)
		x.secret("repository", "repo-", r.Url+"#"+r.Project, values)
	}
	return nil
}

func (x *exporter) templates(ctx context.Context) error {
	all, _, err := client.Call[items[apimodel.RepositoryCredential]](x.api.ListRepositoryCredentials(ctx))
	if err != nil {
		return err
	}
	slices.SortFunc(all.Items, func(a, b apimodel.RepositoryCredential) int { return strings.Compare(a.Url, b.Url) })
	for _, t := range all.Items {
		values := map[string]string{"type": t.Type, "url": t.Url}
		optional(values, "name", t.Name)
		optional(values, "proxy", t.Proxy)
		optional(values, "noProxy", t.NoProxy)
		credential(values, t.Url, t.Username, true)
		x.secret("repo-creds", "creds-", t.Url, values)
	}
	return nil
}

func optional(values map[string]string, key, value string) {
	if value != "" {
		values[key] = value
	}
}

// credential writes which credential there is. Over SSH that is a private key.
func credential(values map[string]string, url, username string, there bool) {
	ssh := strings.HasPrefix(url, "ssh://") || !strings.Contains(url, "://")
	if !ssh {
		optional(values, "username", username)
	}
	switch {
	case !there:
	case ssh:
		values["sshPrivateKey"] = Withheld
	default:
		values["password"] = Withheld
	}
}

// secret writes a Secret whose name is the same whenever the object is.
func (x *exporter) secret(kind, prefix, about string, values map[string]string) {
	sum := sha256.Sum256([]byte(about))
	x.write(object{
		APIVersion: "v1", Kind: "Secret", StringData: values,
		Metadata: metadata{Name: prefix + hex.EncodeToString(sum[:5]), Namespace: namespace, Labels: map[string]string{secretType: kind}},
	})
}

func (x *exporter) clusters(ctx context.Context) error {
	all, _, err := client.Call[items[apimodel.Cluster]](x.api.ListClusters(ctx))
	if err != nil {
		return err
	}
	slices.SortFunc(all.Items, func(a, b apimodel.Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, c := range all.Items {
		labels := map[string]string{secretType: "cluster"}
		maps.Copy(labels, c.Labels)
		values := map[string]string{"name": c.Name}
		optional(values, "server", c.Server)
		x.write(object{
			APIVersion: "v1", Kind: "Secret", StringData: values,
			Metadata: metadata{Name: "cluster-" + c.Name, Namespace: namespace, Labels: labels, Annotations: c.Annotations},
		})
	}
	return nil
}

func (x *exporter) projects(ctx context.Context) error {
	all, _, err := client.Call[items[apimodel.AppProject]](x.api.ListProjects(ctx))
	if err != nil {
		return err
	}
	slices.SortFunc(all.Items, func(a, b apimodel.AppProject) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
	for _, p := range all.Items {
		x.write(object{APIVersion: p.ApiVersion, Kind: p.Kind, Metadata: ofObject(p.Metadata), Spec: p.Spec})
	}
	return nil
}

func (x *exporter) applications(ctx context.Context) error {
	return importer.EachApplication(ctx, x.api, apimodel.ListApplicationsParams{Fields: "-items.status,items.operation"}, func(a apimodel.Application) error {
		x.write(object{APIVersion: a.ApiVersion, Kind: a.Kind, Metadata: ofObject(a.Metadata), Spec: a.Spec})
		return x.err
	})
}

func (x *exporter) applicationSets(ctx context.Context) error {
	return importer.EachSet(ctx, x.api, func(s apimodel.ApplicationSet) error {
		x.write(object{APIVersion: s.ApiVersion, Kind: s.Kind, Metadata: ofObject(s.Metadata), Spec: s.Spec})
		return x.err
	})
}

// ofObject is the metadata that users write. Whether an application was imported
// is not part of what it is.
func ofObject(m apimodel.Metadata) metadata {
	annotations := maps.Clone(map[string]string(m.Annotations))
	delete(annotations, importer.Imported)
	return metadata{Name: m.Name, Namespace: cmp.Or(m.Namespace, namespace), Labels: m.Labels, Annotations: annotations, Finalizers: m.Finalizers}
}
