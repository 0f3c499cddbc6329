package playwright

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"
)

// An Act does for a spec what happens outside of the console, and returns what
// the spec wants to know of it.
type Act = func(ctx context.Context) (string, error)

// A TextAct is an act that gets the text which the spec sends with it.
type TextAct = func(ctx context.Context, text string) (string, error)

// Acts are served while a spec runs: function act of web/e2e/product.ts asks
// for them by name.
type Acts struct {
	server *httptest.Server
	token  string
}

// Serve serves acts by their names.
func Serve(acts map[string]Act) *Acts {
	all := map[string]TextAct{}
	for name, act := range acts {
		all[name] = func(ctx context.Context, _ string) (string, error) { return act(ctx) }
	}
	return ServeText(all)
}

// ServeText serves acts that get a text.
func ServeText(acts map[string]TextAct) *Acts {
	a := &Acts{token: rand.Text()}
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act, known := acts[strings.TrimPrefix(r.URL.Path, "/")]
		if r.Header.Get("Authorization") != "Bearer "+a.token || !known {
			http.NotFound(w, r)
			return
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := act(r.Context(), string(text))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	return a
}

// Env are the variables by which specs find the acts.
func (a *Acts) Env() []string {
	return []string{"CAPSTAN_ACTS=" + a.server.URL, "CAPSTAN_ACTS_TOKEN=" + a.token}
}

// InTurn is an act that sets one of two values after the other, and returns when
// that had been done, in milliseconds since 1970, as browsers count.
func InTurn(set func(ctx context.Context, value string) error, first, second string) Act {
	return func(ctx context.Context) (string, error) {
		if err := set(ctx, first); err != nil {
			return "", err
		}
		first, second = second, first
		return strconv.FormatInt(time.Now().UnixMilli(), 10), nil
	}
}

// Close ends the server.
func (a *Acts) Close() { a.server.Close() }
