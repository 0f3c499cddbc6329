package settings

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/signature"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/diff"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A set is what has been read of a tenant's settings so far.
type set struct {
	out        *linkv1.Settings
	kinds      map[kind]*linkv1.Customization
	exclusions []filter
	inclusions []filter
	noReplace  bool // people may not sync with Replace or Force
	strict     bool // a person sets the value now
}

// A kind is what a customisation is about; both are globs.
type kind struct{ group, name string }

// A filter is a rule about kinds, for some clusters.
type filter struct {
	*linkv1.KindFilter
	clusters []string // globs; empty: all
}

func newSet() *set {
	return &set{out: &linkv1.Settings{}, kinds: map[kind]*linkv1.Customization{}}
}

func (s *set) of(k kind) *linkv1.Customization {
	c := s.kinds[k]
	if c == nil {
		c = &linkv1.Customization{Group: k.group, Kind: k.name}
		s.kinds[k] = c
	}
	return c
}

// all is the word for every kind in the keys of a ConfigMap, which can hold
// no star.
const all = "all"

// kindOf reads the end of a key: group_Kind, or Kind alone for the core group.
func kindOf(end string, everything bool) (kind, error) {
	if end == all && everything {
		return kind{"*", "*"}, nil
	}
	parts := strings.Split(end, "_")
	k := kind{name: parts[len(parts)-1]}
	if len(parts) == 2 {
		k.group = parts[0]
	}
	if len(parts) > 2 || k.name == "" || len(parts) == 2 && k.group == "" {
		return kind{}, fault.With(fault.New(fault.Invalid, "the end of the key, %q, names no kind", short(end)), "", "write it as group_Kind, or as Kind alone for the core group")
	}
	return k, nil
}

// slashed reads a key of the map form: group/Kind, or Kind alone.
func slashed(n node) (kind, error) {
	group, name, found := strings.Cut(n.Value, "/")
	if !found {
		group, name = "", n.Value
	}
	k := kind{group, name}
	for _, glob := range [...]string{k.group, k.name} {
		if _, err := path.Match(glob, ""); err != nil {
			return k, n.fail("%q is not a pattern", short(n.Value))
		}
	}
	if name == "" || strings.Contains(name, "/") {
		return k, n.fail("%q names no kind; write group/Kind", short(n.Value))
	}
	return k, nil
}

func (s *set) readExclusions(_ string, t text) (err error) {
	s.out.ExclusionsGiven = true
	s.exclusions, err = readFilters(t)
	return err
}

func (s *set) readInclusions(_ string, t text) (err error) {
	s.inclusions, err = readFilters(t)
	return err
}

func readFilters(t text) ([]filter, error) {
	root, err := t.yaml()
	if err != nil || root.empty() {
		return nil, err
	}
	items, err := root.list("the rules")
	if err != nil {
		return nil, err
	}
	out := make([]filter, len(items))
	for i, item := range items {
		f := filter{KindFilter: &linkv1.KindFilter{}}
		err := item.fields(map[string]func(node) error{
			"apiGroups": func(n node) (err error) { f.Groups, err = n.globs(); return err },
			"kinds":     func(n node) (err error) { f.Kinds, err = n.globs(); return err },
			"clusters":  func(n node) (err error) { f.clusters, err = n.globs(); return err },
		})
		if err != nil {
			return nil, err
		}
		if len(f.Groups)+len(f.Kinds) == 0 {
			return nil, item.fail("the rule names neither apiGroups nor kinds, and would mean every kind")
		}
		out[i] = f
	}
	return out, nil
}

// readAll reads the map form.
func (s *set) readAll(_ string, t text) error {
	root, err := t.yaml()
	if err != nil || root.empty() {
		return err
	}
	return root.each("the customisations", func(key, value node) error {
		k, err := slashed(key)
		if err != nil {
			return err
		}
		nested := func(read func(*linkv1.Customization, text) error) func(node) error {
			return func(n node) error {
				t, err := n.nested()
				if err != nil {
					return err
				}
				return read(s.of(k), t)
			}
		}
		return value.fields(map[string]func(node) error{
			"health.lua":             func(n node) (err error) { s.of(k).HealthLua, err = n.text(); return err },
			"health.lua.useOpenLibs": func(n node) (err error) { s.of(k).UseOpenLibs, err = n.truth(); return err },
			"actions":                nested(readActions),
			"ignoreDifferences":      nested(readIgnore),
			"ignoreResourceUpdates":  nested(readIgnoreUpdates),
			"knownTypeFields":        func(n node) (err error) { s.of(k).KnownTypeFields, err = n.types(); return err },
		})
	})
}

