// Package diff decides whether a live object still is what we applied. It
// compares by ownership: from the response of an apply it stores which fields
// are ours and the hash of their values as the API server stored them. Live
// state differs only if the same projection of it differs. Defaults, fields of
// others and the order of keyed lists are ignored, and no schema and no request
// is needed. It does no I/O and changes no object. The agent calls it for every
// event of a managed object, so it is fast. What it cannot decide it returns as
// void (Verdict.Void).
package diff

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A Hash is a SHA-256 sum. As text it is base64.
type Hash [32]byte

// MarshalText writes base64 without padding.
func (h Hash) MarshalText() ([]byte, error) {
	return base64.RawStdEncoding.AppendEncode(nil, h[:]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) error {
	b, err := base64.RawStdEncoding.DecodeString(string(text))
	if err != nil || len(b) != len(h) {
		return fault.New(fault.Invalid, "a stored hash is not %d bytes of base64", len(h))
	}
	copy(h[:], b)
	return nil
}

// Owned is what is stored of one applied object.
type Owned struct {
	Manager    string `json:"m"`
	APIVersion string `json:"v"`           // in which it was applied; live must be read in the same
	UID        string `json:"u,omitempty"` // empty for the dry run of an object that did not exist
	Digest     Hash   `json:"d"`           // of the desired object
	Fields     []byte `json:"f"`           // our fields, as fieldsV1 JSON
	Hash       Hash   `json:"h"`           // of the values of these fields
	Leaves     []byte `json:"l"`           // eight bytes of hash for each field, to name those that differ
	Rules      uint64 `json:"r,omitempty"` // hash of the ignore rules that were applied; 0: none
}

// A Result is that of one comparison.
type Result struct {
	Equal bool
	// Fields are the paths that differ, such as spec.replicas or
	// spec.template.spec.containers[name=web].image; at most 50.
	Fields []string
	// Void is why the record cannot be used: another apiVersion, another object
	// of that name, or changed ignore rules. A dry run makes a new record.
	// Equal is false then.
	Void string

	paths []path
}

// A Comparer hashes with a key, so that short secrets cannot be guessed from a
// stolen record. The zero value has no key.
type Comparer struct{ Key []byte }

// Own makes the record of an object from the response of an apply, or of its
// dry run, by the manager that applied. digest names the desired object.
func (c Comparer) Own(response *manifest.Object, manager string, digest [32]byte, ignore *Ignore) (Owned, error) {
	fields, err := managedFields(response, manager)
	if err != nil {
		return Owned{}, err
	}
	return c.record(response, manager, digest, fields, ignore)
}

// Replaced makes the record of an object that was written without server-side
// apply: every field of the desired object is ours.
func (c Comparer) Replaced(desired, response *manifest.Object, manager string, digest [32]byte, ignore *Ignore) (Owned, error) {
	return c.record(response, manager, digest, fieldsOf(desired), ignore)
}

func (c Comparer) record(response *manifest.Object, manager string, digest [32]byte, fields []byte, ignore *Ignore) (Owned, error) {
	tree, err := parseFields(fields)
	if err != nil {
		return Owned{}, err
	}
	rules := ignore.forObject(manifest.KeyOf(response))
	seen, err := rules.strip(response)
	if err != nil {
		return Owned{}, err
	}
	o := Owned{
		Manager: manager, APIVersion: response.GetAPIVersion(), UID: string(response.GetUID()),
		Digest: digest, Fields: fields, Rules: rules.hash(),
	}
	p, err := c.project(tree, seen)
	if err != nil {
		return Owned{}, err
	}
	o.Hash, o.Leaves = p.hash(), p.leaves()
	return o, nil
}

// Compare compares a live object with its record. If ignore has rules by
// manager and live still has its managedFields, they are read from there.
func (c Comparer) Compare(o Owned, live *manifest.Object, ignore *Ignore) (Result, error) {
	return c.CompareWith(o, live, ignore, nil)
}

// CompareWith is Compare for a live object whose managedFields were removed
// before; others are those of the managers that ignore rules name.
func (c Comparer) CompareWith(o Owned, live *manifest.Object, ignore *Ignore, others []Managed) (Result, error) {
	if why := o.void(live); why != "" {
		return Result{Void: why}, nil
	}
	rules := ignore.forObject(manifest.KeyOf(live))
	if rules.hash() != o.Rules {
		return Result{Void: "the rules for ignored differences have changed"}, nil
	}
	tree, err := parseFields(o.Fields)
	if err != nil {
		return Result{}, err
	}
	seen, err := rules.strip(live)
	if err != nil {
		return Result{}, err
	}
	p, err := c.project(tree, seen)
	if err != nil {
		return Result{}, err
	}
	if p.hash() == o.Hash {
		return Result{Equal: true}, nil
	}
	differ := differing(tree, o.Leaves, p.leaves())
	if others == nil && len(rules.managers) > 0 {
		others = ManagedBy(live, rules.managers)
	}
	if differ, err = rules.withoutManaged(differ, others); err != nil {
		return Result{}, err
	}
	return resultOf(differ), nil
}

func (o Owned) void(live *manifest.Object) string {
	switch {
	case live.GetAPIVersion() != o.APIVersion:
		return fmt.Sprintf("the record was made in %s, live is %s", o.APIVersion, live.GetAPIVersion())
	case o.UID != "" && string(live.GetUID()) != o.UID:
		return "live is another object of the same name"
	}
	return ""
}

func resultOf(differ []path) Result {
	const most = 50
	v := Result{Equal: len(differ) == 0, paths: differ}
	for i, p := range differ {
		if i == most {
			break
		}
		v.Fields = append(v.Fields, p.String())
	}
	return v
}

// Writers returns the managers of the fields that differ, except own and those
// that only write a status. A missing field has no manager.
func (v Result) Writers(live *manifest.Object, own string) []string {
	var out []string
	for _, entry := range managedEntries(live) {
		name, _ := entry["manager"].(string)
		sub, _ := entry["subresource"].(string)
		fields, ok := entry["fieldsV1"].(map[string]any)
		if !ok || sub == "status" || name == own && entry["operation"] == "Apply" || slices.Contains(out, name) {
			continue
		}
		text, err := manifest.AppendCanonical(nil, fields)
		if err != nil {
			continue // an object that came as JSON has only values that can be written
		}
		if tree, err := parseFields(text); err == nil && slices.ContainsFunc(v.paths, tree.covers) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Own is Comparer.Own without a key.
func Own(response *manifest.Object, manager string, digest [32]byte, ignore *Ignore) (Owned, error) {
	return Comparer{}.Own(response, manager, digest, ignore)
}

// Expect is the record of the response of an apply's dry run.
func Expect(response *manifest.Object, manager string, digest [32]byte, ignore *Ignore) (Owned, error) {
	return Comparer{}.Own(response, manager, digest, ignore)
}

// Compare is Comparer.Compare without a key.
func (o Owned) Compare(live *manifest.Object, ignore *Ignore) (Result, error) {
	return Comparer{}.Compare(o, live, ignore)
}

// project writes the values of all leaves of the tree in an object.
func (c Comparer) project(tree *field, object map[string]any) (projection, error) {
	p := projection{key: c.Key, walker: walker{buf: make([]byte, 0, 4096)}}
	p.buf = append(p.buf, c.Key...)
	err := p.walk(tree, []any{object})
	return p, err
}

// A projection is the values of all owned fields of one object, after the key.
type projection struct {
	walker
	key []byte
}

func (p projection) hash() Hash { return sha256.Sum256(p.buf) }

// leaves hashes each leaf to eight bytes.
func (p projection) leaves() []byte {
	out := make([]byte, 0, 8*len(p.ends))
	start := len(p.key)
	one := bytes.Clone(p.key)
	for _, end := range p.ends {
		one = append(one[:len(p.key)], p.buf[start:end]...)
		out = binary.BigEndian.AppendUint64(out, short(one))
		start = end
	}
	return out
}

func short(b []byte) uint64 {
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:8])
}

// differing returns the paths of the leaves whose hashes differ.
func differing(tree *field, was, is []byte) []path {
	var out []path
	i := 0
	tree.leaves(nil, func(p path) {
		at := 8 * i
		if at+8 > len(was) || at+8 > len(is) || !bytes.Equal(was[at:at+8], is[at:at+8]) {
			out = append(out, append(path(nil), p...))
		}
		i++
	})
	return out
}
