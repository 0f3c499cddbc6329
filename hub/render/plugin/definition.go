// Package plugin runs the config management plugins that an operator has
// declared (rows CMP). A plugin is a program on the hub's machine. It runs in a
// sandbox on an export of the part of the tree that it needs, with the hub as
// its supervisor. Definitions have the form of Argo CD's plugin.yaml.
package plugin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The annotations of a definition by which the operator permits more than the
// sandbox does by itself.
const (
	annotationWritable = "capstan.dev/writable" // "true": it may write in its private export
	annotationHosts    = "capstan.dev/hosts"    // hosts that it may connect to over a proxy
	annotationTenants  = "capstan.dev/tenants"  // ids of the organisations that may use it; absent: all
	annotationEnvFile  = "capstan.dev/env-file" // a file of NAME=value lines that it gets
	annotationRevision = "capstan.dev/revision" // "ignore": another commit alone is no reason to render
	// annotationPublicEnv names variables of the file that are no secrets.
	annotationPublicEnv = "capstan.dev/public-env"
	apiVersion          = "argoproj.io/v1alpha1"
	kind                = "ConfigManagementPlugin"
)

// A Command is a program with its arguments.
type Command struct {
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

func (c Command) line() []string { return slices.Concat(c.Command, c.Args) }

// A Parameter is one that a plugin announces (CMP-11).
type Parameter = hub.PluginAnnouncement

// A Definition is a plugin as its operator has declared it.
type Definition struct {
	render.InstalledPlugin
	File             string // that declares it
	Init             Command
	Generate         Command
	Find             Command
	Static           []Parameter
	Dynamic          Command
	PreserveFileMode bool
	GitCredentials   bool
	Writable         bool
	Hosts            []string
	Tenants          []hub.TenantID
	Env              []string // of the operator, NAME=value
	Public           []string // names of variables in Env that are no secrets
}

// document is plugin.yaml.
type document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type spec struct {
	Version          string     `json:"version,omitempty"`
	Init             Command    `json:"init,omitempty"`
	Generate         Command    `json:"generate"`
	Discover         discover   `json:"discover,omitempty"`
	Parameters       parameters `json:"parameters,omitempty"`
	PreserveFileMode bool       `json:"preserveFileMode,omitempty"`
	ProvideGitCreds  bool       `json:"provideGitCreds,omitempty"`
}

type discover struct {
	Find     find   `json:"find,omitempty"`
	FileName string `json:"fileName,omitempty"`
}

type find struct {
	Command
	Glob string `json:"glob,omitempty"`
}

type parameters struct {
	Static  []Parameter `json:"static,omitempty"`
	Dynamic Command     `json:"dynamic,omitempty"`
}

// Load reads all definitions of a directory, in the order of file names. A file
// is a ConfigManagementPlugin or a ConfigMap that holds some, as the ConfigMap
// of a sidecar does. An empty name means that there are none.
func Load(dir string) ([]Definition, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the plugins cannot be read: %s", err), dir, "correct render.plugins.folder")
	}
	var all []Definition
	var failed []error
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" {
			continue
		}
		name := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(name)
		if err == nil {
			var found []Definition
			found, err = Parse(name, text)
			all = append(all, found...)
		}
		failed = append(failed, err)
	}
	for i, d := range all {
		if n := slices.IndexFunc(all, func(o Definition) bool { return o.FullName() == d.FullName() }); n != i {
			failed = append(failed, fault.With(fault.New(fault.Invalid, "the plugin %s is declared in %s, too", d.FullName(), all[n].File), d.File, "give each plugin a name or a version of its own"))
		}
	}
	return all, errors.Join(failed...)
}

// Parse reads one file.
func Parse(name string, text []byte) ([]Definition, error) {
	var out []Definition
	for i, part := range bytes.Split(text, []byte("\n---")) {
		found, err := parseOne(name, part)
		if err != nil {
			return nil, fault.With(fault.Wrap(fault.Invalid, err, "document %d: %s", i+1, err), name, "")
		}
		out = append(out, found...)
	}
	return out, nil
}

