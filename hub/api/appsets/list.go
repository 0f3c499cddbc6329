package appsets

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/labels"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

const defaultPage = 100

// A list is what a request wants of the sets that its caller may see.
type list struct {
	filter     catalog.SetFilter
	namespaces []string
	health     []string
	text       string // lower case
	labels     []hub.LabelTerm
	after      hub.ApplicationKey // of the page before
	limit      int
}

// listOf reads the parameters of a list. Those of Argo CD stand beside ours.
func listOf(p apimodel.ListApplicationSetsParams) (list, error) {
	l := list{
		filter:     catalog.SetFilter{Projects: append(slices.Clone(p.Project), p.Projects...)},
		namespaces: slices.Clone(p.Namespace), text: strings.ToLower(p.Q), limit: p.Limit,
	}
	if p.AppsetNamespace != "" {
		l.namespaces = append(l.namespaces, p.AppsetNamespace)
	}
	if l.limit == 0 {
		l.limit = defaultPage
	}
	for _, h := range p.Health {
		l.health = append(l.health, string(h))
	}
	for _, selector := range []string{p.Labels, p.Selector} {
		terms, err := labels.Parse(selector)
		if err != nil {
			return l, err
		}
		l.labels = append(l.labels, terms...)
	}
	var err error
	l.after, err = parseCursor(p.Cursor)
	return l, err
}

// page picks the sets of a page, of all in order of namespace and name. The
// cursor is that of the next page; empty: this is the last.
func (l list) page(all []hub.ApplicationSet) (page []hub.ApplicationSet, total int, next string) {
	all = slices.DeleteFunc(slices.Clone(all), func(s hub.ApplicationSet) bool { return !l.holds(s) })
	slices.SortFunc(all, func(a, b hub.ApplicationSet) int { return compare(keyOf(a), keyOf(b)) })
	total = len(all)
	if l.after.Name != "" {
		all = slices.DeleteFunc(all, func(s hub.ApplicationSet) bool { return compare(keyOf(s), l.after) <= 0 })
	}
	if len(all) <= l.limit {
		return all, total, ""
	}
	page = all[:l.limit]
	return page, total, cursorOf(keyOf(page[l.limit-1]))
}

func (l list) holds(s hub.ApplicationSet) bool {
	if len(l.namespaces) > 0 && !slices.Contains(l.namespaces, s.Namespace) || len(l.health) > 0 && !slices.Contains(l.health, string(healthOf(s))) {
		return false
	}
	if !strings.Contains(strings.ToLower(s.Name), l.text) {
		return false
	}
	for _, t := range l.labels {
		value, there := s.Labels[t.Key]
		if held := there && (t.Values == nil || slices.Contains(t.Values, value)); held == t.Not {
			return false
		}
	}
	return true
}

func keyOf(s hub.ApplicationSet) hub.ApplicationKey {
	return hub.ApplicationKey{Namespace: s.Namespace, Name: s.Name}
}

func compare(a, b hub.ApplicationKey) int {
	if n := strings.Compare(a.Namespace, b.Namespace); n != 0 {
		return n
	}
	return strings.Compare(a.Name, b.Name)
}

func cursorOf(k hub.ApplicationKey) string {
	return base64.RawURLEncoding.EncodeToString([]byte(k.Namespace + "/" + k.Name))
}

func parseCursor(text string) (k hub.ApplicationKey, err error) {
	if text == "" {
		return k, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		k.Namespace, k.Name, _ = strings.Cut(string(b), "/")
	}
	if k.Name == "" {
		return k, fault.With(fault.New(fault.Invalid, "the cursor is not of this list"), "parameter cursor", "begin again without a cursor")
	}
	return k, nil
}
