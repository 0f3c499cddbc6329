package worker

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
)

// A hub that ends leaves no worker behind, not even one that reads nothing.
func TestAWorkerEndsWithItsHub(t *testing.T) {
	t.Parallel()
	for _, probe := range []string{"spin", "sleep"} {
		t.Run(probe, func(t *testing.T) {
			t.Parallel()
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			theirs := os.NewFile(uintptr(pair[1]), "worker's end")
			args := []string{render.WorkerCommand}
			if raceDetector {
				args = append(args, "--sandbox="+render.SandboxNone)
			}
			cmd := exec.Command("/proc/self/exe", args...)
			cmd.ExtraFiles = []*os.File{theirs}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			theirs.Close()
			wire := render.NewWire(os.NewFile(uintptr(pair[0]), "hub's end"))
			if _, err := wire.Receive(1 << 20); err != nil {
				t.Fatal(err)
			}
			ask := render.Ask{Application: "probe-" + probe, Sources: []hub.Source{{Path: "."}}, Limits: render.DefaultLimits()}
			if err := wire.Send(render.FrameAsk, ask); err != nil {
				t.Fatal(err)
			}
			if err := wire.Close(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the test's own deadline ends a failure
		})
	}
}

// The version of the renderers is part of what a stored snapshot is found by,
// so a new library must not go by unnoticed.
func TestVersionNamesTheLibraries(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for module, name := range map[string]string{
		"helm.sh/helm/v3": "helm", "github.com/Masterminds/sprig/v3": "sprig", "sigs.k8s.io/kustomize/api": "kustomize",
	} {
		found := regexp.MustCompile(regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(text)
		if found == nil || !strings.Contains(render.Version, name+"/"+string(found[1])) {
			t.Errorf("render.Version %q does not name %s as go.mod does: %s", render.Version, module, found)
		}
	}
}
