package api

import (
	"context"

	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/signature"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// ListPublicKeys answers the public keys for signatures of commits.
func (s *Server) ListPublicKeys(ctx context.Context, _ gen.ListPublicKeysRequestObject) (gen.ListPublicKeysResponseObject, error) {
	keys, err := s.Catalog.PublicKeys(ctx, callerOf(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListPublicKeys200JSONResponse{Items: collect(keys, presentPublicKey)}, nil
}

// GetPublicKey answers one of them.
func (s *Server) GetPublicKey(ctx context.Context, r gen.GetPublicKeyRequestObject) (gen.GetPublicKeyResponseObject, error) {
	key, err := s.Catalog.PublicKey(ctx, callerOf(ctx), r.KeyID)
	if err != nil {
		return nil, err
	}
	return gen.GetPublicKey200JSONResponse(presentPublicKey(key)), nil
}

// AddPublicKeys stores public keys.
func (s *Server) AddPublicKeys(ctx context.Context, r gen.AddPublicKeysRequestObject) (gen.AddPublicKeysResponseObject, error) {
	added, skipped, err := s.Catalog.AddPublicKeys(ctx, callerOf(ctx), r.Body.KeyData, r.Body.Upsert)
	if err != nil {
		return nil, err
	}
	if skipped == nil {
		skipped = []string{}
	}
	return gen.AddPublicKeys200JSONResponse{Created: collect(added, presentPublicKey), Skipped: skipped}, nil
}

// DeletePublicKey deletes one of them.
func (s *Server) DeletePublicKey(ctx context.Context, r gen.DeletePublicKeyRequestObject) (gen.DeletePublicKeyResponseObject, error) {
	if err := s.Catalog.DeletePublicKey(ctx, callerOf(ctx), r.KeyID); err != nil {
		return nil, err
	}
	return gen.DeletePublicKey204Response{}, nil
}

func presentPublicKey(k signature.Key) apimodel.PublicKey {
	return apimodel.PublicKey{
		KeyID: k.ID, Fingerprint: k.Fingerprint, Owner: k.Owner, SubType: k.Algorithm, KeyData: k.Text, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, Revoked: k.Revoked,
	}
}