// split gives a reader of a key of its own for each kind.
func (s *set) split(end string, everything bool, t text, read func(*linkv1.Customization, text) error) error {
	k, err := kindOf(end, everything)
	if err != nil {
		return err
	}
	return read(s.of(k), t)
}

func (s *set) readHealth(end string, t text) error {
	return s.split(end, false, t, func(c *linkv1.Customization, t text) error {
		c.HealthLua = t.value
		return nil
	})
}

func (s *set) readOpenLibs(end string, t text) error {
	return s.split(end, false, t, func(c *linkv1.Customization, t text) (err error) {
		c.UseOpenLibs, err = t.truth()
		return err
	})
}

func (s *set) readActions(end string, t text) error { return s.split(end, false, t, readActions) }
func (s *set) readIgnore(end string, t text) error  { return s.split(end, true, t, readIgnore) }
func (s *set) readIgnoreUpdates(end string, t text) error {
	return s.split(end, true, t, readIgnoreUpdates)
}

func (s *set) readTypes(end string, t text) error {
	return s.split(end, false, t, func(c *linkv1.Customization, t text) error {
		root, err := t.yaml()
		if err == nil && !root.empty() {
			c.KnownTypeFields, err = root.types()
		}
		return err
	})
}

func readActions(c *linkv1.Customization, t text) error {
	root, err := t.yaml()
	if err != nil || root.empty() {
		return err
	}
	out := &linkv1.Actions{}
	err = root.fields(map[string]func(node) error{
		"discovery.lua":       func(n node) (err error) { out.DiscoveryLua, err = n.text(); return err },
		"mergeBuiltinActions": func(n node) (err error) { out.MergeBuiltin, err = n.truth(); return err },
		"definitions": func(n node) (err error) {
			items, err := n.list("definitions")
			if err != nil {
				return err
			}
			seen := map[string]bool{}
			for _, item := range items {
				d := &linkv1.ActionDefinition{}
				err := item.fields(map[string]func(node) error{
					"name":       func(n node) (err error) { d.Name, err = n.text(); return err },
					"action.lua": func(n node) (err error) { d.Lua, err = n.text(); return err },
				})
				switch {
				case err != nil:
					return err
				case d.GetName() == "" || d.GetLua() == "":
					return item.fail("an action needs name and action.lua")
				case seen[d.GetName()]:
					return item.fail("the action %q is there twice", short(d.GetName()))
				}
				seen[d.GetName()] = true
				out.Definitions = append(out.Definitions, d)
			}
			return nil
		},
	})
	c.Actions = out
	return err
}

func readIgnore(c *linkv1.Customization, t text) (err error) {
	c.IgnoreDifferences, err = readFields(t)
	return err
}

func readIgnoreUpdates(c *linkv1.Customization, t text) (err error) {
	c.IgnoreResourceUpdates, err = readFields(t)
	return err
}

func readFields(t text) (*linkv1.IgnoreFields, error) {
	root, err := t.yaml()
	if err != nil || root.empty() {
		return nil, err
	}
	out := &linkv1.IgnoreFields{}
	err = root.fields(map[string]func(node) error{
		"jsonPointers": func(n node) (err error) {
			out.JsonPointers, err = n.texts()
			return n.or(err, usable(diff.Rule{JSONPointers: out.GetJsonPointers()}))
		},
		"jqPathExpressions": func(n node) (err error) {
			out.Jq, err = n.texts()
			return n.or(err, usable(diff.Rule{JQ: out.GetJq()}))
		},
		"managedFieldsManagers": func(n node) (err error) { out.Managers, err = n.texts(); return err },
	})
	return out, err
}

// usable tries out what names fields.
func usable(r diff.Rule) error {
	r.Group, r.Kind = "*", "*"
	_, err := diff.NewIgnore([]diff.Rule{r})
	return err
}

