package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// guardFile is the policy of the cluster's owner: a file, or a ConfigMap that is
// mounted as one. It is read again when it has changed. Of one that cannot be
// read nothing counts: the agent then permits nothing.
type guardFile struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	checked time.Time
	raw     []byte
	rules   *apply.GuardRules
}

// guardAge is how old the rules may be that are applied.
const guardAge = time.Second

func newGuardFile(path string, log *slog.Logger) *guardFile { return &guardFile{path: path, log: log} }

// current returns the rules.
func (g *guardFile) current() *apply.GuardRules {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.rules != nil && now.Sub(g.checked) < guardAge {
		return g.rules
	}
	g.checked = now
	raw, err := os.ReadFile(g.path)
	if err == nil && g.rules != nil && bytes.Equal(raw, g.raw) {
		return g.rules
	}
	before := g.rules
	g.raw, g.rules = raw, parseGuard(g.path, raw, err)
	switch {
	case g.rules.Broken != "" && (before == nil || before.Broken != g.rules.Broken):
		g.log.ErrorContext(context.Background(), "the policy of the cluster's owner cannot be read, so nothing is permitted", logkey.Reason, g.rules.Broken)
	case before != nil && g.rules.Broken == "":
		g.log.InfoContext(context.Background(), "the policy of the cluster's owner has changed")
	}
	return g.rules
}

// CheckGuard reports why an agent would permit nothing with a guard file.
func CheckGuard(path string) error {
	raw, err := os.ReadFile(path)
	if broken := parseGuard(path, raw, err).Broken; broken != "" {
		return fault.New(fault.Invalid, "the guard file %s: %s", path, broken)
	}
	return nil
}

// parseGuard reads a guard file; failed is why it could not be opened.
func parseGuard(path string, raw []byte, failed error) *apply.GuardRules {
	if failed != nil {
		return &apply.GuardRules{Broken: "the file " + path + " cannot be opened"}
	}
	rules := apply.DefaultRules()
	err := yamltext.Decode(path, raw, &rules)
	if err == nil {
		err = rules.Validate()
	}
	if err != nil {
		return &apply.GuardRules{Broken: fault.Sentence(err)}
	}
	return &rules
}
