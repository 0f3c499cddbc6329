package rbac

import (
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/glob"
)

// patterns are the objects that rules of one kind name, sorted by how they are
// found: a check costs the same for ten rules as for ten thousand, unless these
// have wildcards in the middle.
type patterns struct {
	all      bool                // "*"
	slash    bool                // "*/*"
	exact    map[string]struct{} // without wildcards
	prefixes affixes             // "shop/*"
	suffixes affixes             // "*/web", reversed
	project  map[string][]*line  // others with a literal project in front, by it
	rest     []*line             // all others

	touched map[string]struct{} // projects that a pattern names literally
	count   int
}

func (p *patterns) add(l *line) {
	p.count++
	pattern := l.Object
	if l.obj.re != nil {
		if l.Within != "" {
			p.inProject(l.Within, l)
			p.touch(l.Within)
			return
		}
		p.rest = append(p.rest, l)
		return
	}
	project, _, slash := strings.Cut(pattern, "/")
	literal := slash && glob.Literal(project)
	if literal {
		p.touch(project)
	}
	front := strings.TrimRight(pattern, "*")
	back := strings.TrimLeft(pattern, "*")
	switch {
	case front == "":
		p.all = true
	case pattern == "*/*":
		p.slash = true
	case glob.Literal(pattern):
		if p.exact == nil {
			p.exact = map[string]struct{}{}
		}
		p.exact[pattern] = struct{}{}
	case glob.Literal(front):
		p.prefixes.add(front)
	case glob.Literal(back):
		p.suffixes.add(reverse(back))
	case literal:
		p.inProject(project, l)
	default:
		p.rest = append(p.rest, l)
	}
}

func (p *patterns) inProject(project string, l *line) {
	if p.project == nil {
		p.project = map[string][]*line{}
	}
	p.project[project] = append(p.project[project], l)
}

func (p *patterns) touch(project string) {
	if p.touched == nil {
		p.touched = map[string]struct{}{}
	}
	p.touched[project] = struct{}{}
}

// ready ends the adding.
func (p *patterns) ready() {
	p.prefixes.sort()
	p.suffixes.sort()
}

func (p *patterns) match(object string) bool {
	if p.all {
		return true
	}
	if p.count == 0 {
		return false
	}
	slash := strings.IndexByte(object, '/')
	if p.slash && slash >= 0 {
		return true
	}
	if _, ok := p.exact[object]; ok || p.prefixes.begin(object) || p.suffixes.end(object) {
		return true
	}
	if len(p.project) > 0 {
		project := object
		if slash >= 0 {
			project = object[:slash]
		}
		for _, l := range p.project[project] {
			if l.on(object) {
				return true
			}
		}
	}
	for _, l := range p.rest {
		if l.on(object) {
			return true
		}
	}
	return false
}

// everywhere reports whether some pattern may reach into every project, also
// into one that is not there yet.
func (p *patterns) everywhere() bool {
	return p.all || p.slash || len(p.suffixes) > 0 || slices.ContainsFunc(p.rest, func(l *line) bool {
		return l.obj.re != nil || strings.HasPrefix(l.Object, "*/") || strings.HasPrefix(l.Object, "**") || strings.ContainsAny(l.Object, `[{\`)
	})
}

// touches reports whether some pattern could match an object of the project, or
// the project itself.
func (p *patterns) touches(project string) bool {
	if p.all || p.slash || len(p.suffixes) > 0 {
		return true
	}
	if _, ok := p.touched[project]; ok {
		return true
	}
	if _, ok := p.exact[project]; ok || p.prefixes.meet(project+"/") {
		return true
	}
	return slices.ContainsFunc(p.rest, func(l *line) bool {
		return l.obj.re != nil || glob.Match(l.Object, project) || reaches(l.Object, project+"/")
	})
}

// covers reports whether some pattern certainly matches all objects of the
// project.
func (p *patterns) covers(project string) bool {
	return p.all || p.slash || p.prefixes.begin(project+"/")
}

// reaches reports whether a glob may match some text that begins with prefix.
func reaches(pattern, prefix string) bool {
	if prefix == "" {
		return true
	}
	if pattern == "" {
		return false
	}
	switch pattern[0] {
	case '*', '[', '{', '\\':
		return true // the star may take the rest of the prefix; the others are not worked out
	case '?':
		return true // one character may have several bytes
	case prefix[0]:
		return reaches(pattern[1:], prefix[1:])
	}
	return false
}

// affixes are beginnings of texts, or reversed ends. Once sorted none is the
// beginning of another, so a binary search finds the one that fits.
type affixes []string

func (a *affixes) add(s string) { *a = append(*a, s) }

func (a *affixes) sort() {
	slices.Sort(*a)
	kept := (*a)[:0]
	for _, s := range *a {
		if len(kept) == 0 || !strings.HasPrefix(s, kept[len(kept)-1]) {
			kept = append(kept, s)
		}
	}
	*a = kept
}

// begin reports whether s begins with one of them.
func (a affixes) begin(s string) bool {
	low, high := 0, len(a)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if a[mid] <= s {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low > 0 && strings.HasPrefix(s, a[low-1])
}

// end reports whether s ends with one of them, which are reversed.
func (a affixes) end(s string) bool {
	low, high := 0, len(a)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if backwards(a[mid], s) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 || len(a[low-1]) > len(s) {
		return false
	}
	found := a[low-1]
	for i := range len(found) {
		if found[i] != s[len(s)-1-i] {
			return false
		}
	}
	return true
}

// backwards compares a reversed text with one that is not.
func backwards(reversed, s string) int {
	for i := range min(len(reversed), len(s)) {
		if c := int(reversed[i]) - int(s[len(s)-1-i]); c != 0 {
			return c
		}
	}
	return len(reversed) - len(s)
}

// meet reports whether one of them begins with s, or s with one of them.
func (a affixes) meet(s string) bool {
	if a.begin(s) {
		return true
	}
	i, _ := slices.BinarySearch(a, s)
	return i < len(a) && strings.HasPrefix(a[i], s)
}

// reverse turns the bytes of a text around.
func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}
