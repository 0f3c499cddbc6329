package hub_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestParseKustomizeOptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]hub.KustomizeOptions{
		"":                                       {},
		"--load-restrictor LoadRestrictionsNone": {LoadAnywhere: true},
		"--load_restrictor=LoadRestrictionsNone": {LoadAnywhere: true},
		"--load-restrictor=LoadRestrictionsRootOnly --reorder none": {},
		"--reorder=legacy  --enable-managedby-label":                {Sorted: true, ManagedBy: true},
		"--enable-helm --helm-kube-version 1.30 --helm-api-versions a/v1,b/v1 --helm-api-versions=c/v1": {
			Helm: true, HelmVersion: "1.30", HelmAPIs: []string{"a/v1", "b/v1", "c/v1"},
		},
		"--enable-helm=false --enable-alpha-plugins=false --stack-trace": {},
	} {
		t.Run("KUST-08 "+text, func(t *testing.T) {
			t.Parallel()
			got, err := hub.ParseKustomizeOptions(text)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	for text, says := range map[string]string{
		"--enable-alpha-plugins":           "starts no program",
		"--enable-helm --enable-exec":      "--enable-exec",
		"--network":                        "no network",
		"--helm-command=/bin/helm":         "--helm-command",
		"--mount type=bind":                "--mount",
		"-o out":                           "not written to files",
		"--output=out":                     "not written to files",
		"--load-restrictor":                "has no value",
		"--load-restrictor=None":           "LoadRestrictionsNone or LoadRestrictionsRootOnly",
		"--reorder alphabetical":           "legacy or none",
		"--enable-helm=perhaps":            "true or false",
		"--load-restrictors=x":             `"--load-restrictors"`,
		"build --enable-helm":              `"build"`,
		"--enable-helm; rm -rf /":          `"--enable-helm;"`,
		"--" + strings.Repeat("x", 10_000): "…",
	} {
		_, err := hub.ParseKustomizeOptions(text)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), says) || len(fault.Sentence(err)) > 400 {
			t.Errorf("KUST-08 ParseKustomizeOptions(%.60q): %.400v; want %q", text, err, says)
		}
	}
}
