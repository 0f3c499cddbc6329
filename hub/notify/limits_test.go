package notify

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

const canary = "canary-of-the-secret-94b1"

// trialVars are what a template may read of the sample.
func trialVars() map[string]any {
	a := sampleApp()
	op := sampleOperation("o", "r1")
	op.Options.Infos = []hub.Info{{Name: "ticket", Value: "OPS-7"}}
	a.Status.Operation = &op
	vars := Read(map[string]string{"context": "argocdUrl: https://cd.example.com\n"}).Present(Input{
		App: a, Project: &hub.Project{Meta: hub.Meta{Name: "shop"}, Spec: json.RawMessage(`{"description":"Shop"}`)},
		Secrets: map[string]string{"token": canary},
		Lookups: Lookups{Commit: func(string) (Commit, error) { return Commit{Message: "Fix it", Author: "Ann"}, nil }},
	})
	return vars.Template(Service{Name: "slack", Type: "slack"}, "dev")
}

func renderText(t *testing.T, text string) (string, error) {
	t.Helper()
	value, err := json.Marshal(map[string]string{"message": text})
	if err != nil {
		t.Fatal(err)
	}
	template, err := ReadTemplate("x", string(value))
	if err != nil {
		return "", err
	}
	message, err := Render([]Template{template}, Service{Name: "slack", Type: "slack"}, trialVars())
	if err != nil {
		return "", err
	}
	out, _ := message["message"].(string)
	return out, nil
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"NOTI-07 app, appProject, context, serviceType and recipient": {
			"{{.app.metadata.name}} {{.appProject.spec.description}} {{.context.argocdUrl}} {{.serviceType}} {{.recipient}}", "web Shop https://cd.example.com slack dev",
		},
		"NOTI-07 a secret by its name":             {"{{.secrets.token}}", canary},
		"NOTI-07 functions of sprig":               {"{{.app.metadata.name | upper | trunc 2}} {{default \"x\" .app.metadata.none}} {{list 1 2 | join \"-\"}}", "WE x 1-2"},
		"NOTI-07 messages are texts, not HTML":     {"{{\"<b>\"}}", "<b>"},
		"NOTI-08 time":                             {"{{((call .time.Parse .app.status.operationState.finishedAt).Add .time.Hour).Format \"15:04\"}}", "13:00"},
		"NOTI-08 strings":                          {"{{call .strings.ReplaceAll \"a-b\" \"-\" \"_\"}} {{call .strings.ToUpper \"a\"}}{{call .strings.ToLower \"B\"}}", "a_b Ab"},
		"NOTI-08 sync.GetInfoItem":                 {"{{call .sync.GetInfoItem .app \"ticket\"}}", "OPS-7"},
		"NOTI-08 repo.RepoURLToHTTPS":              {"{{call .repo.RepoURLToHTTPS \"git@git.example.com:team/web.git\"}}", "https://git.example.com/team/web.git"},
		"NOTI-08 repo.FullNameByRepoURL":           {"{{call .repo.FullNameByRepoURL .app.spec.source.repoURL}}", "team/web"},
		"NOTI-08 repo.QueryEscape":                 {"{{call .repo.QueryEscape \"a b&c\"}}", "a+b%26c"},
		"NOTI-08 repo.GetCommitMetadata":           {"{{(call .repo.GetCommitMetadata .app.status.sync.revision).Author}}: {{(call .repo.GetCommitMetadata \"x\").Message}}", "Ann: Fix it"},
		"NOTI-07 loops over what there is":         {"{{range $k, $v := .app.metadata.labels}}{{$k}}={{$v}}{{end}}", "team=shop"},
		"SEC-C1 addresses are without credentials": {"{{.app.spec.source.repoURL}}", "https://git.example.com/team/web.git"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := renderText(t, c.text); err != nil || got != c.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	for name, text := range map[string]string{
		"all of it": "{{.}}", "as JSON": "{{toJson .app}} {{toJson .appProject}} {{toJson .context}}", "in Go's form": "{{printf \"%#v %+v %v\" . . .}}", "the secrets as a whole": "{{.secrets}} {{toJson .secrets}} {{printf \"%v\" .secrets}}",
		"the application": "{{range .app}}{{.}}{{end}}",
	} {
		t.Run("SEC-C7 a template that prints "+name+" prints no secret", func(t *testing.T) {
			t.Parallel()
			got, err := renderText(t, text)
			if err != nil || got == "" {
				t.Fatal(got, err)
			}
			if strings.Contains(got, canary) || strings.Contains(got, "hunter2") {
				t.Errorf("%s", got)
			}
		})
	}
	t.Run("NOTI-07 values in mail of HTML are escaped", func(t *testing.T) {
		t.Parallel()
		template, err := ReadTemplate("x", "email:\n  subject: '{{.app.metadata.name}} <b>'\n  body: '<p title=\"{{.recipient}}\">{{.recipient}}</p>'\n")
		if err != nil {
			t.Fatal(err)
		}
		vars := trialVars()
		vars["recipient"] = `<script>alert("x")</script>`
		message, err := Render([]Template{template}, Service{Name: "email", Type: "email", Options: json.RawMessage(`{"html":true}`)}, vars)
		if err != nil {
			t.Fatal(err)
		}
		part := message["email"].(map[string]any) //nolint:forcetypeassert // the template's own
		if body := part["body"].(string); strings.Contains(body, "<script>") || !strings.Contains(body, "&lt;script&gt;") || part["subject"] != "web <b>" {
			t.Errorf("%s", part)
		}
	})
}

func TestBudgets(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"the environment":                   `{{env "HOME"}}`,
		"names of hosts":                    `{{getHostByName "example.com"}}`,
		"keys":                              `{{genPrivateKey "rsa"}}`,
		"a long repetition":                 `{{repeat 1000000 "x"}}`,
		"a long indentation":                `{{indent 100000000 "x"}}`,
		"a long list":                       `{{range until 1000000}}x{{end}}`,
		"loops in loops in loops":           `{{range .app}}{{range $.app}}{{range $.app}}x{{end}}{{end}}{{end}}`,
		"a template that calls itself":      `{{define "x"}}{{template "x"}}{{end}}{{template "x"}}`,
		"a text that grows":                 `{{$a := "xxxxxxxx"}}` + strings.Repeat(`{{$a = printf "%s%s%s%s%s%s%s%s" $a $a $a $a $a $a $a $a}}`, 30) + `{{$a}}`,
		"a text that grows by replacements": `{{$a := "xxxxxxxx"}}` + strings.Repeat(`{{$a = replace "x" "xxxxxxxxxxxxxxxx" $a}}`, 30) + `{{$a}}`,
		"a list that grows":                 `{{$a := list 1 2 3 4}}` + strings.Repeat(`{{$a = concat $a $a $a $a}}`, 30) + `{{len $a}}`,
		"a wide format":                     `{{printf "%1000000d" 1}}`,
		"a long text to split":              `{{$a := "xx"}}` + strings.Repeat(`{{$a = cat $a $a}}`, 30) + `{{len (splitList "x" $a)}}`,
	} {
		t.Run("SEC-B10 a template asks for "+name, func(t *testing.T) {
			t.Parallel()
			_, err := renderText(t, text)
			if kind := fault.KindOf(err); err == nil || kind != fault.Invalid && kind != fault.Exceeded {
				t.Errorf("renderText() = %v", err)
			}
		})
	}
	for name, text := range map[string]string{
		"a range":                      "len(1..1000000) > 0",
		"a variable":                   "let x = app; x == app",
		"many loops in each other":     "any(app, {any(app, {any(app, {true})})})",
		"a repetition":                 `repeat("x", 1000000) == ""`,
		"a function that is not there": `exec("ls") == ""`,
		"a method that is not there":   `app.metadata.Close()`,
		"too many parts":               strings.Repeat("1+", 700) + "1 == 2",
		"a long text":                  `"` + strings.Repeat("x", 10_000) + `" == ""`,
	} {
		t.Run("SEC-B10 a trigger with "+name, func(t *testing.T) {
			t.Parallel()
			value, err := json.Marshal([]map[string]any{{"when": text, "send": []string{"a"}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ReadTrigger("x", string(value)); err == nil || !(fault.KindOf(err) == fault.Invalid || fault.KindOf(err) == fault.Exceeded) {
				t.Errorf("ReadTrigger() = %v", err)
			}
		})
	}
	t.Run("NOTI-04 a condition that cannot be evaluated does not hold, and says why", func(t *testing.T) {
		t.Parallel()
		trigger, err := ReadTrigger("x", "- when: app.status.none.other == 1\n  send: [a]\n- when: app.metadata.name == 'web'\n  send: [b]\n")
		if err != nil {
			t.Fatal(err)
		}
		got := trigger.Run(trialVars())
		if got[0].Triggered || got[0].Problem == "" || !got[1].Triggered {
			t.Errorf("%+v", got)
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"message: '{{.app.metadata.name}}'", "message: '{{range .app}}{{.}}{{end}}'", "slack: {attachments: '[{}]'}", "{", "message: [1]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		template, err := ReadTemplate("x", text)
		if err != nil {
			return
		}
		message, err := Render([]Template{template}, Service{Name: "slack", Type: "slack"}, map[string]any{"app": map[string]any{"a": "b"}})
		if out, _ := json.Marshal(message); err == nil && len(out) > maxRendered {
			t.Errorf("%d bytes", len(out))
		}
	})
}

func FuzzTrigger(f *testing.F) {
	for _, text := range []string{"app.status.health.status == 'Degraded'", "any(app.status.conditions, {.type == 'x'})", "time.Parse(app.x).Add(1 * time.Minute)", "1 +"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		value, _ := json.Marshal([]map[string]any{{"when": text, "oncePer": text}})
		if trigger, err := ReadTrigger("x", string(value)); err == nil {
			trigger.Run(map[string]any{"app": map[string]any{"status": map[string]any{"health": map[string]any{"status": "Degraded"}}}, "time": moments()})
		}
	})
}

func TestMask(t *testing.T) {
	t.Parallel()
	s := Service{Name: "x", Type: "webhook", Options: json.RawMessage(`{"url":"https://ci.example.com/hook","headers":[{"name":"X-Key","value":"header-value-1"}],"basicAuth":{"username":"bot","password":"pass-word-2"}}`)}
	mask := Mask(append(s.Hidden(map[string]string{"token": "a\"b/c d9"}), "short"))
	for name, text := range map[string]string{
		"a value": `a"b/c d9`, "in JSON": `{"x":"a\"b/c d9"}`, "in an address": "https://x/?t=a%22b%2Fc+d9", "in a header": "Basic " + "YSJiL2MgZDk=", "a header of the service": "header-value-1", "a password of the service": "pass-word-2",
	} {
		t.Run("SEC-C1 "+name+" is masked", func(t *testing.T) {
			t.Parallel()
			got := mask.Replace(text)
			for _, secret := range []string{`a"b/c d9`, `a\"b/c d9`, "a%22b%2Fc+d9", "YSJiL2MgZDk=", "header-value-1", "pass-word-2"} {
				if strings.Contains(got, secret) {
					t.Errorf("%s", got)
				}
			}
		})
	}
	if got := mask.Replace("https://ci.example.com/hook by bot"); got != "https://ci.example.com/hook by bot" {
		t.Errorf("%s", got)
	}
}
