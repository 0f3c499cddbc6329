package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// Integrity says whose signatures the commits of a project's applications need
// (PROJ-15, PROJ-16).
type Integrity struct {
	SignatureKeys   []SignatureKey   `json:"signatureKeys,omitempty"`
	SourceIntegrity *SourceIntegrity `json:"sourceIntegrity,omitempty"`
}

// A SignatureKey is a key of the older form, which counts for every repository.
type SignatureKey struct {
	KeyID string `json:"keyID"`
}

// SourceIntegrity says which commits have to be signed, and by whom.
type SourceIntegrity struct {
	Git *GitIntegrity `json:"git,omitempty"`
}

// GitIntegrity holds policies, of which the first that matches a repository counts.
type GitIntegrity struct {
	Policies []GitPolicy `json:"policies,omitempty"`
}

// A GitPolicy is about the repositories whose URL a glob of Repos matches and
// none with "!" before it.
type GitPolicy struct {
	Repos []RepositoryPattern `json:"repos,omitempty"`
	GPG   *SignaturePolicy    `json:"gpg,omitempty"`
}

// A RepositoryPattern is a glob over URLs. It may be written as a text as well.
type RepositoryPattern struct {
	URL string `json:"url"`
}

// UnmarshalJSON reads both forms of a pattern.
func (p *RepositoryPattern) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, &p.URL)
	}
	type plain RepositoryPattern
	return json.Unmarshal(raw, (*plain)(p))
}

// Modes of a SignaturePolicy.
const (
	SignatureNone   = "none"   // nothing is verified
	SignatureHead   = "head"   // the commit, or the annotated tag that named it
	SignatureStrict = "strict" // the tag and all commits, back to the newest sealing ones
)

// A SignaturePolicy says which signatures a repository needs.
type SignaturePolicy struct {
	Mode string   `json:"mode"`
	Keys []string `json:"keys,omitempty"` // ids or fingerprints of public keys
}

// MaxSignatureKeys bounds the keys of a policy, and its patterns.
const MaxSignatureKeys = 1000

// Of returns the policy that counts for a repository; false: nothing has to be
// signed there.
func (g Integrity) Of(url string) (SignaturePolicy, bool) {
	p, _, demanded := g.PolicyOf(url)
	return p, demanded
}

// PolicyOf is Of that also reports whether a policy is about the repository:
// one of mode none is, and demands nothing.
func (g Integrity) PolicyOf(url string) (p SignaturePolicy, named, demanded bool) {
	if len(g.SignatureKeys) > 0 {
		p := SignaturePolicy{Mode: SignatureHead}
		for _, k := range g.SignatureKeys {
			p.Keys = append(p.Keys, k.KeyID)
		}
		return p, true, true
	}
	if g.SourceIntegrity == nil || g.SourceIntegrity.Git == nil {
		return SignaturePolicy{}, false, false
	}
	for _, p := range g.SourceIntegrity.Git.Policies {
		if !p.covers(url) {
			continue
		}
		if p.GPG == nil {
			return SignaturePolicy{Mode: SignatureHead}, true, true // no key is trusted: validation refuses it
		}
		return *p.GPG, true, p.GPG.Mode != SignatureNone
	}
	return SignaturePolicy{}, false, false
}

// covers compares URLs as written and in their normal form: another spelling of
// a repository has the same policy.
func (p GitPolicy) covers(url string) bool {
	found := false
	for _, r := range p.Repos {
		pattern, denied := strings.CutPrefix(r.URL, "!")
		if !MatchesRepository(pattern, url) {
			continue
		}
		if denied {
			return false
		}
		found = true
	}
	return found
}

// MatchesRepository reports whether a glob matches the URL of a repository, as
// it is written or in its normal form.
func MatchesRepository(pattern, url string) bool {
	for _, u := range spellings(url) {
		for _, p := range spellings(pattern) {
			if glob.Match(p, u) || glob.Match(strings.TrimSuffix(p, ".git"), strings.TrimSuffix(u, ".git")) {
				return true
			}
		}
	}
	return false
}

func spellings(url string) []string {
	if normal, err := repourl.Normalize(url); err == nil && normal != url {
		return []string{url, normal}
	}
	return []string{url}
}

