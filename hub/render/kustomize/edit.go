package kustomize

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// edit applies the settings of the source to the text of a kustomization. Nil
// means that there is nothing to edit.
func edit(ctx context.Context, job render.Job, s hub.KustomizeSource, file string, text []byte) ([]byte, error) {
	if s.LabelIncludeTemplates && !s.LabelWithoutSelector {
		return nil, fault.New(fault.Invalid, "kustomize.labelIncludeTemplates needs kustomize.labelWithoutSelector")
	}
	var k map[string]any
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, nil
	}
	if k == nil {
		k = map[string]any{}
	}
	before, err := json.Marshal(k)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the kustomization cannot be edited")
	}
	if err := applySettings(ctx, job, k, s, path.Dir(file)); err != nil {
		return nil, err
	}
	after, err := json.Marshal(k)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the kustomization cannot be edited")
	}
	if bytes.Equal(before, after) {
		return nil, nil
	}
	out, err := yaml.JSONToYAML(after)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "the kustomization cannot be edited")
	}
	return out, nil
}

// applySettings changes the kustomization of a directory, in the order of
// KUST-02.
func applySettings(ctx context.Context, job render.Job, k map[string]any, s hub.KustomizeSource, dir string) error {
	setIfGiven(k, "namePrefix", s.NamePrefix)
	setIfGiven(k, "nameSuffix", s.NameSuffix)
	if err := setImages(k, s.Images); err != nil {
		return err
	}
	if err := setReplicas(k, s.Replicas); err != nil {
		return err
	}
	if err := addLabels(k, s); err != nil {
		return err
	}
	if err := addAnnotations(ctx, job, k, s); err != nil {
		return err
	}
	setIfGiven(k, "namespace", s.Namespace)
	if err := addPatches(k, s.Patches); err != nil {
		return err
	}
	return addComponents(ctx, job, k, s, dir)
}

func setIfGiven(k map[string]any, field, value string) {
	if value != "" {
		k[field] = value
	}
}

// put replaces the entry of a list that has the same name, or appends one.
func put(k map[string]any, field, name string, entry map[string]any) {
	entries := list(k[field])
	for i, e := range entries {
		if member(e, "name") == name {
			entries = slices.Clone(entries)
			entries[i] = entry
			k[field] = entries
			return
		}
	}
	k[field] = append(slices.Clone(entries), entry)
}

func setImages(k map[string]any, images []string) error {
	for _, text := range images {
		name, entry, err := image(text)
		if err != nil {
			return err
		}
		for _, old := range list(k["images"]) {
			if member(old, "name") == name {
				inheritStarred(entry, old)
			}
		}
		maps.DeleteFunc(entry, func(_ string, v any) bool { return v == "*" || v == nil })
		put(k, "images", name, entry)
	}
	return nil
}

// inheritStarred replaces "*", which leaves the kustomization's value, by that
// value.
func inheritStarred(entry map[string]any, old any) {
	for _, field := range [...]string{"newName", "newTag"} {
		if entry[field] == "*" {
			entry[field] = member(old, field)
		}
	}
}

// image reads [old=]new[:tag|@digest] (KUST-04).
func image(text string) (string, map[string]any, error) {
	bad := func() (string, map[string]any, error) {
		return "", nil, fault.With(fault.New(fault.Invalid, "%q is not an image to set", text), "kustomize.images", "write name:tag, name@digest or old=new:tag")
	}
	old, ref, renamed := strings.Cut(text, "=")
	if !renamed {
		ref = text
	}
	name, digest, hasDigest := strings.Cut(ref, "@")
	tag, hasTag := "", false
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name, tag, hasTag = name[:colon], name[colon+1:], true
	}
	entry := map[string]any{}
	if !renamed {
		old = name
	} else {
		entry["newName"] = name
	}
	if hasTag {
		entry["newTag"] = tag
	}
	if hasDigest {
		entry["digest"] = digest
	}
	if old == "" || name == "" || len(entry) == 0 || hasTag && tag == "" || hasDigest && digest == "" || strings.ContainsAny(text, " \t\n") {
		return bad()
	}
	entry["name"] = old
	return old, entry, nil
}

