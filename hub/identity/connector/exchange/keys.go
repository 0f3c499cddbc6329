package exchange

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/capstan-cd/capstan/hub/identity/connector/oauth"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// fresh is how long keys are used without asking again, stale how long if
	// the issuer does not answer.
	fresh = 10 * time.Minute
	stale = 24 * time.Hour
	// pause is how long an issuer is not asked again because of an unknown key.
	pause = 10 * time.Second
	// maxSets bounds how many issuers are remembered, maxKeys the keys of one.
	maxSets = 500
	maxKeys = 100
)

// errUnknownKey means that an issuer has no key of this name.
var errUnknownKey = errors.New("the issuer has no such key")

// A keyID names the keys of an issuer as one tenant sees them: tenants may
// reach it by different authorities.
type keyID struct{ tenant, issuer string }

type keySet struct {
	keys []jose.JSONWebKey
	at   time.Time
}

// keys remembers the keys of issuers, as a cache.
type keys struct {
	now func() time.Time

	mu   sync.Mutex
	sets map[keyID]keySet
}

// find returns the keys that may have signed a token: those of its key name,
// or all if it names none. The issuer is asked if the key is not known.
func (k *keys) find(ctx context.Context, client *http.Client, id keyID, name string) ([]jose.JSONWebKey, error) {
	set, known := k.get(id)
	age := k.now().Sub(set.at)
	found := named(set.keys, name)
	if known && age < fresh && (len(found) > 0 || age < pause) {
		if len(found) == 0 {
			return nil, errUnknownKey
		}
		return found, nil
	}
	read, err := fetch(ctx, client, id.issuer)
	if err != nil {
		if known && age < stale && len(found) > 0 {
			return found, nil
		}
		return nil, err
	}
	k.put(id, keySet{read, k.now()})
	if found = named(read, name); len(found) == 0 {
		return nil, errUnknownKey
	}
	return found, nil
}

func (k *keys) get(id keyID) (keySet, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	set, ok := k.sets[id]
	return set, ok
}

// put remembers keys. Beyond the bound it forgets the oldest.
func (k *keys) put(id keyID, set keySet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.sets[id]; !known && len(k.sets) >= maxSets {
		var oldest keyID
		for other, s := range k.sets {
			if o, ok := k.sets[oldest]; !ok || s.at.Before(o.at) {
				oldest = other
			}
		}
		delete(k.sets, oldest)
	}
	k.sets[id] = set
}

func named(all []jose.JSONWebKey, name string) []jose.JSONWebKey {
	if name == "" {
		return all
	}
	var out []jose.JSONWebKey
	for _, key := range all {
		if key.KeyID == name {
			out = append(out, key)
		}
	}
	return out
}

// fetch reads the keys of an issuer, where its metadata says that they are.
func fetch(ctx context.Context, client *http.Client, issuer string) ([]jose.JSONWebKey, error) {
	object := "issuer " + issuer
	api := oauth.API{Provider: object, Base: strings.TrimRight(issuer, "/"), Client: client}
	var metadata struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	if _, err := api.Get(ctx, "/.well-known/openid-configuration", &metadata); err != nil {
		return nil, err
	}
	where, err := url.Parse(metadata.JWKSURI)
	if metadata.Issuer != issuer || err != nil || where.Scheme != "https" || where.Host == "" {
		return nil, fault.With(fault.New(fault.Offline, "its metadata is of another issuer, or has no keys"), object, "write issuer exactly as its tokens name it")
	}
	var set jose.JSONWebKeySet
	api.Base = where.Scheme + "://" + where.Host
	if _, err := api.Get(ctx, metadata.JWKSURI, &set); err != nil {
		return nil, err
	}
	var out []jose.JSONWebKey
	for _, key := range set.Keys {
		// A symmetric key in public is none.
		if key.Valid() && key.IsPublic() && key.Use != "enc" && len(out) < maxKeys {
			out = append(out, key)
		}
	}
	return out, nil
}
