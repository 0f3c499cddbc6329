package settings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// accounts are the keys about local accounts (AUTH-01 to AUTH-03).
func accounts() []Known {
	of := func(name string) func(key, about, sample, example string, read func(*set, string, text) error) Known {
		return func(key, about, sample, example string, read func(*set, string, text) error) Known {
			return Known{Map: name, Key: key, About: about, Sample: sample, Example: example, Used: true, read: read}
		}
	}
	cm, secret := of(hub.SettingsMap), of(hub.SecretMap)
	return []Known{
		cm(hub.AccountPrefix, "By the name of a local account: what it may be used for, of login and apiKey; with .enabled behind the name: whether it may be used at all.", "apiKey, login", "ci", (*set).readAccount),
		cm(hub.PasswordPatternKey, "A regular expression that new passwords must match; they have at least 12 characters in any case.", `^.*[0-9].*$`, "", (*set).readPattern),
		secret(hub.AdminPasswordKey, "The password of the account admin, as Argo CD stores it: its hash by bcrypt.", sampleBcrypt, "", (*set).readBcrypt),
		{
			Map: hub.SecretMap, Key: hub.AccountPrefix, About: "By the name of a local account: with .password behind it the hash of its password by bcrypt, which is used; .tokens and .passwordMtime are not.",
			Sample: "[]", Example: "ci.tokens", Instead: noTokens, read: (*set).readAccountSecret,
		},
	}
}

// The hash of a text that nobody has kept.
const sampleBcrypt = "$2a$10$hY8bJZyzI8dCkRq4V5uGbeeTnJvGQyB0rB8vYYlV5l1nXcZ0d2LQa"

// ParseAccountKey takes a key of hub.SettingsMap or hub.SecretMap apart: the name of
// the account that it is about, and what follows it, such as ".enabled"; found
// is false for any other key.
func ParseAccountKey(key string) (name, end string, found bool) {
	rest, found := strings.CutPrefix(key, hub.AccountPrefix)
	if !found || rest == "" {
		return "", "", false
	}
	for _, end := range []string{hub.EnabledSuffix, hub.PasswordSuffix, ".passwordMtime", ".tokens"} {
		if name, found := strings.CutSuffix(rest, end); found && name != "" {
			return name, end, true
		}
	}
	return rest, "", true
}

// Account reads what an account may be used for: capabilities separated by
// commas. An empty text gives none.
func Account(value string) ([]string, error) {
	out := []string{}
	for part := range strings.SplitSeq(value, ",") {
		part = strings.TrimSpace(part)
		if part == "" || slices.Contains(out, part) {
			continue
		}
		if !slices.Contains(hub.Capabilities(), part) {
			return nil, fault.With(fault.New(fault.Invalid, "there is no capability %q", short(part)), "", "choose among apiKey and login")
		}
		out = append(out, part)
	}
	return out, nil
}

func (s *set) readAccount(end string, t text) error {
	if !s.strict {
		return nil
	}
	return account(end, t)
}

func (s *set) readAccountSecret(end string, t text) error {
	if _, after, _ := ParseAccountKey(hub.AccountPrefix + end); after == hub.PasswordSuffix {
		return s.readBcrypt(end, t)
	}
	if !s.strict {
		return nil
	}
	return accountSecret(end, t)
}

// bcryptHash is a hash of bcrypt with its cost. Costs above 14 would let one
// sign-in take seconds.
var bcryptHash = regexp.MustCompile(`^\$2[abxy]?\$(0[4-9]|1[0-4])\$[./A-Za-z0-9]{53}$`)

func (s *set) readBcrypt(_ string, t text) error {
	if s.strict && t.value != "" && !bcryptHash.MatchString(t.value) {
		return fault.With(fault.New(fault.Invalid, "it is no hash by bcrypt with a cost of 4 to 14"), "", "make one with `capstan account bcrypt`")
	}
	return nil
}

func (s *set) readPattern(_ string, t text) error {
	if _, err := regexp.Compile(t.value); err != nil && s.strict {
		return fault.With(fault.New(fault.Invalid, "it is no regular expression"), "", "write it as for Go's package regexp, without lookaheads")
	}
	return nil
}

// PasswordAllowed reports whether a password matches a tenant's pattern
// (AUTH-03). Values are those of hub.SettingsMap. An empty pattern, or one that
// cannot be read, allows all.
func PasswordAllowed(values map[string]string, password string) bool {
	pattern, err := regexp.Compile(values[hub.PasswordPatternKey])
	return err != nil || pattern.MatchString(password)
}

// Switch reports whether a switch of argocd-cm is on; usual is what it is if it
// is not set.
func Switch(values map[string]string, key string, usual bool) bool {
	if values[key] == "" {
		return usual
	}
	on, err := text{values[key], 0}.truth()
	return err == nil && on
}

// noTokens is what happens instead of tokens that Argo CD has issued.
const noTokens = "tokens that Argo CD has issued are never accepted, and a new password ends sessions by itself; make tokens with `capstan account generate-token`"

// isPassword reports whether a key of argocd-secret is the password of an account.
func isPassword(name, key string) bool {
	_, end, _ := ParseAccountKey(key)
	return name == hub.SecretMap && end == hub.PasswordSuffix
}
