package api

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// ListCertificates answers the SSH servers that are known, and the TLS
// certificates that are stored.
func (s *Server) ListCertificates(ctx context.Context, _ gen.ListCertificatesRequestObject) (gen.ListCertificatesResponseObject, error) {
	keys, err := s.Catalog.HostKeys(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	stored, err := s.Catalog.Authorities(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListCertificates200JSONResponse{Items: certificates(keys, stored)}, nil
}

// AddCertificates trusts SSH servers, or stores TLS certificates.
func (s *Server) AddCertificates(ctx context.Context, r gen.AddCertificatesRequestObject) (gen.AddCertificatesResponseObject, error) {
	var keys []hub.HostKey
	var stored []hub.Authority
	var err error
	switch {
	case (r.Body.KnownHosts == "") == (len(r.Body.Tls) == 0):
		err = fault.With(fault.New(fault.Invalid, "knownHosts and tls are not given alone"), "", "give one of the two: lines of known_hosts, or certificates of servers")
	case len(r.Body.Tls) == 0:
		keys, _, err = s.Catalog.PutHostKeys(ctx, callerOf(ctx), r.Body.KnownHosts, r.Body.Fingerprint, r.Body.Upsert, false)
	case r.Body.Fingerprint != "":
		err = fault.With(fault.New(fault.Invalid, "a fingerprint picks host keys, not TLS certificates"), "", "leave the fingerprint out")
	default:
		of := collect(r.Body.Tls, func(c apimodel.ServerCertificates) tenancy.AuthoritiesOf {
			return tenancy.AuthoritiesOf{Server: c.ServerName, PEM: c.Data}
		})
		stored, err = s.Catalog.PutAuthorities(ctx, callerOf(ctx), of, r.Body.Upsert)
	}
	if err != nil {
		return nil, err
	}
	return gen.AddCertificates200JSONResponse{Items: certificates(keys, stored)}, nil
}

// DeleteCertificates forgets the host keys and the TLS certificates of a
// server.
func (s *Server) DeleteCertificates(ctx context.Context, r gen.DeleteCertificatesRequestObject) (gen.DeleteCertificatesResponseObject, error) {
	keys, stored, err := s.Catalog.DeleteCertificates(ctx, callerOf(ctx), r.Params.ServerName, string(r.Params.Type), r.Params.SubType)
	if err != nil {
		return nil, err
	}
	return gen.DeleteCertificates200JSONResponse{Items: certificates(keys, stored)}, nil
}

func certificates(keys []hub.HostKey, stored []hub.Authority) []apimodel.Certificate {
	return append(collect(keys, presentHostKey), collect(stored, presentAuthority)...)
}

func presentHostKey(k hub.HostKey) apimodel.Certificate {
	return apimodel.Certificate{
		ServerName: k.Host, Type: apimodel.CertificateTypeSsh, SubType: k.Type, Data: k.Key, Fingerprint: k.Fingerprint(), BuiltIn: k.BuiltIn, CreatedAt: k.CreatedAt.UTC(),
	}
}

func presentAuthority(a hub.Authority) apimodel.Certificate {
	return apimodel.Certificate{
		ServerName: a.Server, Type: apimodel.CertificateTypeHttps, SubType: a.KeyType(), Data: a.PEM(), Info: a.Cert.Subject.String(), Fingerprint: a.Fingerprint(),
		ExpiresAt: a.Cert.NotAfter.UTC(),
	}
}

// deref is the value of an optional field, or the zero value.
func deref[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}
