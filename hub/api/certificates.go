package api

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
)

// ListCertificates answers the SSH servers that are known.
func (s *Server) ListCertificates(ctx context.Context, _ gen.ListCertificatesRequestObject) (gen.ListCertificatesResponseObject, error) {
	keys, err := s.Catalog.HostKeys(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListCertificates200JSONResponse{Items: collect(keys, presentHostKey)}, nil
}

// AddCertificates trusts SSH servers.
func (s *Server) AddCertificates(ctx context.Context, r gen.AddCertificatesRequestObject) (gen.AddCertificatesResponseObject, error) {
	keys, _, err := s.Catalog.PutHostKeys(ctx, callerOf(ctx), r.Body.KnownHosts, r.Body.Fingerprint, r.Body.Upsert, false)
	if err != nil {
		return nil, err
	}
	return gen.AddCertificates200JSONResponse{Items: collect(keys, presentHostKey)}, nil
}

// DeleteCertificates forgets the keys of an SSH server.
func (s *Server) DeleteCertificates(ctx context.Context, r gen.DeleteCertificatesRequestObject) (gen.DeleteCertificatesResponseObject, error) {
	gone, err := s.Catalog.DeleteHostKeys(ctx, callerOf(ctx), r.Params.ServerName, r.Params.SubType)
	if err != nil {
		return nil, err
	}
	return gen.DeleteCertificates200JSONResponse{Items: collect(gone, presentHostKey)}, nil
}

func presentHostKey(k hub.HostKey) gen.Certificate {
	return gen.Certificate{
		ServerName: k.Host, Type: gen.Ssh, SubType: k.Type, Data: k.Key, Fingerprint: k.Fingerprint(), BuiltIn: k.BuiltIn, CreatedAt: k.CreatedAt.UTC(),
	}
}

// deref is what an optional field holds, or the zero value.
func deref[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
