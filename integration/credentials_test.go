package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// credentials are forms that only secrets have. Tests make what they need when
// they run, so no file has one.
func credentials() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"a private key":                regexp.MustCompile(`-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s+[A-Za-z0-9+/=]{60}`),
		"a private key of OpenPGP":     regexp.MustCompile(`-----BEGIN PGP PRIVATE KEY BLOCK-----\s+[A-Za-z0-9+/=]{60}`),
		"an access key of AWS":         regexp.MustCompile(`\bAKIA[0-9A-Z]{16}\b`),
		"a token of GitHub":            regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_[A-Za-z0-9_]{60,}\b`),
		"a token of GitLab":            regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{20}\b`),
		"a token of Slack":             regexp.MustCompile(`\bxox[abprs]-[0-9]{8,}-[A-Za-z0-9-]{20,}`),
		"a key of Google":              regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}\b`),
		"a secret key of age":          regexp.MustCompile(`\bAGE-SECRET-KEY-1[0-9A-Z]{58}\b`),
		"a token of npm":               regexp.MustCompile(`\bnpm_[A-Za-z0-9]{36}\b`),
		"a token of Vault":             regexp.MustCompile(`\bhvs\.[A-Za-z0-9_-]{24,}\b`),
		"a token that somebody signed": regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{20,}\.eyJ[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{40,}\b`),
	}
}

// stands reports whether a text stands for a secret and is none: it has hardly
// any characters but one.
func stands(text []byte) bool {
	different := map[byte]bool{}
	for _, c := range text {
		different[c] = true
	}
	return len(different) < 8
}

func TestNoCredentials(t *testing.T) {
	t.Parallel()
	list, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	names := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	if len(names) < 1000 {
		t.Fatalf("%d files: the search would show nothing", len(names))
	}
	t.Run("SEC-L3 no file of the repository has a credential", func(t *testing.T) {
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
			if err != nil {
				continue // a link, or deleted in the work tree
			}
			for what, form := range credentials() {
				if at := form.FindIndex(text); at != nil && !stands(text[at[0]:at[1]]) {
					t.Errorf("%s, line %d, has %s", name, 1+strings.Count(string(text[:at[0]]), "\n"), what)
				}
			}
		}
	})
	t.Run("SEC-L3 the search finds what it is for", func(t *testing.T) {
		sixty := strings.Repeat("Ab3+", 15)
		for what, text := range map[string]string{
			"a private key": "-----BEGIN " + "RSA PRIVATE KEY-----\n" + sixty, "a token of GitHub": "gh" + "p_" + strings.Repeat("a1B", 12),
			"an access key of AWS": "AKIA" + strings.Repeat("A1", 8), "a secret key of age": "AGE-SECRET-" + "KEY-1" + strings.Repeat("A", 58),
			"a token that somebody signed": "eyJ" + strings.Repeat("a", 20) + ".eyJ" + strings.Repeat("b", 20) + "." + strings.Repeat("c", 43),
		} {
			if !credentials()[what].MatchString(text) {
				t.Errorf("%s is not found", what)
			}
		}
	})
}

// What must pass before a change is merged looks for insecure code.
func TestSecurityLint(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	lint, script, makefile := read(".golangci.yml"), read(".ci/run"), read("Makefile")
	t.Run("SEC-L3 gosec, noctx and the checks of errors and queries are a part of lint, which is a part of CI", func(t *testing.T) {
		enabled, _, _ := strings.Cut(lint, "settings:")
		for _, linter := range []string{"gosec", "noctx", "errcheck", "rowserrcheck", "staticcheck"} {
			if !regexp.MustCompile(`(?m)^    - ` + linter + `\b`).MatchString(enabled) {
				t.Errorf("%s is not enabled in .golangci.yml", linter)
			}
		}
		if !strings.Contains(makefile, "$$linter run") || !strings.Contains(script, "make lint || status=1") {
			t.Error("make lint does not run the linters, or CI does not run make lint")
		}
	})
	t.Run("SEC-L3 each rule of gosec that is switched off has a reason", func(t *testing.T) {
		_, rest, _ := strings.Cut(lint, "gosec:\n      excludes:\n")
		for line := range strings.SplitSeq(rest, "\n") {
			rule, reason, ok := strings.Cut(strings.TrimSpace(line), " # ")
			if !strings.HasPrefix(rule, "- G") {
				break
			}
			if !ok || reason == "" {
				t.Errorf("%s has no reason", rule)
			}
		}
	})
	t.Run("SEC-L3 known vulnerabilities fail lint, and so CI", func(t *testing.T) {
		_, recipe, _ := strings.Cut(makefile, "\nlint: ")
		recipe, _, _ = strings.Cut(recipe, "\n\n")
		if !strings.Contains(recipe, "\t@$(MAKE) vulns") || !strings.Contains(makefile, "cd integration/tools/vulns && $(GO) vet ./... && $(GO) test -count=1 ./... && $(GO) run . -root") {
			t.Error("make lint does not run integration/tools/vulns")
		}
		if module := read("integration/tools/vulns/go.mod"); !strings.Contains(module, "golang.org/x/vulndb v") || !strings.Contains(module, "golang.org/x/vuln/cmd/govulncheck") {
			t.Error("its database or govulncheck has no version")
		}
		if !regexp.MustCompile(`(?m)^toolchain go1\.`).MatchString(read("go.mod")) {
			t.Error("go.mod names no toolchain, whose standard library the check could assume")
		}
	})
	t.Run("SEC-L3 what makes an exception true is a rule of the linter", func(t *testing.T) {
		for _, rule := range []string{`^echo\.Context\.RealIP$`, `^middleware\.(Proxy|RateLimiter|Logger|RequestLogger)`, "analyze-types: true", "    - forbidigo "} {
			if !strings.Contains(lint, rule) {
				t.Errorf(".golangci.yml has no %q", rule)
			}
		}
	})
}
