package trust

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
func (k *Keys) ListCertificates(ctx context.Context, _ gen.ListCertificatesRequestObject) (gen.ListCertificatesResponseObject, error) {
	keys, err := k.catalog.HostKeys(ctx, k.caller(ctx))
	if err != nil {
		return nil, err
	}
	stored, err := k.catalog.Authorities(ctx, k.caller(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListCertificates200JSONResponse{Items: certificates(keys, stored)}, nil
}

// AddCertificates trusts SSH servers, or stores TLS certificates.
func (k *Keys) AddCertificates(ctx context.Context, r gen.AddCertificatesRequestObject) (gen.AddCertificatesResponseObject, error) {
	var keys []hub.HostKey
	var stored []hub.Authority
	var err error
	switch {
	case (r.Body.KnownHosts == "") == (len(r.Body.Tls) == 0):
		err = fault.With(fault.New(fault.Invalid, "knownHosts and tls are not given alone"), "", "give one of the two: lines of known_hosts, or certificates of servers")
	case len(r.Body.Tls) == 0:
		keys, _, err = k.catalog.PutHostKeys(ctx, k.caller(ctx), r.Body.KnownHosts, r.Body.Fingerprint, r.Body.Upsert, false)
	case r.Body.Fingerprint != "":
		err = fault.With(fault.New(fault.Invalid, "a fingerprint picks host keys, not TLS certificates"), "", "leave the fingerprint out")
	default:
		of := collect(r.Body.Tls, func(c apimodel.ServerCertificates) tenancy.AuthoritiesOf {
			return tenancy.AuthoritiesOf{Server: c.ServerName, PEM: c.Data}
		})
		stored, err = k.catalog.PutAuthorities(ctx, k.caller(ctx), of, r.Body.Upsert)
	}
	if err != nil {
		return nil, err
	}
	return gen.AddCertificates200JSONResponse{Items: certificates(keys, stored)}, nil
}

// DeleteCertificates forgets the host keys and the TLS certificates of a
// server.
func (k *Keys) DeleteCertificates(ctx context.Context, r gen.DeleteCertificatesRequestObject) (gen.DeleteCertificatesResponseObject, error) {
	keys, stored, err := k.catalog.DeleteCertificates(ctx, k.caller(ctx), r.Params.ServerName, string(r.Params.Type), r.Params.SubType)
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
