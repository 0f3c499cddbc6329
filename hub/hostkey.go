package hub

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // known_hosts hashes host names with it
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A HostKey is the public key by which an SSH server is known, one line of a
// known_hosts file. Of one host a tenant knows at most one key of each type.
type HostKey struct {
	Host      string    `json:"host"`    // as in known_hosts: name, [name]:port, *.example.com, or a hashed name
	Type      string    `json:"type"`    // ssh-ed25519, ecdsa-sha2-nistp256 …
	Key       string    `json:"key"`     // base64
	BuiltIn   bool      `json:"builtIn"` // came with this release
	CreatedAt time.Time `json:"createdAt"`
}

const (
	hostKeySSHPort   = "22"
	hashedHost       = "|1|"
	maxHostKeys      = 1000
	maxHostKeyText   = 1 << 20
	maxHostKeyLine   = 16 << 10
	maxHostKeyHost   = 300
	hostKeyFile      = "known_hosts"
	hostKeyLineWords = 3
)

// hostKeyTypes are the types of keys by which a server may be known. DSA and
// certificates are not among them.
func hostKeyTypes() []string {
	return []string{"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"}
}

// HostKeyName is how known_hosts names a server: host, or [host]:port where
// the port is not 22.
func HostKeyName(host, port string) string {
	host = strings.ToLower(strings.Trim(host, "[]"))
	if port == "" || port == hostKeySSHPort {
		return host
	}
	return "[" + host + "]:" + port
}

// Line is the key as known_hosts has it.
func (k HostKey) Line() string { return k.Host + " " + k.Type + " " + k.Key }

// Fingerprint is the SHA-256 fingerprint as ssh prints it, or empty if the
// key is not base64.
func (k HostKey) Fingerprint() string {
	blob, err := base64.StdEncoding.DecodeString(k.Key)
	if err != nil {
		return ""
	}
	return Fingerprint(blob)
}

// Fingerprint is the SHA-256 fingerprint of a public key as ssh prints it.
func Fingerprint(blob []byte) string {
	sum := sha256.Sum256(blob)
	return "SHA256:" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Matches reports whether the key is one of the server that HostKeyName names.
func (k HostKey) Matches(name string) bool {
	if rest, ok := strings.CutPrefix(k.Host, hashedHost); ok {
		salt, want, _ := strings.Cut(rest, "|")
		s, err := base64.StdEncoding.DecodeString(salt)
		sum, err2 := base64.StdEncoding.DecodeString(want)
		if err != nil || err2 != nil {
			return false
		}
		mac := hmac.New(sha1.New, s)
		mac.Write([]byte(name))
		return hmac.Equal(mac.Sum(nil), sum)
	}
	return hostPattern(k.Host, name)
}

// hostPattern matches the patterns of known_hosts: * stands for any text, ?
// for one character. Brackets are brackets.
func hostPattern(pattern, name string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p, n = p+1, n+1
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// ParseKnownHosts parses text in the format of known_hosts, which is also what
// ssh-keyscan prints. A line for several names is a key for each. Empty lines
// and comments are skipped. The error is fault.Invalid and names the line.
func ParseKnownHosts(text string) ([]HostKey, error) {
	if len(text) > maxHostKeyText {
		return nil, fault.New(fault.Exceeded, "the list of host keys has more than %d bytes", maxHostKeyText)
	}
	var out []HostKey
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, maxHostKeyLine)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		keys, err := parseHostLine(line)
		if err != nil {
			return nil, knownHostsFault(n, err)
		}
		for _, k := range keys {
			same := slices.IndexFunc(out, func(o HostKey) bool { return o.Host == k.Host && o.Type == k.Type })
			switch {
			case same < 0:
				out = append(out, k)
			case out[same].Key != k.Key:
				return nil, knownHostsFault(n, fault.New(fault.Invalid, "it contains a second key of type %[2]s for %[1]s", k.Host, k.Type))
			}
		}
		if len(out) > maxHostKeys {
			return nil, fault.New(fault.Exceeded, "the list of host keys has more than %d entries", maxHostKeys)
		}
	}
	if lines.Err() != nil {
		return nil, fault.New(fault.Invalid, "a line of the list of host keys has more than %d bytes", maxHostKeyLine)
	}
	return out, nil
}

