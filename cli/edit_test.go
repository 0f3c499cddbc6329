package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/cli/exit"
)

func TestEditResource(t *testing.T) {
	const at = "/api/v1/applications/argocd/shop/"
	const patched = "POST " + at + "resource/patch"
	answers := func(status int, body string) map[string]answer {
		return map[string]answer{
			"GET " + at + "tree": {200, `{"cursor":"1","nodes":[{"group":"","version":"v1","kind":"ConfigMap","namespace":"shop","name":"a","managed":true}]}`},
			"GET " + at + "resource": {200, `{"live":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop","uid":"u","resourceVersion":"7","managedFields":[]},
				"data":{"colour":"red","key":"hmac:0123"},"status":{"x":1}}}`},
			patched: {status, body},
		}
	}
	// edit runs the command with an editor that is a script of the shell, with the
	// file as $1; texts are what it was given.
	edit := func(t *testing.T, h *fakeHub, script string) (code int, errs string, texts []string) {
		t.Helper()
		home(t)
		dir, kept := t.TempDir(), t.TempDir()
		program := filepath.Join(dir, "editor")
		if err := os.WriteFile(program, []byte("#!/bin/sh\ncp \"$1\" "+dir+"/text-$(ls "+dir+" | wc -l)\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("VISUAL", "")
		t.Setenv("EDITOR", program)
		t.Setenv("TMPDIR", kept)
		code, _, errs = capstan(t, "", "app", "edit-resource", "shop", "--kind", "ConfigMap", "--resource-name", "a", "--server", h.URL, "--token", "t0ken")
		files, err := filepath.Glob(filepath.Join(dir, "text-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		left, err := filepath.Glob(filepath.Join(kept, "*"))
		if err != nil || len(left) != strings.Count(errs, "your text is in ") {
			t.Errorf("%d texts are left, %v: %s", len(left), err, errs)
		}
		return code, errs, texts
	}
	t.Run("CLI-05 edit-resource sends the difference alone, and shows neither status nor managers", func(t *testing.T) {
		h := hub(t, answers(200, `{"live":{}}`))
		code, errs, texts := edit(t, h, `sed -i 's/colour: red/colour: blue/' "$1"`)
		if code != exit.OK || len(texts) != 1 || !strings.Contains(h.bodies[patched], `{\"data\":{\"colour\":\"blue\"}}`) || strings.Contains(h.bodies[patched], `"dryRun":true`) {
			t.Errorf("exit %d, %s, sent %s", code, errs, h.bodies[patched])
		}
		if len(texts) == 1 && (strings.Contains(texts[0], "x: 1") || strings.Contains(texts[0], "managedFields") || strings.Contains(texts[0], "resourceVersion")) {
			t.Errorf("the text is %s", texts[0])
		}
	})
	t.Run("CLI-05 edit-resource opens what is refused again, and keeps the text of who gives up", func(t *testing.T) {
		h := hub(t, answers(400, refusal("CAP-1400", "colour must be a word")))
		code, errs, texts := edit(t, h, `sed -i 's/colour: red/colour: "1"/' "$1"`)
		if code != exit.Usage || len(texts) != 2 || !strings.Contains(h.bodies[patched], `"dryRun":true`) || !strings.Contains(errs, "your text is in ") {
			t.Fatalf("exit %d, %d texts, %s, sent %s", code, len(texts), errs, h.bodies[patched])
		}
		if !strings.HasPrefix(texts[1], "# colour must be a word") || !strings.Contains(texts[1], `colour: "1"`) {
			t.Errorf("the second text is %s", texts[1])
		}
	})
	t.Run("CLI-05 edit-resource sends nothing without a change", func(t *testing.T) {
		for name, script := range map[string]string{"unchanged": ":", "empty": `: > "$1"`, "another form": `sed -i 's/colour: red/colour: "red"/' "$1"`} {
			h := hub(t, answers(200, `{"live":{}}`))
			if code, errs, _ := edit(t, h, script); code != exit.OK || h.bodies[patched] != "" || !strings.Contains(errs, "nothing was changed") {
				t.Errorf("%s: exit %d, %s, sent %s", name, code, errs, h.bodies[patched])
			}
		}
	})
}
