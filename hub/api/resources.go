package api

import (
	"context"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// ListProjects answers the projects.
func (s *Server) ListProjects(ctx context.Context, _ gen.ListProjectsRequestObject) (gen.ListProjectsResponseObject, error) {
	projects, cursor, err := s.Catalog.Projects(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListProjects200JSONResponse{Items: collect(projects, presentProject), Cursor: cursor}, nil
}

// CreateProject makes a project.
func (s *Server) CreateProject(ctx context.Context, r gen.CreateProjectRequestObject) (gen.CreateProjectResponseObject, error) {
	answer, err := s.putProject(ctx, *r.Body, catalog.PutOptions{Create: true})
	if err != nil {
		return nil, err
	}
	return gen.CreateProject201JSONResponse{AppProjectAnswerJSONResponse: answer}, nil
}

// UpdateProject replaces what a person wrote of a project.
func (s *Server) UpdateProject(ctx context.Context, r gen.UpdateProjectRequestObject) (gen.UpdateProjectResponseObject, error) {
	if err := checkName("name", r.Body.Metadata.Name, r.Name); err != nil {
		return nil, err
	}
	expect, err := expected(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	answer, err := s.putProject(ctx, *r.Body, catalog.PutOptions{Update: true, Expect: expect})
	if err != nil {
		return nil, err
	}
	return gen.UpdateProject200JSONResponse{AppProjectAnswerJSONResponse: answer}, nil
}

func (s *Server) putProject(ctx context.Context, p apimodel.AppProject, o catalog.PutOptions) (gen.AppProjectAnswerJSONResponse, error) {
	if err := checkType(p.ApiVersion, p.Kind, validation.KindProject); err != nil {
		return gen.AppProjectAnswerJSONResponse{}, err
	}
	stored, _, warnings, err := s.Catalog.PutProject(ctx, callerOf(ctx), hub.Project{Meta: given(p.Metadata), Spec: p.Spec}, o)
	if err != nil {
		return gen.AppProjectAnswerJSONResponse{}, err
	}
	answer := projectAnswer(stored)
	answer.Body.Warnings = warnings
	return answer, nil
}

func projectAnswer(p hub.Project) gen.AppProjectAnswerJSONResponse {
	return gen.AppProjectAnswerJSONResponse{Body: presentProject(p), Headers: gen.AppProjectAnswerResponseHeaders{ETag: etag(p.Version)}}
}

// GetProject answers one project.
func (s *Server) GetProject(ctx context.Context, r gen.GetProjectRequestObject) (gen.GetProjectResponseObject, error) {
	p, err := s.Catalog.Project(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	tokens, err := s.Catalog.RoleTokens(ctx, callerOf(ctx), r.Name, "")
	if err != nil {
		return nil, err
	}
	answer := projectAnswer(p)
	if answer.Body.Status, err = projectStatus(tokens); err != nil {
		return nil, err
	}
	return gen.GetProject200JSONResponse{AppProjectAnswerJSONResponse: answer}, nil
}

// DeleteProject deletes a project.
func (s *Server) DeleteProject(ctx context.Context, r gen.DeleteProjectRequestObject) (gen.DeleteProjectResponseObject, error) {
	if err := s.Catalog.DeleteProject(ctx, callerOf(ctx), r.Name); err != nil {
		return nil, err
	}
	return gen.DeleteProject204Response{}, nil
}

// ListRepositories answers the repositories.
func (s *Server) ListRepositories(ctx context.Context, _ gen.ListRepositoriesRequestObject) (gen.ListRepositoriesResponseObject, error) {
	repos, cursor, err := s.Catalog.Repositories(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListRepositories200JSONResponse{Items: collect(repos, presentRepository), Cursor: cursor}, nil
}

// GetRepository answers one repository.
func (s *Server) GetRepository(ctx context.Context, r gen.GetRepositoryRequestObject) (gen.GetRepositoryResponseObject, error) {
	repo, err := s.Catalog.Repository(ctx, callerOf(ctx), hub.RepositoryID(r.Id))
	if err != nil {
		return nil, err
	}
	return gen.GetRepository200JSONResponse(presentRepository(repo)), nil
}

// DeleteRepository forgets a registration.
func (s *Server) DeleteRepository(ctx context.Context, r gen.DeleteRepositoryRequestObject) (gen.DeleteRepositoryResponseObject, error) {
	if err := s.Catalog.DeleteRepository(ctx, callerOf(ctx), hub.RepositoryID(r.Id)); err != nil {
		return nil, err
	}
	return gen.DeleteRepository204Response{}, nil
}

// RefreshRepository fetches a repository now.
func (s *Server) RefreshRepository(ctx context.Context, r gen.RefreshRepositoryRequestObject) (gen.RefreshRepositoryResponseObject, error) {
	if err := s.Catalog.FetchRepository(ctx, callerOf(ctx), hub.RepositoryID(r.Id)); err != nil {
		return nil, err
	}
	return gen.RefreshRepository202Response{}, nil
}

// ListRepositoryCredentials answers the credential templates.
func (s *Server) ListRepositoryCredentials(ctx context.Context, _ gen.ListRepositoryCredentialsRequestObject) (gen.ListRepositoryCredentialsResponseObject, error) {
	templates, err := s.Catalog.RepositoryTemplates(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListRepositoryCredentials200JSONResponse{Items: collect(templates, func(t hub.RepositoryTemplate) apimodel.RepositoryCredential {
		return apimodel.RepositoryCredential{Id: string(t.ID), Url: t.URL, Type: string(t.Type), Name: t.Name, Username: t.Username, Proxy: t.Proxy, NoProxy: t.NoProxy, CreatedAt: t.CreatedAt.UTC()}
	})}, nil
}

// DeleteRepositoryCredential deletes a credential template.
func (s *Server) DeleteRepositoryCredential(ctx context.Context, r gen.DeleteRepositoryCredentialRequestObject) (gen.DeleteRepositoryCredentialResponseObject, error) {
	if err := s.Catalog.DeleteRepositoryTemplate(ctx, callerOf(ctx), hub.RepositoryID(r.Id)); err != nil {
		return nil, err
	}
	return gen.DeleteRepositoryCredential204Response{}, nil
}

// ListClusters answers the clusters.
func (s *Server) ListClusters(ctx context.Context, _ gen.ListClustersRequestObject) (gen.ListClustersResponseObject, error) {
	clusters, cursor, err := s.Catalog.Clusters(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	counts, err := s.Catalog.ClusterCounts(ctx, callerOf(ctx), nil)
	if err != nil {
		return nil, err
	}
	return gen.ListClusters200JSONResponse{
		Items: collect(clusters, func(c hub.Cluster) apimodel.Cluster { return withCounts(presentCluster(c, nil), c, counts) }), Cursor: cursor,
	}, nil
}

// withCounts adds numbers to a cluster.
func withCounts(out apimodel.Cluster, c hub.Cluster, counts map[hub.ClusterID]hub.ClusterCounts) apimodel.Cluster {
	n := counts[c.ID]
	out.Counts = &apimodel.ClusterCounts{Applications: int64(n.Applications), Objects: int64(n.Objects), Apis: int64(len(c.APIVersions))}
	return out
}

// EnrollCluster makes a cluster with a join token.
func (s *Server) EnrollCluster(ctx context.Context, r gen.EnrollClusterRequestObject) (gen.EnrollClusterResponseObject, error) {
	cl := hub.Cluster{Meta: hub.Meta{Name: r.Body.Name, Labels: r.Body.Labels, Annotations: r.Body.Annotations}, Server: r.Body.Server}
	in, err := s.Catalog.Enroll(ctx, callerOf(ctx), cl, givenScope(r.Body.Scope), r.Body.ExpiresIn)
	if err != nil {
		return nil, err
	}
	fill := strings.NewReplacer("{token}", in.Token, "{cluster}", in.Cluster.Name)
	return gen.EnrollCluster201JSONResponse{
		Cluster: presentCluster(in.Cluster, nil), JoinToken: in.Token, ExpiresAt: in.ExpiresAt.UTC(),
		Command: fill.Replace(s.cfg.AgentCommand), Helm: fill.Replace(s.cfg.AgentHelm),
	}, nil
}

// GetCluster answers one cluster.
func (s *Server) GetCluster(ctx context.Context, r gen.GetClusterRequestObject) (gen.GetClusterResponseObject, error) {
	cl, invitations, err := s.Catalog.Cluster(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	counts, err := s.Catalog.ClusterCounts(ctx, callerOf(ctx), []hub.ClusterID{cl.ID})
	if err != nil {
		return nil, err
	}
	return gen.GetCluster200JSONResponse{Body: withCounts(presentCluster(cl, invitations), cl, counts), Headers: gen.GetCluster200ResponseHeaders{ETag: etag(cl.Version)}}, nil
}

// UpdateCluster changes what a person wrote of a cluster.
func (s *Server) UpdateCluster(ctx context.Context, r gen.UpdateClusterRequestObject) (gen.UpdateClusterResponseObject, error) {
	expect, err := expected(r.Params.IfMatch)
	if err != nil {
		return nil, err
	}
	cl, err := s.Catalog.UpdateCluster(ctx, callerOf(ctx), hub.Cluster{
		Meta: hub.Meta{Name: r.Name, Labels: r.Body.Labels, Annotations: r.Body.Annotations}, Server: r.Body.Server,
	}, givenScope(r.Body.Scope), expect)
	if err != nil {
		return nil, err
	}
	return gen.UpdateCluster200JSONResponse{Body: presentCluster(cl, nil), Headers: gen.UpdateCluster200ResponseHeaders{ETag: etag(cl.Version)}}, nil
}

// DeleteCluster removes a cluster and revokes its agent.
func (s *Server) DeleteCluster(ctx context.Context, r gen.DeleteClusterRequestObject) (gen.DeleteClusterResponseObject, error) {
	if err := s.Catalog.DeleteCluster(ctx, callerOf(ctx), r.Name); err != nil {
		return nil, err
	}
	return gen.DeleteCluster204Response{}, nil
}

// UpgradeAgent orders that the agent of a cluster exchanges its image.
func (s *Server) UpgradeAgent(ctx context.Context, r gen.UpgradeAgentRequestObject) (gen.UpgradeAgentResponseObject, error) {
	cl, err := s.Catalog.UpgradeAgent(ctx, callerOf(ctx), r.Name, r.Body.Image, time.Duration(r.Body.DeadlineSeconds)*time.Second)
	if err != nil {
		return nil, err
	}
	return gen.UpgradeAgent202JSONResponse(presentCluster(cl, nil)), nil
}

// AcceptHub makes the hub's state the truth for a cluster.
func (s *Server) AcceptHub(ctx context.Context, r gen.AcceptHubRequestObject) (gen.AcceptHubResponseObject, error) {
	cl, err := s.Catalog.AcceptHub(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.AcceptHub200JSONResponse(presentCluster(cl, nil)), nil
}

// KeepCluster sets which of two clusters has an identity.
func (s *Server) KeepCluster(ctx context.Context, r gen.KeepClusterRequestObject) (gen.KeepClusterResponseObject, error) {
	cl, err := s.Catalog.KeepCluster(ctx, callerOf(ctx), r.Name, r.Body.Fingerprint)
	if err != nil {
		return nil, err
	}
	return gen.KeepCluster200JSONResponse(presentCluster(cl, nil)), nil
}

// RevokeAgent ends a cluster's agent.
func (s *Server) RevokeAgent(ctx context.Context, r gen.RevokeAgentRequestObject) (gen.RevokeAgentResponseObject, error) {
	cl, err := s.Catalog.RevokeAgent(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	return gen.RevokeAgent200JSONResponse(presentCluster(cl, nil)), nil
}
