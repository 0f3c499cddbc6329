package trust

import (
	"context"

	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/signature"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// ListPublicKeys answers the public keys for signatures of commits.
func (k *Keys) ListPublicKeys(ctx context.Context, _ gen.ListPublicKeysRequestObject) (gen.ListPublicKeysResponseObject, error) {
	keys, err := k.catalog.PublicKeys(ctx, k.caller(ctx))
	if err != nil {
		return nil, err
	}
	return gen.ListPublicKeys200JSONResponse{Items: collect(keys, presentPublicKey)}, nil
}

// GetPublicKey answers one of them.
func (k *Keys) GetPublicKey(ctx context.Context, r gen.GetPublicKeyRequestObject) (gen.GetPublicKeyResponseObject, error) {
	key, err := k.catalog.PublicKey(ctx, k.caller(ctx), r.KeyID)
	if err != nil {
		return nil, err
	}
	return gen.GetPublicKey200JSONResponse(presentPublicKey(key)), nil
}

// AddPublicKeys stores public keys.
func (k *Keys) AddPublicKeys(ctx context.Context, r gen.AddPublicKeysRequestObject) (gen.AddPublicKeysResponseObject, error) {
	added, skipped, err := k.catalog.AddPublicKeys(ctx, k.caller(ctx), r.Body.KeyData, r.Body.Upsert)
	if err != nil {
		return nil, err
	}
	if skipped == nil {
		skipped = []string{}
	}
	return gen.AddPublicKeys200JSONResponse{Created: collect(added, presentPublicKey), Skipped: skipped}, nil
}

// DeletePublicKey deletes one of them.
func (k *Keys) DeletePublicKey(ctx context.Context, r gen.DeletePublicKeyRequestObject) (gen.DeletePublicKeyResponseObject, error) {
	if err := k.catalog.DeletePublicKey(ctx, k.caller(ctx), r.KeyID); err != nil {
		return nil, err
	}
	return gen.DeletePublicKey204Response{}, nil
}

func presentPublicKey(k signature.Key) apimodel.PublicKey {
	return apimodel.PublicKey{
		KeyID: k.ID, Fingerprint: k.Fingerprint, Owner: k.Owner, SubType: k.Algorithm, KeyData: k.Text, CreatedAt: k.CreatedAt, ExpiresAt: k.ExpiresAt, Revoked: k.Revoked,
	}
}