func parseOne(name string, text []byte) ([]Definition, error) {
	var head struct {
		Kind string            `json:"kind"`
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(text, &head); err != nil {
		return nil, err
	}
	switch head.Kind {
	case "":
		return nil, nil
	case "ConfigMap":
		var out []Definition
		for _, key := range sorted(head.Data) {
			found, err := parseOne(name, []byte(head.Data[key]))
			if err != nil {
				return nil, fmt.Errorf("data.%s: %w", key, err)
			}
			out = append(out, found...)
		}
		return out, nil
	case kind:
		d, err := define(name, text)
		return []Definition{d}, err
	}
	return nil, fmt.Errorf("it is of kind %q, and must be a %s or a ConfigMap with one", head.Kind, kind)
}

func sorted(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

var validName = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9._]{0,98}[a-zA-Z0-9])?$`)

func define(file string, text []byte) (Definition, error) {
	var doc document
	if err := yaml.UnmarshalStrict(text, &doc); err != nil {
		return Definition{}, err
	}
	d := Definition{
		InstalledPlugin: render.InstalledPlugin{
			Name: doc.Metadata.Name, Version: doc.Spec.Version,
			FileName: doc.Spec.Discover.FileName, Glob: doc.Spec.Discover.Find.Glob,
			Command: len(doc.Spec.Discover.Find.line()) > 0,
		},
		File: file, Init: doc.Spec.Init, Generate: doc.Spec.Generate, Find: doc.Spec.Discover.Find.Command,
		Static: doc.Spec.Parameters.Static, Dynamic: doc.Spec.Parameters.Dynamic,
		PreserveFileMode: doc.Spec.PreserveFileMode, GitCredentials: doc.Spec.ProvideGitCreds,
	}
	if err := d.check(doc); err != nil {
		return Definition{}, err
	}
	if err := d.permit(doc.Metadata.Annotations); err != nil {
		return Definition{}, err
	}
	if err := d.checkPublic(); err != nil {
		return Definition{}, err
	}
	for i := range d.Static {
		if err := complete(&d.Static[i]); err != nil {
			return Definition{}, err
		}
	}
	d.Digest = d.digest(doc)
	return d, nil
}

func (d Definition) check(doc document) error {
	switch {
	case doc.APIVersion != apiVersion:
		return fmt.Errorf("apiVersion is %q, and must be %s", doc.APIVersion, apiVersion)
	case !validName.MatchString(d.FullName()) || len(d.Name) == 0:
		return fmt.Errorf("metadata.name with spec.version is %q: write at most 100 letters, digits, dots and dashes", d.FullName())
	case len(d.Generate.line()) == 0:
		return errors.New("spec.generate has no command")
	case d.FileName != "" && !doublestar.ValidatePattern(d.FileName):
		return fmt.Errorf("spec.discover.fileName: the pattern %q is malformed", d.FileName)
	case d.Glob != "" && !doublestar.ValidatePattern(d.Glob):
		return fmt.Errorf("spec.discover.find.glob: the pattern %q is malformed", d.Glob)
	}
	return nil
}

// permit reads the annotations.
func (d *Definition) permit(annotations map[string]string) error {
	for _, key := range sorted(annotations) {
		value := strings.TrimSpace(annotations[key])
		switch key {
		case annotationWritable:
			on, err := strconv.ParseBool(value)
			if err != nil {
				return fmt.Errorf("the annotation %s is %q, and must be true or false", key, value)
			}
			d.Writable = on
		case annotationHosts:
			d.Hosts = fields(value)
		case annotationTenants:
			for _, id := range fields(value) {
				d.Tenants = append(d.Tenants, hub.TenantID(id))
			}
		case annotationRevision:
			if value != "ignore" {
				return fmt.Errorf("the annotation %s is %q, and can only be ignore", key, value)
			}
			d.IgnoresRevision = true
		case annotationEnvFile:
			env, err := readEnv(value)
			if err != nil {
				return err
			}
			d.Env = env
		case annotationPublicEnv:
			d.Public = fields(value)
		default:
			if strings.HasPrefix(key, "capstan.dev/") {
				return fmt.Errorf("the annotation %s is unknown; those of a plugin are writable, hosts, tenants, env-file, public-env and revision", key)
			}
		}
	}
	return nil
}

// checkPublic refuses names that the file of variables does not have: a mistyped
// one would leave a value masked that nobody expects to be.
func (d Definition) checkPublic() error {
	for _, name := range d.Public {
		if !slices.ContainsFunc(d.Env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			return fmt.Errorf("the annotation %s names %q, which %s does not set", annotationPublicEnv, name, annotationEnvFile)
		}
	}
	return nil
}

// fields are the parts between commas or spaces.
func fields(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' })
}

// readEnv reads the operator's variables. No error contains a value.
func readEnv(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) {
			err = at.Err
		}
		return nil, fmt.Errorf("the annotation %s names %q, which cannot be read: %w", annotationEnvFile, file, err)
	}
	var out []string
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, _, ok := strings.Cut(line, "=")
		if !ok || name == "" || strings.ContainsAny(name, " \x00") {
			return nil, fmt.Errorf("%s, line %d is not of the form NAME=value", file, i+1)
		}
		out = append(out, line)
	}
	return out, nil
}

// complete fills in the defaults of a parameter and checks it.
func complete(p *Parameter) error {
	if p.CollectionType == "" {
		p.CollectionType = "string"
	}
	if p.ItemType == "" {
		p.ItemType = "string"
	}
	switch {
	case p.Name == "":
		return errors.New("a parameter has no name")
	case !slices.Contains([]string{"string", "array", "map"}, p.CollectionType):
		return fmt.Errorf("the parameter %q has the collectionType %q, and must have string, array or map", p.Name, p.CollectionType)
	case !slices.Contains([]string{"string", "number", "boolean"}, p.ItemType):
		return fmt.Errorf("the parameter %q has the itemType %q, and must have string, number or boolean", p.Name, p.ItemType)
	}
	return nil
}

// digest identifies all of a definition that may change what it makes.
func (d Definition) digest(doc document) string {
	text, err := json.Marshal(struct {
		Document document
		Env      []string
		Marks    bool // secrets in what it makes are marked, which earlier hubs did not
	}{doc, d.Env, true})
	if err != nil { // texts and switches always have a JSON form
		text = fmt.Appendf(nil, "%#v", doc)
	}
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// serves reports whether a tenant may use the plugin.
func (d Definition) serves(tenant hub.TenantID) bool {
	return len(d.Tenants) == 0 || slices.Contains(d.Tenants, tenant)
}
