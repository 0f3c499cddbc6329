package live

import (
	"bytes"
	"fmt"
	"testing"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/logtail"
	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestKept(t *testing.T) {
	t.Parallel()
	job := manifest.Key{Group: "batch", Kind: "Job", Namespace: "shop", Name: "migrate"}
	failed := func(app, pod string, lines ...logtail.Line) *keptContainer {
		c := &keptContainer{
			failedPod: failedPod{app, manifest.Key{Kind: "Pod", Namespace: "shop", Name: pod}}, uid: "uid-" + pod,
			owners: []manifest.Key{job}, about: &linkv1.Container{Name: "app", State: "terminated"},
		}
		c.add(lines)
		return c
	}
	ask := func(app, pod string) *linkv1.LogsRequest {
		return &linkv1.LogsRequest{AppId: app, Namespace: "shop", Pod: pod, Container: "app"}
	}
	t.Run("the lines of a failed hook are found by its Job, for its application alone", func(t *testing.T) {
		t.Parallel()
		k := newKept()
		k.put(failed("a", "migrate-x", logtail.Line{Nano: 1, Text: []byte("no such table")}))
		pods := k.pods("a", job)
		if len(pods) != 1 || !pods[0].GetGone() || pods[0].GetContainers()[0].GetName() != "app" {
			t.Errorf("pods %v", pods)
		}
		if lines, ok := k.lines(ask("a", "migrate-x")); !ok || len(lines) != 1 || string(lines[0].Text) != "no such table" {
			t.Errorf("lines %v", lines)
		}
		if _, ok := k.lines(ask("b", "migrate-x")); ok || len(k.pods("b", job)) > 0 || len(k.pods("a", manifest.Key{})) > 0 {
			t.Error("another application gets them")
		}
	})
	t.Run("containers, lines and bytes are bounded, and the newest stay", func(t *testing.T) {
		t.Parallel()
		k := newKept()
		for i := range keptContainers + 10 {
			k.put(failed("a", fmt.Sprint("pod-", i), logtail.Line{Text: []byte("x")}))
		}
		if _, ok := k.lines(ask("a", "pod-0")); ok || len(k.list) != keptContainers {
			t.Errorf("%d containers", len(k.list))
		}
		c := failed("a", "large")
		size := 0
		for i := range 1000 {
			c.add([]logtail.Line{{Text: append(bytes.Repeat([]byte("x"), 500), fmt.Sprint(i)...)}})
		}
		for _, l := range c.lines {
			size += l.Size()
		}
		if last := c.lines[len(c.lines)-1].Text; size > keptBytes || len(c.lines) < 2 || !bytes.HasSuffix(last, []byte("999")) {
			t.Errorf("%d lines of %d bytes, the last one %s", len(c.lines), size, last)
		}
		for range 100 {
			c.add([]logtail.Line{{Text: []byte("y")}})
		}
		if len(c.lines) > keptLines {
			t.Errorf("%d lines", len(c.lines))
		}
	})
}
