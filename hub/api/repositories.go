package api

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Prober tries to reach a repository. The error is a sentence for its owner.
type Prober func(ctx context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) error

// repositoryOf reads the settings of a repository. Without any part of a
// credential there is none.
func repositoryOf(b *apimodel.RepositoryInput) (hub.Repository, *hub.Credential) {
	repo := hub.Repository{
		URL: b.Url, Type: hub.RepositoryKind(b.Type), Name: b.Name, Project: b.Project, Insecure: b.Insecure, PlainHTTP: b.InsecureOCIForceHttp, Username: deref(b.Username),
		GitOptions: hub.GitOptions{Proxy: b.Proxy, NoProxy: b.NoProxy, LFS: b.EnableLfs, Depth: b.Depth},
	}
	cred := hub.Credential{
		Password: deref(b.Password), BearerToken: deref(b.BearerToken), SSHPrivateKey: deref(b.SshPrivateKey),
		TLSClientCert: deref(b.TlsClientCertData), TLSClientKey: deref(b.TlsClientCertKey),
	}
	cred.GoogleKey = deref(b.GcpServiceAccountKey)
	cred.GitHubApp = hub.GitHubApp{
		ID: b.GithubAppID, InstallationID: b.GithubAppInstallationID, PrivateKey: deref(b.GithubAppPrivateKey), BaseURL: b.GithubAppEnterpriseBaseUrl,
	}
	cred.Azure = hub.AzureIdentity{
		Workload: b.UseAzureWorkloadIdentity, ClientID: b.AzureServicePrincipalClientId, ClientSecret: deref(b.AzureServicePrincipalClientSecret),
		TenantID: b.AzureServicePrincipalTenantId, Endpoint: b.AzureActiveDirectoryEndpoint,
	}
	// An empty password removes what is stored.
	if cred.Empty() && b.Password == nil && b.SshPrivateKey == nil && b.TlsClientCertData == nil && b.TlsClientCertKey == nil && b.BearerToken == nil {
		return repo, nil
	}
	cred.Username = repo.Username
	return repo, &cred
}

// PutRepository registers a repository or changes it.
func (s *Server) PutRepository(ctx context.Context, r gen.PutRepositoryRequestObject) (gen.PutRepositoryResponseObject, error) {
	repo, cred := repositoryOf(r.Body)
	if r.Body.EnableOCI && !repo.Type.Charts() {
		return nil, fault.With(fault.New(fault.Invalid, "enableOCI is for repositories of the types helm and oci"), "", "set the type")
	}
	stored, _, warnings, err := s.Catalog.PutRepository(ctx, callerOf(ctx), repo, cred, false)
	if err != nil {
		return nil, err
	}
	out := presentRepository(stored)
	out.Warnings = warnings
	return gen.PutRepository200JSONResponse(out), nil
}

// ListDeferredCredentials answers credentials for writing and for generators.
func (s *Server) ListDeferredCredentials(ctx context.Context, _ gen.ListDeferredCredentialsRequestObject) (gen.ListDeferredCredentialsResponseObject, error) {
	all, err := s.Catalog.DeferredCredentials(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListDeferredCredentials200JSONResponse{Items: collect(all, func(d hub.DeferredCredential) apimodel.DeferredCredential {
		return apimodel.DeferredCredential{
			Id: string(d.ID), Kind: apimodel.DeferredCredentialKind(d.Kind), Name: d.Name, Url: d.URL, Project: d.Project, Username: d.Username, Keys: d.Keys, CreatedAt: d.CreatedAt.UTC(),
		}
	})}, nil
}

// DeleteDeferredCredential deletes one.
func (s *Server) DeleteDeferredCredential(ctx context.Context, r gen.DeleteDeferredCredentialRequestObject) (gen.DeleteDeferredCredentialResponseObject, error) {
	if err := s.Catalog.DeleteDeferredCredential(ctx, callerOf(ctx), hub.RepositoryID(r.Id)); err != nil {
		return nil, err
	}
	return gen.DeleteDeferredCredential204Response{}, nil
}

// ValidateRepository tries to reach a repository, and stores nothing.
func (s *Server) ValidateRepository(ctx context.Context, r gen.ValidateRepositoryRequestObject) (gen.ValidateRepositoryResponseObject, error) {
	by := callerOf(ctx)
	repo, cred := repositoryOf(r.Body)
	ready, opens, warnings, err := s.Catalog.PrepareRepository(ctx, by, repo, cred)
	if err != nil {
		return nil, err
	}
	out := gen.ValidateRepository200JSONResponse{Warnings: warnings, Connection: apimodel.Connection{Status: apimodel.ConnectionStatusUnknown}}
	if s.Probe == nil {
		return out, nil
	}
	now := time.Now().UTC()
	out.Connection.AttemptedAt = now
	switch err := s.Probe(ctx, by.Tenant, ready, opens); {
	case ctx.Err() != nil:
		return nil, fault.New(fault.Offline, "the request ended before the server of the repository answered")
	case err != nil:
		out.Connection.Status, out.Connection.Message = apimodel.ConnectionStatusFailed, fault.Sentence(err)
	default:
		out.Connection.Status, out.Connection.FetchedAt = apimodel.ConnectionStatusSuccessful, now
	}
	return out, nil
}
