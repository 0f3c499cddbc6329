package repourl

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/fault"
)

func TestNormalize(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ in, want string }{
		"CRED-16 host and scheme in any case": {"HTTPS://Git.Example.COM/Team/Repo", "https://git.example.com/Team/Repo"},
		"CRED-16 .git and slashes":            {"https://git.example.com/team/repo.git/", "https://git.example.com/team/repo"},
		"CRED-16 user information":            {"https://bob:s3cret@git.example.com/team/repo", "https://git.example.com/team/repo"},
		"CRED-16 default ports":               {"https://git.example.com:443/a", "https://git.example.com/a"},
		"CRED-16 other ports stay":            {"http://git.example.com:8080/a.git", "http://git.example.com:8080/a"},
		"CRED-16 port 80 of https stays":      {"https://git.example.com:80/a", "https://git.example.com:80/a"},
		"CRED-16 scp form":                    {"git@github.com:Org/Repo.git", "ssh://github.com/org/repo"},
		"CRED-16 ssh form":                    {"ssh://git@github.com:22/Org/Repo", "ssh://github.com/org/repo"},
		"CRED-16 case on a folding host":      {"https://github.com/Argoproj/Examples", "https://github.com/argoproj/examples"},
		"CRED-16 IPv6":                        {"https://[2001:DB8:0::1]:8443/a", "https://[2001:db8::1]:8443/a"},
		"CRED-16 escapes stay":                {"https://dev.example.com/my%20team/_git/x", "https://dev.example.com/my%20team/_git/x"},
		"CRED-16 a directory called .git":     {"http://host/.git", "http://host/.git"},
		"CRED-16 default port with zeros":     {"ssh://host:0022/a", "ssh://host/a"},
		"CRED-16 ending in capitals":          {"https://github.com/Org/Repo.GIT", "https://github.com/org/repo"},
		"CRED-16 repeated endings":            {"http://host/a.git/.git.git//", "http://host/a.git/.git"},
		"OCI":                                 {"oci://Registry.example.com/charts/app", "oci://registry.example.com/charts/app"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Normalize(c.in)
			if err != nil || got != c.want {
				t.Errorf("Normalize(%q) = %q, %v; want %q", c.in, got, err, c.want)
			}
		})
	}
}

func TestNormalizeRefuses(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"empty":                  "  ",
		"no host":                "https:///team/repo",
		"no scheme":              "team/repo",
		"a file":                 "file:///etc",
		"an absolute path":       "/srv/git/repo",
		"SEC-A8 ext helper":      "ext::sh -c touch% /tmp/x",
		"SEC-A8 ext no space":    "ext::https://host/repo",
		"SEC-A8 hyphen":          "-oProxyCommand=x",
		"SEC-A8 hyphen host":     "ssh://-oProxyCommand=x/repo",
		"SEC-A8 newline":         "https://host/a\nb",
		"SEC-A8 escaped CR":      "https://host/a%0db",
		"SEC-A2 dots":            "https://host/a/../../b",
		"SEC-A2 dot and ending":  "ssh://./..git",
		"SEC-A2 dots and ending": "https://host/a/...git",
		"SEC-A2 escaped dot":     "https://host/a/%2e.git",
		"too long when escaped":  "https://host/" + strings.Repeat(`"`, 1000),
		"port 0":                 "https://host:000/a",
		"SEC-A2 backslash":       `https://host\@evil/a`,
		"query":                  "https://host/a?token=s3cret",
		"fragment":               "https://host/a#s3cret",
		"unknown scheme":         "gopher://host/a",
		"bad port":               "https://bob:s3cret@host:99999/a",
		"unparsable, with user":  "https://bob:s3cret@ho%zzst/a",
		"too long":               "https://host/" + strings.Repeat("a", 3000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Normalize(in)
			if fault.KindOf(err) != fault.Invalid {
				t.Fatalf("Normalize(%q) = %q, %v; want an Invalid fault", in, got, err)
			}
			if strings.Contains(err.Error()+fault.Sentence(err), "s3cret") {
				t.Errorf("SEC-C3: the error repeats a secret: %v", err)
			}
		})
	}
}

func TestNormalizeIsItsOwnNormalForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.StringMatching(`(https?|ssh|HTTP)://([a-z]{1,4}(:[a-z]{1,3})?@)?[A-Za-z.]{1,9}(:[0-9]{0,5})?(/[A-Za-z.%2e-]{0,6}){0,4}(\.git)?/*`).Draw(t, "url")
		once, err := Normalize(in)
		if err != nil {
			return
		}
		if twice, err := Normalize(once); err != nil || twice != once {
			t.Fatalf("%q → %q → %q, %v", in, once, twice, err)
		}
		if strings.Contains(once, "@") {
			t.Fatalf("%q keeps user information: %q", in, once)
		}
	})
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://bob:s3cret@host/a":       "https://host/a",
		"https://bob:p@ss@host/a?t=s3c#x": "https://host/a",
		"git@host:a/b":                    "host:a/b",
		"bob:s3cret@host":                 "host",
		"bob:s3/cret@host":                "host",
		"https://host/a@b":                "https://host/a@b",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}