func knownHostsFault(line int, err error) error {
	return fault.With(fault.New(fault.Invalid, "line %d is not usable: %w", line, err), hostKeyFile,
		"write lines like those of ssh-keyscan: git.example.com ssh-ed25519 AAAA…")
}

func parseHostLine(line string) ([]HostKey, error) {
	words := strings.Fields(line)
	switch {
	case line[0] == '@':
		return nil, fault.New(fault.Invalid, "markers such as %s are not served", cutText(words[0], 40))
	case len(words) < hostKeyLineWords:
		return nil, fault.New(fault.Invalid, "it has fewer than three words")
	case !slices.Contains(hostKeyTypes(), words[1]):
		return nil, fault.New(fault.Invalid, "%q is no type of key that is served", cutText(words[1], 40))
	}
	blob, err := base64.StdEncoding.DecodeString(words[2])
	if err != nil || wireString(blob) != words[1] {
		return nil, fault.New(fault.Invalid, "its third word is no key of type %s", words[1])
	}
	var out []HostKey
	for _, host := range strings.Split(words[0], ",") {
		if host, err = hostKeyHost(host); err != nil {
			return nil, err
		}
		out = append(out, HostKey{Host: host, Type: words[1], Key: words[2]})
	}
	return out, nil
}

func hostKeyHost(host string) (string, error) {
	switch {
	case host == "" || len(host) > maxHostKeyHost:
		return "", fault.New(fault.Invalid, "a host name is empty or too long")
	case strings.HasPrefix(host, "!"):
		return "", fault.New(fault.Invalid, "excluded host names are not served")
	case strings.HasPrefix(host, hashedHost):
		if strings.Count(host, "|") != 3 {
			return "", fault.New(fault.Invalid, "a hashed host name is malformed")
		}
		return host, nil
	case strings.HasPrefix(host, "|"):
		return "", fault.New(fault.Invalid, "a host name is hashed in a way that is not known")
	case strings.Trim(host, "*?.") == "":
		return "", fault.New(fault.Invalid, "a key for every host is not accepted")
	}
	if name, port, err := net.SplitHostPort(host); err == nil && strings.HasPrefix(host, "[") {
		return HostKeyName(name, port), nil
	}
	return strings.ToLower(host), nil
}

// wireString is the text that an SSH structure begins with.
func wireString(b []byte) string {
	if len(b) < 4 {
		return ""
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return ""
	}
	return string(b[4 : 4+n])
}

func cutText(s string, limit int) string { return s[:min(len(s), limit)] }

// BuiltInHostKeys are the keys that the public Git hosts publish, for tenants
// that have stored none of their own for such a host. RSA keys that a host
// has replaced are left out.
func BuiltInHostKeys() []HostKey {
	keys, err := ParseKnownHosts(publicHosts)
	if err != nil {
		return nil // a test reads them all
	}
	for i := range keys {
		keys[i].BuiltIn = true
	}
	return keys
}

// HostKeysOf picks the keys of one server: those of the tenant, or the
// built-in ones where the tenant has none.
func HostKeysOf(own []HostKey, name string) []HostKey {
	for _, list := range [][]HostKey{own, BuiltInHostKeys()} {
		if found := slices.DeleteFunc(slices.Clone(list), func(k HostKey) bool { return !k.Matches(name) }); len(found) > 0 {
			return found
		}
	}
	return nil
}

