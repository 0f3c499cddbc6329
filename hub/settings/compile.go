package settings

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// Compiled is what agents act on of a tenant's settings.
type Compiled struct{ set *set }

// Compile reads all settings of a tenant. Keys of one kind win over the same
// field of the map form.
func Compile(all []hub.Setting) (*Compiled, error) {
	s, x := newSet(), catalogueIndex()
	type placed struct {
		place int
		hub.Setting
	}
	var known []placed
	for _, one := range all {
		if i, ok := x.find(one.Map, one.Key); ok {
			known = append(known, placed{i, one})
		}
	}
	// The map form comes before the single keys.
	slices.SortStableFunc(known, func(a, b placed) int { return cmp.Compare(a.place, b.place) })
	for _, one := range known {
		k := x.all[one.place]
		if err := k.read(s, strings.TrimPrefix(one.Key, k.Key), text{one.Value, 0}); err != nil {
			return nil, fault.With(err, Title(one.Map, one.Key), "")
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(s.kinds), func(a, b kind) int {
		return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.name, b.name))
	}) {
		s.out.Customizations = append(s.out.Customizations, s.kinds[k])
	}
	return &Compiled{s}, nil
}

// Body is the row of the desired log for a cluster, which people call by any
// of the names given. Equal settings give equal bytes.
func (c *Compiled) Body(version int64, names []string) ([]byte, error) {
	out := proto.CloneOf(c.set.out)
	out.Version = uint64(version)
	out.Exclusions = here(c.set.exclusions, names)
	out.Inclusions = here(c.set.inclusions, names)
	if len(out.GetInclusions()) == 0 && len(c.set.inclusions) > 0 {
		// Rules for other clusters alone include nothing here.
		out.Inclusions = []*linkv1.KindFilter{{Groups: []string{nothing}, Kinds: []string{nothing}}}
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	return body, nil
}

// ReplaceAllowed reports whether people may sync with Replace or Force (SYNC-08).
func (c *Compiled) ReplaceAllowed() bool { return !c.set.noReplace }

// nothing is the name of no group and no kind.
const nothing = "-"

// here returns the rules that count in a cluster.
func here(all []filter, names []string) (out []*linkv1.KindFilter) {
	for _, f := range all {
		match := len(f.clusters) == 0
		for _, pattern := range f.clusters {
			match = match || slices.ContainsFunc(names, func(name string) bool { return glob.Match(pattern, name) })
		}
		if match {
			out = append(out, f.KindFilter)
		}
	}
	return out
}
