package apppage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/kubelet"
)

// ownStyle is the style sheet of the hub's operator.
const ownStyle = "nav { border-right: 3px solid rgb(1, 2, 3); }\n"

// settings are acts that set keys of argocd-cm; nil takes one away.
func settings(all map[string]map[string]any) map[string]func(context.Context) (string, error) {
	out := map[string]func(context.Context) (string, error){}
	for name, values := range all {
		out[name] = func(ctx context.Context) (string, error) {
			body := map[string]any{"values": map[string]any{"argocd-cm": values}}
			return "", s.API.Do(ctx, http.MethodPatch, "/api/v1/settings", body, nil)
		}
	}
	return out
}

// TestAppearance runs web/e2e/appearance.spec.ts: themes, what a tenant sets for
// its console, links, and addresses of Argo CD.
func TestAppearance(t *testing.T) {
	deploy(t, "themed", map[string]string{"app/web.yaml": deployment("web", 1, ""), "app/config.yaml": configMap("settings", "on")})
	podsOf(t, "themed", 1)
	banner := func(place string, permanent any) map[string]any {
		return map[string]any{
			"ui.bannercontent": "Maintenance <b>on</b> Sunday", "ui.bannerurl": "https://status.example.com/", "ui.bannerposition": place, "ui.bannerpermanent": permanent,
		}
	}
	acts := settings(map[string]map[string]any{
		"style": {"ui.cssurl": "./custom/acme.css"}, "style-elsewhere": {"ui.cssurl": "https://evil.example.com/x.css"}, "no-style": {"ui.cssurl": nil},
		"banner-top": banner("top", nil), "banner-both": banner("both", nil), "banner-bottom": banner("bottom", "true"),
		"no-banner": {"ui.bannercontent": nil, "ui.bannerurl": nil, "ui.bannerposition": nil, "ui.bannerpermanent": nil},
		"help": {
			"help.chatUrl": "https://chat.example.com/deployments", "help.chatText": "Ask the platform team",
			"help.download.linux-amd64": "https://example.com/capstan-linux-amd64", "help.download.darwin-arm64": "https://example.com/capstan-darwin-arm64",
		},
		"links": {
			"application.links": "- title: Runbook\n  url: https://wiki.example.com/{{.app.metadata.name}}\n  description: What to do at night\n  if: app.spec.project == 'default'\n" +
				"- {title: Elsewhere, url: 'https://elsewhere.example.com', if: \"app.spec.project == 'other'\"}\n- {title: Bad, url: '{{.app.metadata.name}}'}\n",
			"project.links":  "- {title: Budget, url: 'https://money.example.com/{{.project.metadata.name}}'}\n",
			"resource.links": "- title: Dashboard\n  url: https://metrics.example.com/{{.resource.metadata.namespace}}/{{.resource.metadata.name}}\n  if: resource.kind == 'Deployment'\n",
		},
	})
	before := settings(map[string]map[string]any{"all": {
		"application.links": nil, "project.links": nil, "resource.links": nil, "help.chatUrl": nil, "help.chatText": nil,
		"help.download.linux-amd64": nil, "help.download.darwin-arm64": nil, "ui.cssurl": nil, "ui.bannercontent": nil, "ui.bannerurl": nil, "ui.bannerposition": nil, "ui.bannerpermanent": nil,
	}})["all"]
	defer func() { // the tests after this one share the hub
		if _, err := before(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	run(t, "appearance", acts)
}

// TestForms runs web/e2e/forms.spec.ts: the forms of Access, Platform and projects.
func TestForms(t *testing.T) { run(t, "forms", nil) }

// TestObjects runs web/e2e/objects.spec.ts: the list of all objects, and terminals.
func TestObjects(t *testing.T) {
	deploy(t, "shell", map[string]string{"app/web.yaml": deployment("web", 1, "")})
	deploy(t, "bulk", numbered("piece", 260, 0))
	pod := podsOf(t, "shell", 1)[0]
	kubelets.Container("shell", pod, "app").Run(shell)
	kubelets.Container("shell", pod, "side").Run(shell)
	acts := settings(map[string]map[string]any{
		"exec-on": {"exec.enabled": "true"}, "exec-off": {"exec.enabled": "false"},
		"resources-off": {"ui.view.resources.disabled": "true"}, "resources-on": {"ui.view.resources.disabled": nil},
	})
	acts["pod"] = func(context.Context) (string, error) { return pod, nil }
	run(t, "objects", acts)
}

// shell is what the containers run: it echoes as a terminal does, and knows some
// commands.
func shell(_ context.Context, argv []string, _ bool, in io.Reader, out, _ io.Writer, resize <-chan kubelet.Size) error {
	if argv[0] != "sh" {
		return errors.New("executable file not found in $PATH")
	}
	fmt.Fprint(out, "$ ")
	go func() { // ends with the session
		for size := range resize {
			fmt.Fprintf(out, "[%dx%d]", size.Width, size.Height)
		}
	}()
	var line []byte
	one := make([]byte, 1)
	for {
		if _, err := in.Read(one); err != nil {
			return nil
		}
		if one[0] != '\r' {
			line = append(line, one[0])
			_, _ = out.Write(one)
			continue
		}
		switch text := string(line); text {
		case "exit":
			return kubelet.ExitError(7)
		case "colours":
			fmt.Fprint(out, "\r\n\x1b[38;2;200;30;30mtrue colour\x1b[0m and \x1b[32mgreen\x1b[0m\r\n$ ")
		default:
			fmt.Fprintf(out, "\r\nyou said %s\r\n$ ", text)
		}
		line = line[:0]
	}
}
