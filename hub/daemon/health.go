package daemon

import (
	"context"
	"net/http"

	"github.com/capstan-cd/capstan/shared/fault"
)

// wanted reports whether this replica accepts requests.
func (p *parts) wanted(context.Context) error {
	if p.stopping.Load() {
		return fault.With(fault.New(fault.Offline, "this replica of the hub is about to stop"), "", "another one answers")
	}
	return nil
}

// leaving sends clients of a replica that stops elsewhere.
func (p *parts) leaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.stopping.Load() && r.ProtoMajor == 1 && r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