// Digest identifies what a project demands of the commits of some Git sources;
// empty: nothing. A snapshot is as good as the demand that it was verified
// under.
func (g Integrity) Digest(sources []Source) string {
	type demand struct {
		URL    string
		Policy SignaturePolicy
	}
	var all []demand
	for _, s := range sources {
		if s.Kind() != GitRepository {
			continue
		}
		if p, demanded := g.Of(s.RepoURL); demanded {
			p.Keys = slices.Compact(slices.Sorted(slices.Values(p.Keys)))
			all = append(all, demand{s.RepoURL, p})
		}
	}
	if len(all) == 0 {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "unknown" // texts alone cannot get here; nothing is verified under it
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Demands reports whether commits of any repository have to be signed.
func (g Integrity) Demands() bool {
	if len(g.SignatureKeys) > 0 {
		return true
	}
	return g.SourceIntegrity != nil && g.SourceIntegrity.Git != nil && len(g.SourceIntegrity.Git.Policies) > 0
}

var keyID = regexp.MustCompile(`^(?:0x)?(?:[0-9a-fA-F]{16}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64})$`)

// NormalKeyID is the form in which ids and fingerprints of keys are compared:
// upper-case digits. False: it is neither.
func NormalKeyID(id string) (string, bool) {
	if !keyID.MatchString(id) {
		return "", false
	}
	return strings.ToUpper(strings.TrimPrefix(id, "0x")), true
}

// Validate refuses what would verify less than it seems to. The error names the
// field.
func (g Integrity) Validate() error {
	if len(g.SignatureKeys) > 0 && g.SourceIntegrity != nil {
		return fault.With(fault.New(fault.Invalid, "it has both signatureKeys and sourceIntegrity"), "spec", "keep sourceIntegrity, which replaces signatureKeys")
	}
	if len(g.SignatureKeys) > MaxSignatureKeys {
		return fault.New(fault.Exceeded, "spec.signatureKeys has %d keys, more than %d", len(g.SignatureKeys), MaxSignatureKeys)
	}
	for _, k := range g.SignatureKeys {
		if err := checkKeyID("spec.signatureKeys", k.KeyID); err != nil {
			return err
		}
	}
	if g.SourceIntegrity == nil || g.SourceIntegrity.Git == nil {
		return nil
	}
	const at = "spec.sourceIntegrity.git.policies"
	for i, p := range g.SourceIntegrity.Git.Policies {
		if err := p.validate(); err != nil {
			return fault.With(err, at, fmt.Sprintf("see policy %d", i+1))
		}
	}
	return nil
}

func (p GitPolicy) validate() error {
	if len(p.Repos) == 0 {
		return fault.New(fault.Invalid, "a policy names no repository, so it never counts")
	}
	if len(p.Repos) > MaxSignatureKeys {
		return fault.New(fault.Exceeded, "a policy has %d repositories, more than %d", len(p.Repos), MaxSignatureKeys)
	}
	for _, r := range p.Repos {
		if strings.TrimPrefix(r.URL, "!") == "" {
			return fault.New(fault.Invalid, "a policy has an empty repository")
		}
		if err := glob.Check(strings.TrimPrefix(r.URL, "!")); err != nil {
			return err
		}
	}
	if p.GPG == nil {
		return fault.With(fault.New(fault.Invalid, "a policy says nothing about signatures"), "", "set gpg.mode and gpg.keys")
	}
	switch p.GPG.Mode {
	case SignatureNone:
		return nil
	case SignatureHead, SignatureStrict:
	default:
		return fault.New(fault.Invalid, "the mode %q of a policy is none of none, head and strict", p.GPG.Mode)
	}
	if len(p.GPG.Keys) == 0 {
		return fault.With(fault.New(fault.Invalid, "a policy trusts no key, so no commit satisfies it"), "", "name key ids under gpg.keys")
	}
	if len(p.GPG.Keys) > MaxSignatureKeys {
		return fault.New(fault.Exceeded, "a policy has %d keys, more than %d", len(p.GPG.Keys), MaxSignatureKeys)
	}
	for _, k := range p.GPG.Keys {
		if err := checkKeyID("gpg.keys", k); err != nil {
			return err
		}
	}
	return nil
}

func checkKeyID(at, id string) error {
	if _, ok := NormalKeyID(id); ok {
		return nil
	}
	if len(id) > 80 {
		id = id[:80] + "…"
	}
	return fault.With(fault.New(fault.Invalid, "%q in %s is no id of a key", id, at), "", "write the 16 hexadecimal digits of `gpg --list-keys --keyid-format=long`, or the whole fingerprint")
}

// A SignatureDemand is what the commit of one source has to prove.
type SignatureDemand struct {
	Revision, TagPrefix string // as the source names it
	Commit              string
	Policy              SignaturePolicy
	Keys                []string // the tenant's public keys, as texts
}

// Identity is equal for demands that have the same answer as long as no key
// expires.
func (d SignatureDemand) Identity() [sha256.Size]byte {
	h := sha256.New()
	for _, list := range [][]string{{d.Revision, d.TagPrefix, d.Commit}, {d.Scope()}} {
		for _, s := range list {
			fmt.Fprintf(h, "%d %s\n", len(s), s)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Scope is equal for demands that trust the same keys in the same way.
func (d SignatureDemand) Scope() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", d.Policy.Mode)
	for _, list := range [][]string{d.Policy.Keys, d.Keys} {
		list = slices.Sorted(slices.Values(list))
		fmt.Fprintf(h, "%d\n", len(list))
		for _, s := range list {
			fmt.Fprintf(h, "%d %s\n", len(s), s)
		}
	}
	return string(h.Sum(nil))
}

// GPGKeysMap holds the public keys of a tenant by their ids (CRED-19).
const GPGKeysMap = "argocd-gpg-keys-cm"