func setReplicas(k map[string]any, replicas []hub.KustomizeReplica) error {
	for _, r := range replicas {
		n, err := strconv.ParseInt(strings.Trim(string(r.Count), `" `), 10, 32)
		if err != nil || n < 0 || r.Name == "" {
			return fault.New(fault.Invalid, "kustomize.replicas: the count %s of %q is not a number of replicas", r.Count, r.Name)
		}
		put(k, "replicas", r.Name, map[string]any{"name": r.Name, "count": n})
	}
	return nil
}

func addLabels(k map[string]any, s hub.KustomizeSource) error {
	if len(s.CommonLabels) == 0 {
		return nil
	}
	if !s.LabelWithoutSelector {
		return addPairs(k, "commonLabels", s.CommonLabels, s.ForceCommonLabels, "forceCommonLabels")
	}
	entry := map[string]any{"pairs": pairs(s.CommonLabels)}
	if s.LabelIncludeTemplates {
		entry["includeTemplates"] = true
	}
	entries := slices.Clone(list(k["labels"]))
	for _, e := range entries {
		old, _ := member(e, "pairs").(map[string]any)
		for name := range s.CommonLabels {
			if _, there := old[name]; there && !s.ForceCommonLabels {
				return alreadyThere("label", name, "forceCommonLabels")
			}
			delete(old, name)
		}
	}
	k["labels"] = append(entries, entry)
	return nil
}

func addAnnotations(ctx context.Context, job render.Job, k map[string]any, s hub.KustomizeSource) error {
	if len(s.CommonAnnotations) == 0 {
		return nil
	}
	values := s.CommonAnnotations
	if s.CommonAnnotationsEnvsubst {
		values = maps.Clone(values)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			v, err := job.Substitute(ctx, values[name])
			if err != nil {
				return err
			}
			values[name] = v
		}
	}
	return addPairs(k, "commonAnnotations", values, s.ForceCommonAnnotations, "forceCommonAnnotations")
}

func addPairs(k map[string]any, field string, values map[string]string, force bool, forceField string) error {
	old, _ := k[field].(map[string]any)
	merged := maps.Clone(old)
	if merged == nil {
		merged = map[string]any{}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, there := merged[name]; there && !force {
			return alreadyThere(strings.TrimSuffix(strings.ToLower(strings.TrimPrefix(field, "common")), "s"), name, forceField)
		}
		merged[name] = values[name]
	}
	k[field] = merged
	return nil
}

func alreadyThere(what, name, force string) error {
	return fault.With(fault.New(fault.Invalid, "the %s %q is already set by the kustomization", what, name), "", "set kustomize."+force)
}

func pairs(values map[string]string) map[string]any {
	out := make(map[string]any, len(values))
	for name, v := range values {
		out[name] = v
	}
	return out
}

func addPatches(k map[string]any, patches []hub.KustomizePatch) error {
	for i, p := range patches {
		if (p.Path == "") == (p.Patch == "") {
			return fault.New(fault.Invalid, "kustomize.patches: patch %d needs either path or patch", i+1)
		}
		raw, err := json.Marshal(p)
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "kustomize.patches: patch %d cannot be read", i+1)
		}
		var entry map[string]any
		if err := json.Unmarshal(raw, &entry); err != nil {
			return fault.Wrap(fault.Invalid, err, "kustomize.patches: patch %d cannot be read", i+1)
		}
		k["patches"] = append(slices.Clone(list(k["patches"])), entry)
	}
	return nil
}

func addComponents(ctx context.Context, job render.Job, k map[string]any, s hub.KustomizeSource, dir string) error {
	for _, c := range s.Components {
		if render.RemoteBase(c) {
			return fault.New(fault.Invalid, "kustomize.components: an application names components of its own repository: %q", redact(c))
		}
		name, err := render.Within(dir, c)
		if err != nil {
			return fault.With(err, "kustomize.components", "")
		}
		kind, err := job.Files.Kind(ctx, name)
		if err != nil {
			return err
		}
		if kind != hub.InputDir {
			if s.IgnoreMissingComponents {
				continue
			}
			return fault.With(fault.New(fault.Invalid, "kustomize.components: there is no directory %q", c), "", "correct the path, or set kustomize.ignoreMissingComponents")
		}
		if !slices.Contains(list(k["components"]), any(c)) {
			k["components"] = append(slices.Clone(list(k["components"])), c)
		}
	}
	return nil
}
