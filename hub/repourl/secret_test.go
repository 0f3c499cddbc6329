package repourl_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestSecretsInURLs(t *testing.T) {
	t.Parallel()
	const canary = "CANARYPW"
	for url, want := range map[string]string{
		"https://user:" + canary + "@git.example.com/a/b.git": "https://git.example.com/a/b.git",
		"http://:" + canary + "@127.0.0.1:9/x.git":            "http://127.0.0.1:9/x.git",
		"https://user:p@ss" + canary + "@h.test/a":            "https://h.test/a",
		"https://ghp_0123456789" + canary + "@github.com/a/b": "https://github.com/a/b",
		"ssh://git:" + canary + "@h.test/a":                   "ssh://h.test/a",
		"!https://u:" + canary + "@h.test/*":                  "!https://h.test/*",
		"HTTPS://u:" + canary + "@h.test/a?b":                 "HTTPS://h.test/a?b",
	} {
		t.Run("SEC-C1 "+strings.ReplaceAll(url, "/", "|"), func(t *testing.T) {
			t.Parallel()
			err := repourl.CheckNoSecret(url)
			if shown, _ := fault.As(err); fault.KindOf(err) != fault.Invalid || shown.Fix == "" || strings.Contains(err.Error(), canary) {
				t.Errorf("error %v", err)
			}
			if got := repourl.RedactText("before " + url + " after"); got != "before "+want+" after" {
				t.Errorf("redacted to %q", got)
			}
			if got := string(repourl.RedactJSON([]byte(`{"n":1e3,"a":[{"u":"` + strings.ReplaceAll(url, "/", `\/`) + `"}]}`))); strings.Contains(got, canary) || !strings.Contains(got, "1e3") {
				t.Errorf("redacted to %s", got)
			}
		})
	}
	for _, url := range []string{
		"https://git.example.com/a/b", "git@git.example.com:a/b.git", "ssh://git@h.test:22/a", "https://my-org@dev.azure.com/my-org/p/_git/r", "*", "!*", "https://*/a@b", "",
	} {
		if err := repourl.CheckNoSecret(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		if text := `{ "a" : "` + url + `" }`; string(repourl.RedactJSON([]byte(text))) != text {
			t.Errorf("%s is changed", text)
		}
	}
}
