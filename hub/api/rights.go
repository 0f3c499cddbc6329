package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

const canIPath = "/api/v1/account/can-i/"

// slashedObject lets the object of can-i contain slashes, as Argo CD does.
func slashedObject(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		path := r.URL.EscapedPath()
		if rest, ok := strings.CutPrefix(path, canIPath); ok && r.Method == http.MethodGet {
			if parts := strings.SplitN(rest, "/", 3); len(parts) == 3 && strings.Contains(parts[2], "/") {
				parts[2] = strings.ReplaceAll(parts[2], "/", "%2F")
				r = r.Clone(r.Context())
				r.URL.RawPath = canIPath + strings.Join(parts, "/")
				if p, err := url.PathUnescape(r.URL.RawPath); err == nil {
					r.URL.Path = p
					c.SetRequest(r)
				}
			}
		}
		return next(c)
	}
}

// CanI answers whether the caller may do something.
func (s *Server) CanI(ctx context.Context, r gen.CanIRequestObject) (gen.CanIResponseObject, error) {
	answers, err := s.Catalog.Explain(ctx, callerOf(ctx), nil, []catalog.RightQuestion{{Resource: r.Resource, Action: r.Action, Object: r.Subresource}})
	if err != nil {
		return nil, err
	}
	value := gen.CanI200JSONResponse{Value: "no"}
	if answers[0].Allowed {
		value.Value = "yes"
	}
	return value, nil
}

// ExplainRights answers what the caller or somebody else may do, and why.
func (s *Server) ExplainRights(ctx context.Context, r gen.ExplainRightsRequestObject) (gen.ExplainRightsResponseObject, error) {
	var names []string
	if r.Body.Subject.User != "" {
		names = append(names, r.Body.Subject.User)
	}
	names = append(names, r.Body.Subject.Groups...)
	questions := collect(r.Body.Questions, func(q apimodel.RightQuestion) catalog.RightQuestion {
		return catalog.RightQuestion{Resource: q.Resource, Action: q.Action, Object: q.Object}
	})
	answers, err := s.Catalog.Explain(ctx, callerOf(ctx), names, questions)
	if err != nil {
		return nil, err
	}
	return gen.ExplainRights200JSONResponse{Items: collect(answers, presentRight)}, nil
}

func presentRight(a catalog.RightAnswer) apimodel.RightDecision {
	d := apimodel.RightDecision{
		Resource: a.Resource, Action: a.RightQuestion.Action, Object: a.Object, Allowed: a.Allowed, Layer: apimodel.RightDecisionLayer(a.Layer),
	}
	if a.Rule != nil {
		d.Rule, d.Source, d.Line = a.Rule.String(), a.Rule.Source, a.Rule.Line
	}
	if a.Problem != nil {
		d.Problem = fault.Sentence(a.Problem)
	}
	return d
}

// GetPolicyState answers whether the policy is in force.
func (s *Server) GetPolicyState(ctx context.Context, _ gen.GetPolicyStateRequestObject) (gen.GetPolicyStateResponseObject, error) {
	state, err := s.Catalog.PolicyState(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.GetPolicyState200JSONResponse(presentPolicyState(state)), nil
}

func presentPolicyState(s catalog.PolicyState) apimodel.PolicyState {
	return apimodel.PolicyState{InForce: len(s.Problems) == 0, Problems: texts(s.Problems), FailedTests: texts(s.Unmet), Warnings: texts(s.Doubts)}
}

// texts is a list that is never null.
func texts(all []string) []string { return collect(all, func(s string) string { return s }) }

// PreviewPolicy answers what a change of the policy would do.
func (s *Server) PreviewPolicy(ctx context.Context, r gen.PreviewPolicyRequestObject) (gen.PreviewPolicyResponseObject, error) {
	preview, err := s.Catalog.PreviewPolicy(ctx, callerOf(ctx), r.Body.Values)
	if err != nil {
		return nil, err
	}
	return gen.PreviewPolicy200JSONResponse{
		State: presentPolicyState(preview.State), More: preview.More,
		Effects: collect(preview.Effects, func(e catalog.PolicyEffect) apimodel.PolicyEffect {
			return apimodel.PolicyEffect{
				Subject: e.Subject, Resource: e.Resource, Action: e.Action,
				Gained: texts(e.Gained), GainedCount: e.GainedCount, Lost: texts(e.Lost), LostCount: e.LostCount,
			}
		}),
	}, nil
}
