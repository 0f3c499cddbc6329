package scm

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A pageOf is one page of a list as a host sends it.
type pageOf[T any] struct {
	items []T
	next  url.Values // query of the next page; nil: it is the last
	total int        // items of all pages; negative: the host does not say
	full  bool       // a further page can follow later although this one stays as it is
}

// A lister says how a host sends a list.
type lister[T any] struct {
	// page reads a page that was asked for with the query.
	page func(query url.Values, body []byte, h http.Header) (pageOf[T], error)
	// id is what distinguishes an item from all others.
	id func(T) string
}

// tries is how often a list is read that changes while it is read.
const tries = 3

// list returns all items of a list. Items move to another page if one is
// deleted while the list is read, and can be missed. A list of several pages
// therefore counts if it has all items that it had before, or if it is read
// twice with the same items.
func list[T any](ctx context.Context, c *caller, a ask, l lister[T]) ([]T, error) {
	found, err := c.answers.find(ctx, c, a, func(ctx context.Context, known answer) (answer, error) {
		former, err := itemsOf[T](known)
		if err != nil {
			return answer{}, err
		}
		before := sortedIDs(former, l.id)
		var ids []string
		for range tries {
			read, err := walk(ctx, c, a, l, known)
			if err != nil || read.pages[0].status != http.StatusOK {
				return read, err
			}
			items, err := itemsOf[T](read)
			if err != nil {
				return answer{}, err
			}
			now := sortedIDs(items, l.id)
			if len(now) > 0 && now[0] == "" {
				return answer{}, c.garbled()
			}
			whole := len(slices.Compact(slices.Clone(now))) == len(items) && (read.total() < 0 || read.total() == len(items))
			if whole && (len(read.pages) == 1 || slices.Equal(now, ids) || len(before) > 0 && containsAll(now, before)) {
				return read, nil
			}
			ids, known = now, read
		}
		return answer{}, fault.With(fault.New(fault.Offline, "a list of %s changes while it is read, or is not complete", c.base.Host), "", "it is retried automatically")
	})
	if err != nil {
		return nil, err
	}
	if p := found.pages[0]; p.status == http.StatusNotFound {
		return nil, notFound{p.message}
	}
	return itemsOf[T](found)
}

// walk reads all pages of a list, with the pages that are known.
func walk[T any](ctx context.Context, c *caller, a ask, l lister[T], known answer) (answer, error) {
	out := answer{began: c.answers.now()}
	for n := 0; ; n++ {
		if n == mostPages {
			return answer{}, fault.With(fault.New(fault.Exceeded, "a list of %s has more than %d pages", c.base.Host, mostPages), "", "narrow what the generator lists")
		}
		var former page
		if n < len(known.pages) {
			former = known.pages[n]
		}
		query := a.query
		if former.query != query.Encode() {
			former = page{}
		}
		p, fetched, err := c.call(ctx, a, former, func(body []byte, h http.Header) (page, error) {
			got, err := l.page(query, body, h)
			if err != nil {
				return page{}, err
			}
			reduced, err := json.Marshal(got.items)
			return page{body: reduced, query: query.Encode(), next: got.next.Encode(), total: got.total, volatile: got.next == nil && got.full}, err
		})
		if err != nil {
			return answer{}, err
		}
		if n == 0 {
			out.fetched = fetched
		}
		out.pages = append(out.pages, p)
		switch {
		case p.status == http.StatusNotFound && n > 0:
			return answer{}, c.garbled()
		case p.next == "":
			return out, nil
		}
		if a.query, err = url.ParseQuery(p.next); err != nil {
			return answer{}, fmt.Errorf("query of the next page: %w", err)
		}
	}
}

// itemsOf are the items of all pages.
func itemsOf[T any](a answer) ([]T, error) {
	var out []T
	for _, p := range a.pages {
		var items []T
		if p.status != http.StatusOK {
			continue
		}
		if err := json.Unmarshal(p.body, &items); err != nil {
			return nil, fmt.Errorf("decode a stored answer: %w", err)
		}
		out = append(out, items...)
	}
	return out, nil
}

// total is the number of items that the host names last; negative: it names
// none.
func (w answer) total() int { return w.pages[len(w.pages)-1].total }

func sortedIDs[T any](items []T, id func(T) string) []string {
	var out []string
	for _, item := range items {
		out = append(out, id(item))
	}
	slices.Sort(out)
	return out
}

// containsAll reports whether sorted ids contain all others.
func containsAll(ids, others []string) bool {
	return !slices.ContainsFunc(others, func(o string) bool {
		_, there := slices.BinarySearch(ids, o)
		return !there
	})
}

// numbered is a list with pages by number and the header Link: that of GitHub,
// GitLab and Gitea. size is the name of the parameter for the size of a page.
func numbered[T any](size, total string, id func(T) string) lister[T] {
	return lister[T]{id: id, page: func(query url.Values, body []byte, h http.Header) (pageOf[T], error) {
		got := pageOf[T]{total: -1}
		if err := decode(body, &got.items); err != nil {
			return got, err
		}
		most, _ := strconv.Atoi(query.Get(size))
		got.full = len(got.items) >= most
		if n, err := strconv.Atoi(h.Get(total)); err == nil && total != "" {
			got.total = n
		}
		if hasNext(h) {
			n, _ := strconv.Atoi(query.Get("page"))
			got.next = cloned(query)
			got.next.Set("page", strconv.Itoa(max(n, 1)+1))
		}
		return got, nil
	}}
}

func cloned(v url.Values) url.Values {
	out := make(url.Values, len(v))
	for name, values := range v {
		out[name] = slices.Clone(values)
	}
	return out
}

// pathOf joins names as one path, each escaped.
func pathOf(names ...string) string {
	out := ""
	for _, n := range names {
		out += "/" + url.PathEscape(n)
	}
	return out
}

// filePath is the path of a file below another one, each folder escaped.
func filePath(path string) string {
	return pathOf(strings.Split(strings.Trim(path, "/"), "/")...)
}
