package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/sandbox"
	"github.com/capstan-cd/capstan/shared/fault"
)

// rogue is a worker that a tenant controls: it speaks the protocol and lies.
func rogue(mode string) int {
	wire, err := openWire()
	if err != nil {
		return 2
	}
	raw := os.NewFile(wireFile, "hub")
	defer runtime.KeepAlive(raw) // its finalizer would close the wire
	version := render.Version
	if mode == "version" {
		version = "0"
	}
	if mode == "uncaged" {
		_ = wire.Send(render.FrameFailed, render.Fail(uncaged(sandbox.ErrUnsupported)))
		return 1
	}
	die := func(step string) {
		if mode == "killed "+step {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			time.Sleep(time.Hour)
		}
	}
	die("before it says hello")
	if err := wire.Send(render.FrameHello, render.Hello{Version: version, Sandbox: "rogue"}); err != nil {
		return 1
	}
	die("while it is idle")
	if _, err := wire.Receive(1 << 20); err != nil {
		return 1
	}
	ref := hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: "a"}
	body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	ask := func(q render.Question) render.Reply {
		if err := wire.Send(render.FrameQuery, q); err != nil {
			os.Exit(1)
		}
		f, err := wire.Receive(1 << 20)
		if err != nil {
			os.Exit(1)
		}
		r, _ := render.Decode[render.Reply](f, render.FrameReply)
		return r
	}
	die("before it reads")
	if strings.HasPrefix(mode, "killed while it reads") {
		_ = wire.Send(render.FrameQuery, render.Question{Op: render.OpRead, Names: []string{"large.bin"}})
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	if strings.HasPrefix(mode, "killed") {
		ask(render.Question{Op: render.OpRead, Names: []string{"a.yaml"}})
		die("after it read")
		_ = wire.Send(render.FrameMade, ref, body)
		die("in the middle of its objects")
	}
	switch mode {
	case "facts":
		name := strings.Repeat("x", 1<<20)
		for i := range 1 << 20 {
			if r := ask(render.Question{Op: render.OpFact, Names: []string{fmt.Sprint(render.FactAPIVersion, i, name)}}); r.Failure == nil {
				return 0
			}
		}
	case "many-facts":
		for i := range 1 << 20 {
			if r := ask(render.Question{Op: render.OpFact, Names: []string{fmt.Sprintf("%s%0500d", render.FactAPIVersion, i)}}); r.Failure != nil {
				_ = wire.Send(render.FrameFailed, r.Failure)
				break
			}
		}
	case "same-question":
		names := slices.Repeat([]string{"a.yaml"}, 100_000)
		for {
			if r := ask(render.Question{Op: render.OpStat, Names: names}); r.Failure != nil {
				_ = wire.Send(render.FrameFailed, r.Failure)
				break
			}
		}
	case "fact-with-zero":
		if r := ask(render.Question{Op: render.OpFact, Names: []string{"env:a\x00b"}}); r.Failure != nil {
			_ = wire.Send(render.FrameFailed, r.Failure)
		}
	case "case-of-keys": // an agent would read another kind than a lax reader
		body = []byte(`{"apiVersion":"v1","kind":"ClusterRole","Kind":"ConfigMap","metadata":{"name":"a"}}`)
	case "key-twice":
		body = []byte(`{"apiVersion":"v1","kind":"ConfigMap","kind":"ClusterRole","metadata":{"name":"a"}}`)
	case "name-with-zero":
		ref.Name, body = "a\x00", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a\u0000"}}`)
	case "long-name":
		ref.Name = strings.Repeat("a", 100_000)
		body = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + ref.Name + `"}}`)
	case "strange-hook":
		ref.Hook = "PreSync\x00"
	case "long-hook":
		ref.Hook = strings.Repeat("PreSync,", 1000) + "PreSync"
	case "name-is-no-text":
		body = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":["a"]}}`)
	case "deep":
		body = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"d":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}")
	case "wrong-name":
		ref.Kind = "ClusterRole"
	case "wrong-namespace":
		ref.Namespace = "kube-system"
	case "not-json":
		body = []byte("{")
	case "no-name":
		ref.Name, body = "", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`)
	case "count":
		_ = wire.Send(render.FrameFinished, render.Finished{Objects: 3})
	case "endless":
		for wire.Send(render.FrameMade, ref, body) == nil {
			continue
		}
	case "huge-object":
		_ = wire.Send(render.FrameMade, ref, make([]byte, 8<<20))
	case "huge-frame":
		head := []byte{byte(render.FrameMade), 0, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint32(head[5:], 1<<31)
		_, _ = raw.Write(head)
	case "garbage":
		_, _ = raw.Write([]byte(strings.Repeat("garbage", 1000)))
	case "questions":
		for {
			ask(render.Question{Op: render.OpRead, Names: []string{"a.yaml"}})
		}
	case "half":
		_, _ = raw.Write([]byte{byte(render.FrameMade), 0, 0})
		time.Sleep(time.Hour)
	case "deaf":
		for range 100_000 {
			_ = wire.Send(render.FrameQuery, render.Question{Op: render.OpRead, Names: []string{"large.bin"}})
		}
		time.Sleep(time.Hour)
	case "gone":
		return 0
	case "blames-hub":
		_ = wire.Send(render.FrameFailed, render.Failure{Kind: fault.Denied, Cause: "\x1b[31mthe hub is wrong"})
	case "escapes":
		if r := ask(render.Question{Op: render.OpRead, Names: []string{"../../etc/passwd"}}); r.Failure == nil {
			return 0
		}
		if r := ask(render.Question{Op: render.OpRead, Source: 7, Names: []string{"a.yaml"}}); r.Failure == nil {
			return 0
		}
		_ = wire.Send(render.FrameFailed, render.Failure{Kind: fault.Invalid, Cause: "refused twice"})
	}
	_ = wire.Send(render.FrameMade, ref, body)
	_ = wire.Send(render.FrameFinished, render.Finished{Objects: 1, Warnings: []string{"\x1b]0;title\x07hello"}})
	for i := 0; mode == "stirs"; i++ {
		_ = i // work without a request
	}
	time.Sleep(time.Hour)
	return 0
}

func TestOutputOfAWorkerIsValidated(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		kind fault.Kind
		says string
	}{
		"wrong-name":      {fault.Internal, "under the name"},
		"wrong-namespace": {fault.Internal, "under the name"},
		"not-json":        {fault.Internal, "not JSON"},
		"no-name":         {fault.Internal, "under the name"},
		"count":           {fault.Internal, "made 3 objects and sent 0"},
		"endless":         {fault.Exceeded, "more than"},
		"huge-object":     {fault.Exceeded, "limit"},
		"huge-frame":      {fault.Exceeded, "limit"},
		"garbage":         {"", ""}, // it ends in any case
		"questions":       {fault.Exceeded, "took more than"},
		"half":            {fault.Exceeded, "took more than"},
		"deaf":            {fault.Exceeded, "took more than"},
		"gone":            {fault.Exceeded, "broke off"},
		"blames-hub":      {fault.Internal, "the hub is wrong"},
		"escapes":         {fault.Invalid, "refused twice"},
		"version":         {fault.Internal, `version "0"`},
		"facts":           {fault.Exceeded, ""},
		"many-facts":      {fault.Exceeded, ""},
		"same-question":   {fault.Exceeded, ""},
		"fact-with-zero":  {fault.Invalid, "not the name of an API"},
		"case-of-keys":    {fault.Internal, "under the name"},
		"key-twice":       {fault.Internal, "under the name"},
		"name-with-zero":  {fault.Internal, "cannot be printed"},
		"long-name":       {fault.Internal, "limit of 512"},
		"strange-hook":    {fault.Internal, "sent the hook"},
		"long-hook":       {fault.Internal, "sent the hook"},
		"name-is-no-text": {fault.Internal, "not JSON"},
		"deep":            {fault.Internal, "not JSON"},
	} {
		t.Run("SEC-A "+mode, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, func(cfg *render.Config) {
				cfg.Arguments = []string{"rogue-worker", mode}
				if c.says == "" || c.says == "took more than" { // the others end before the timeout
					cfg.Limits.Timeout = time.Second
				}
				cfg.Limits.Objects = 1000
			})
			req := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap, "large.bin": strings.Repeat("x", 1<<20)})
			_, err := p.Render(t.Context(), req)
			if err == nil || c.kind != "" && fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v (kind %q), want kind %q and %q", err, fault.KindOf(err), c.kind, c.says)
			}
			if err != nil && strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("error %q holds control characters", err)
			}
		})
	}
	t.Run("texts for users are sanitised", func(t *testing.T) {
		t.Parallel()
		p := newPool(t, func(cfg *render.Config) { cfg.Arguments = []string{"rogue-worker", "honest"} })
		res, err := p.Render(t.Context(), request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap}))
		if err != nil || len(res.Warnings) != 1 || res.Warnings[0] != "]0;titlehello" {
			t.Errorf("warnings %q, %v", res.Warnings, err)
		}
	})
	t.Run("without Landlock nothing is rendered, and the status has the reason", func(t *testing.T) {
		t.Parallel()
		p := newPool(t, func(cfg *render.Config) { cfg.Arguments = []string{"rogue-worker", "uncaged"} })
		_, err := p.Render(t.Context(), request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap}))
		if _, status := p.Status(t.Context()); status == nil || status.Error() != err.Error() {
			t.Errorf("status %v, render %v", status, err)
		}
		if fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "Landlock") || !strings.Contains(fault.Sentence(err), "none") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a binary that is no worker", func(t *testing.T) {
		t.Parallel()
		p := newPool(t, func(cfg *render.Config) { cfg.Executable = "/bin/true" })
		_, err := p.Render(t.Context(), request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap}))
		if fault.KindOf(err) != fault.Internal || !strings.Contains(err.Error(), "ended at once") {
			t.Errorf("error %v", err)
		}
		p = newPool(t, func(cfg *render.Config) { cfg.Executable = "/nope" })
		if _, err := p.Render(t.Context(), request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	})
}
