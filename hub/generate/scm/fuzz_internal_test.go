package scm

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
)

// FuzzPages feeds answers of hosts to what reads pages: there is no panic, and
// what is stored can be read again.
func FuzzPages(f *testing.F) {
	for _, seed := range []string{
		`[{"id":1,"name":"shop","owner":{"login":"acme"},"topics":null}]`, `null`, `[]`, `{}`, `{"values":[],"isLastPage":false,"nextPageStart":-1}`,
		`{"values":[{"uuid":"x"}],"next":"https://x/?page=2","size":-1}`, `{"count":1,"value":[{"id":"x"}]}`, `{"values":null,"next":"%zz"}`, `[null]`,
	} {
		f.Add([]byte(seed), `<https://x>; rel="next"`, "-1")
	}
	f.Fuzz(func(t *testing.T, body []byte, link, total string) {
		h := http.Header{"Link": {link}, "X-Total": {total}, "X-Ms-Continuationtoken": {total}}
		query := url.Values{"per_page": {"100"}, "page": {total}, "$skip": {total}}
		readPage(t, numbered("per_page", "X-Total", func(r gitHubRepository) string { return number(r.ID) }), query, body, h)
		readPage(t, inBody(func(r bitbucketRepository) string { return r.UUID }), query, body, h)
		readPage(t, started(func(r serverRepository) string { return number(r.ID) }), query, body, h)
		readPage(t, counted(func(r azureRepository) string { return r.ID }, continued), query, body, h)
		readPage(t, counted(func(p azurePull) string { return number(p.ID) }, skipped), query, body, h)
	})
}

func readPage[T any](t *testing.T, l lister[T], query url.Values, body []byte, h http.Header) {
	t.Helper()
	got, err := l.page(query, body, h)
	if err != nil {
		return
	}
	text, err := json.Marshal(got.items)
	if err != nil {
		t.Fatalf("%s cannot be stored: %v", body, err)
	}
	items, err := itemsOf[T](answer{pages: []page{{status: http.StatusOK, body: text}}})
	if err != nil || len(items) != len(got.items) {
		t.Fatalf("%s is stored as %s: %v", body, text, err)
	}
	if got.next != nil && got.next.Encode() == "" {
		t.Fatalf("%s: the next page cannot be told from none", body)
	}
}