const publicHosts = `
github.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl
github.com ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEmKSENjQEezOmxkZMy7opKgwFB9nkt5YRrYMjNuG5N87uRgg6CLrbo5wAdT/y6v0mKV0U2w0WZ2YB/++Tpockg=
github.com ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQCj7ndNxQowgcQnjshcLrqPEiiphnt+VTTvDP6mHBL9j1aNUkY4Ue1gvwnGLVlOhGeYrnZaMgRK6+PKCUXaDbC7qtbW8gIkhL7aGCsOr/C56SJMy/BCZfxd1nWzAOxSDPgVsmerOBYfNqltV9/hWCqBywINIR+5dIg6JTJ72pcEpEjcYgXkE2YEFXV1JHnsKgbLWNlhScqb2UmyRkQyytRLtL+38TGxkxCflmO+5Z8CSSNY7GidjMIZ7Q4zMjA2n1nGrlTDkzwDCsw+wqFPGQA179cnfGWOWRVruj16z6XyvxvjJwbz0wQZ75XK5tKSb7FNyeIEs4TT4jk+S4dhPeAUC5y+bDYirYgM4GC7uEnztnZyaVWQ7B381AK4Qdrwt51ZqExKbQpTUNn+EjqoTwvqNj4kqx5QUCI0ThS/YkOxJCXmPUWZbhjpCg56i+2aB6CmK2JGhn57K5mj0MNdBXA4/WnwH6XoPWJzK5Nyu2zB3nAZp+S5hpQs+p1vN1/wsjk=
gitlab.com ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfuCHKVTjquxvt6CM6tdG4SLp1Btn/nOeHHE5UOzRdf
gitlab.com ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBFSMqzJeV9rUzU4kWitGjeR4PWSa29SPqJ1fVkhtj3Hw9xjLVXVYrU9QlYWrOLXBpQ6KWjbjTDTdDkoohFzgbEY=
gitlab.com ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCsj2bNKTBSpIYDEGk9KxsGh3mySTRgMtXL583qmBpzeQ+jqCMRgBqB98u3z++J1sKlXHWfM9dyhSevkMwSbhoR8XIq/U0tCNyokEi/ueaBMCvbcTHhO7FcwzY92WK4Yt0aGROY5qX2UKSeOvuP4D6TPqKF1onrSzH9bx9XUf2lEdWT/ia1NEKjunUqu1xOB/StKDHMoX4/OKyIzuS0q/T1zOATthvasJFoPrAjkohTyaDUz2LN5JoH839hViyEG82yB+MjcFV5MU3N1l1QL3cVUCh93xSaua1N85qivl+siMkPGbO5xR/En4iEY6K2XPASUEMaieWVNTRCtJ4S8H+9
bitbucket.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIazEu89wgQZ4bqs3d63QSMzYVa0MuJ2e2gKTKqu+UUO
bitbucket.org ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBPIQmuzMBuKdWeF4+a2sjSSpBK0iqitSQ+5BM9KhpexuGt20JpTVM7u5BDZngncgrqDMbWdxMWWOGtZ9UgbqgZE=
ssh.dev.azure.com,vs-ssh.visualstudio.com ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7Hr1oTWqNqOlzGJOfGJ4NakVyIzf1rXYd4d7wo6jBlkLvCA4odBlL0mDUyZ0/QUfTTqeu+tm22gOsv+VrVTMk6vwRU75gY/y9ut5Mb3bR5BV58dKXyq9A9UeB5Cakehn5Zgm6x1mKoVyf+FFn26iYqXJRgzIZZcZ5V6hrE0Qg39kZm4az48o0AUbf6Sp4SLdvnuMa2sVNwHBboS7EJkm57XQPVU3/QpyNLHbWDdzwtrlS+ez30S3AdYhLKEOxAG8weOnyrtLJAUen9mTkol8oII1edf7mWWbWVf0nBmly21+nZcmCTISQBtdcyPaEno7fFQMDD26/s0lfKob4Kw8H
`