func (s *set) readCompare(_ string, t text) error {
	root, err := t.yaml()
	if err != nil || root.empty() {
		return err
	}
	out := &linkv1.CompareOptions{}
	s.out.Compare = out
	return root.fields(map[string]func(node) error{
		"ignoreAggregatedRoles": func(n node) (err error) { out.IgnoreAggregatedRoles, err = n.truth(); return err },
		"ignoreResourceStatusField": func(n node) (err error) {
			if out.IgnoreStatus, err = n.text(); err == nil {
				err = n.among(out.GetIgnoreStatus(), "all", "crd", "none", "off", "false")
			}
			if out.GetIgnoreStatus() == "off" || out.GetIgnoreStatus() == "false" {
				out.IgnoreStatus = "none" // Argo CD's older words
			}
			return err
		},
		"ignoreDifferencesOnResourceUpdates": func(n node) error {
			v, err := n.truth()
			out.DifferencesOnUpdates = !v
			return err
		},
	})
}

func (s *set) readIgnoreEnabled(_ string, t text) error {
	v, err := t.truth()
	s.out.IgnoreResourceUpdatesDisabled = !v
	return err
}

func (s *set) readLabels(_ string, t text) error {
	s.out.CustomLabels = t.commas()
	return nil
}

func (s *set) readMask(_ string, t text) error {
	s.out.SensitiveAnnotations = t.commas()
	return nil
}

func (s *set) readTracking(_ string, t text) error {
	v := strings.TrimSpace(t.value)
	s.out.TrackingMethod = v
	return node{}.among(v, "", "annotation", "annotation+label", "label")
}

func (s *set) readLabelKey(_ string, t text) error {
	s.out.InstanceLabelKey = strings.TrimSpace(t.value)
	if s.out.GetInstanceLabelKey() != "" && !labelKey.MatchString(s.out.GetInstanceLabelKey()) {
		return fault.With(fault.New(fault.Invalid, "%q cannot be the key of a label", short(t.value)), "", "write it like app.kubernetes.io/instance")
	}
	return nil
}

var labelKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)

func (s *set) readInstallation(_ string, t text) error {
	s.out.InstallationId = strings.TrimSpace(t.value)
	return nil
}

func (s *set) readCertificates(key string, t text) error {
	if !s.strict {
		return nil
	}
	server, err := hub.AuthorityServer(key)
	if err == nil && server != key {
		err = fault.With(fault.New(fault.Invalid, "the name of the host has upper-case letters"), "", "name the key "+short(server))
	}
	if err == nil {
		_, err = hub.ParseAuthorities(server, t.value)
	}
	return err
}

// readPublicKey checks a key and the name that it is stored under: an id that is
// another's would let people believe that they trust that one.
func (s *set) readPublicKey(key string, t text) error {
	if !s.strict {
		return nil // one that cannot be read is trusted by nobody
	}
	keys, err := signature.ParseKeys(t.value)
	if err != nil {
		return err
	}
	if len(keys) != 1 {
		return fault.With(fault.New(fault.Invalid, "it holds %d keys", len(keys)), "", "store each key under an id of its own")
	}
	if key != keys[0].ID {
		return fault.With(fault.New(fault.Invalid, "it is the key %s, not %s", keys[0].ID, short(key)), "", "name the entry "+keys[0].ID)
	}
	return nil
}

func (s *set) readKustomize(_ string, t text) error {
	if !s.strict {
		return nil // a build says what is wrong with a value that an earlier release has stored
	}
	_, err := hub.ParseKustomizeOptions(t.value)
	return err
}

func (s *set) readKustomizeVersions(_ string, t text) error {
	_, err := hub.ParseKustomizeVersions(t.value)
	return err
}

// readAny accepts any value of a key without effect.
func (s *set) readAny(string, text) error { return nil }

func (s *set) readSchemes(_ string, t text) error {
	for _, scheme := range hub.ValueSchemes(t.value) {
		if strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" {
			return fault.With(fault.New(fault.Invalid, "%q is no scheme of an address", scheme), "", "write it like http,https")
		}
	}
	return nil
}

func (s *set) readReplace(_ string, t text) error {
	v, err := t.truth()
	s.noReplace = !v
	return err
}

// truth reads a switch as Argo CD does.
func (t text) truth() (bool, error) {
	v, err := strconv.ParseBool(strings.TrimSpace(t.value))
	if err != nil {
		return false, fault.With(fault.New(fault.Invalid, "%q is neither true nor false", short(t.value)), "", "")
	}
	return v, nil
}

func (t text) commas() (out []string) {
	for _, v := range strings.Split(t.value, ",") {
		if v = strings.TrimSpace(v); v != "" {
			out = append(out, v)
		}
	}
	return out
}

// readSecret accepts any value: stored secrets are not known here.
func (s *set) readSecret(string, text) error { return nil }
