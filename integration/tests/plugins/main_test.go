// Package plugins_test tests config management plugins in an installation:
// programs that the operator has declared, a hub, an agent and a cluster.
package plugins_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

var (
	s        *stack.Stack
	canaries = canary.New()
)

// waitLimit is how long a step may hang, on a slow machine too.
const waitLimit = 2 * time.Minute

// orphanMark tells the processes of one plugin from all others of the machine.
var orphanMark = fmt.Sprintf("8000.%d", os.Getpid())

func TestMain(m *testing.M) { os.Exit(suite.Main(m, "plugins", 20*time.Minute, begin)) }

func begin(ctx context.Context, dir string) (stop func() error, err error) {
	folder := filepath.Join(dir, "plugins")
	env := filepath.Join(dir, "operator.env")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(env, []byte("TOKEN="+canaries.Plant("the operator's variable")+"\n"), 0o600); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{
		"shell.yaml":  shellPlugin,
		"hang.yaml":   strings.ReplaceAll(scriptPlugin, "NAME", "hang") + "      sleep 600\n",
		"orphan.yaml": strings.ReplaceAll(scriptPlugin, "NAME", "orphan") + "      (trap '' HUP TERM; sleep " + orphanMark + ") &\n      sleep " + orphanMark + "\n",
		"fail.yaml":   strings.ReplaceAll(strings.ReplaceAll(scriptPlugin, "NAME", "fail"), "ENV", env) + "      echo \"the token $TOKEN is refused\" >&2; exit 3\n",
		"secret.yaml": strings.ReplaceAll(strings.ReplaceAll(scriptPlugin, "NAME", "secret"), "ENV", env) + "      printf 'apiVersion: v1\\nkind: Secret\\nmetadata: {name: injected}\\nstringData: {token: \"%s\"}\\n' \"$TOKEN\"\n",
	} {
		text = strings.ReplaceAll(text, "    capstan.dev/env-file: ENV\n", "")
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	s, err = suite.Installed(ctx, dir, stack.Options{
		Clusters: []string{"in-cluster"},
		Settings: map[string]any{"render": map[string]any{"plugins": map[string]any{"folder": folder, "timeout": "3s", "grace": "1s"}}},
	})
	return s.Stop, err
}

// shellPlugin makes a ConfigMap of what it is given.
const shellPlugin = `apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata: {name: shell}
spec:
  version: v1
  init: {command: [sh, -c, 'cat message > $HOME/message']}
  generate:
    command: [sh, -c]
    args:
    - |
      printf 'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\ndata:\n'
      printf '  message: "%s"\n  tier: "%s"\n  replicas: "%s"\n  app: "%s"\n' "$(cat $HOME/message)" "$ARGOCD_ENV_TIER" "$PARAM_REPLICAS" "$ARGOCD_APP_NAME"
  discover: {fileName: message}
  parameters:
    static: [{name: replicas, title: Replicas, itemType: number, string: "1"}]
    dynamic: {command: [sh, -c, 'printf "[{\"name\":\"from-file\",\"string\":\"%s\"}]" "$(cat message)"']}
`

const scriptPlugin = `apiVersion: argoproj.io/v1alpha1
kind: ConfigManagementPlugin
metadata:
  name: NAME
  annotations:
    capstan.dev/env-file: ENV
spec:
  generate:
    command: [sh, -c]
    args:
    - |
`
