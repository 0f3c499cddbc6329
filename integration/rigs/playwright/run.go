package playwright

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Options say which specs are run, and how.
type Options struct {
	Web   string        // the folder of the console's sources
	Specs string        // names of files of web/e2e, with commas
	Acts  *Acts         // what happens outside of the console
	Env   []string      // what the specs are to know besides, as NAME=value
	Limit time.Duration // default 10 minutes
}

// Run runs specs, and reports each of their tests as a subtest. Pictures are
// kept where CAPSTAN_SHOTS says, else with the test's other files.
func Run(t *testing.T, o Options) {
	t.Helper()
	work, shots, kept := t.TempDir(), os.Getenv("CAPSTAN_SHOTS"), "yes"
	if shots == "" {
		shots, kept = t.TempDir(), "no"
	}
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(o.Limit, 10*time.Minute))
	defer cancel()
	browser := exec.CommandContext(ctx, filepath.Join("node_modules", ".bin", "playwright"), "test")
	browser.Dir = o.Web
	browser.Env = append(append(os.Environ(), "CAPSTAN_SPECS="+o.Specs, "CAPSTAN_SHOTS="+shots, "CAPSTAN_KEPT="+kept, "CAPSTAN_E2E_WORK="+work), o.Acts.Env()...)
	browser.Env = append(browser.Env, o.Env...)
	// An interrupt lets Playwright close its browser.
	browser.Cancel = func() error { return browser.Process.Signal(os.Interrupt) }
	browser.WaitDelay = 30 * time.Second
	out, err := browser.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("the spec failed: %v", err)
	}
	Subtests(t, filepath.Join(work, "report.json"))
}
