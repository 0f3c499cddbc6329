package render_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestPreview(t *testing.T) {
	t.Parallel()
	stage := func(w *stageWorld) *render.Stage {
		permits := func(hub.Refresh, hub.ApplicationSpec) error { return w.permits }
		return render.NewStage(render.StageConfig{}, w, w, w, w, permits, slog.New(slog.DiscardHandler))
	}
	branch := hub.Override{Revision: "feature"}
	t.Run("DIFF-17 another revision is rendered, and nothing is stored", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		got, err := stage(w).Preview(t.Context(), "acme", "a", branch)
		if err != nil || len(got.Objects) == 0 || len(got.Objects) != len(got.Bodies) || len(got.Revisions) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if w.renders != 1 || len(w.rendered)+len(w.unchanged)+len(w.failed)+len(w.skipped)+len(w.refreshed) != 0 {
			t.Errorf("%d renders, stored %v %v %v", w.renders, w.rendered, w.unchanged, w.failed)
		}
	})
	t.Run("DIFF-17 what the project does not permit is not rendered", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		w.permits = fault.New(fault.Denied, "the project does not permit this source")
		if _, err := stage(w).Preview(t.Context(), "acme", "a", branch); fault.KindOf(err) != fault.Denied || w.renders != 0 || len(w.failed) != 0 {
			t.Errorf("%v, %d renders", err, w.renders)
		}
	})
	t.Run("DIFF-17 a failure is the caller's answer, and no condition", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		w.renderErr = func(string) error { return fault.New(fault.Invalid, "the manifest is not YAML") }
		if _, err := stage(w).Preview(t.Context(), "acme", "a", branch); err == nil || !strings.Contains(err.Error(), "not YAML") || len(w.failed) != 0 {
			t.Errorf("%v, %v", err, w.failed)
		}
		if _, err := stage(w).Preview(t.Context(), "acme", "a", hub.Override{Revisions: []string{"a", "b"}}); fault.KindOf(err) != fault.Invalid {
			t.Error(err)
		}
	})
	t.Run("DIFF-17 a tenant has two previews at a time", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		entered, end, done := make(chan struct{}, 2), make(chan struct{}), make(chan error, 2)
		s := render.NewStage(render.StageConfig{}, w, w, w, w, func(hub.Refresh, hub.ApplicationSpec) error {
			entered <- struct{}{}
			<-end
			return nil
		}, slog.New(slog.DiscardHandler))
		for range 2 {
			go func() {
				_, err := s.Preview(context.WithoutCancel(t.Context()), "acme", "a", branch)
				done <- err
			}()
		}
		<-entered
		<-entered
		if _, err := s.Preview(t.Context(), "acme", "a", branch); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("a third one: %v", err)
		}
		if _, err := s.Preview(t.Context(), "other", "a", hub.Override{Revisions: []string{"a", "b"}}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("one of another tenant: %v", err)
		}
		close(end)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// sentFiles are an upload that was received.
type sentFiles struct {
	files    map[string]string
	err      error
	received []string
	open     int
}

func (u *sentFiles) Receive(_ context.Context, tenant hub.TenantID, from io.Reader) (hub.Tree, func(), error) {
	text, err := io.ReadAll(from)
	if u.received = append(u.received, string(tenant)+" "+string(text)); err != nil || u.err != nil {
		return nil, nil, errors.Join(err, u.err)
	}
	u.open++
	return rendertest.NewTree(u.files), func() { u.open-- }, nil
}

func TestPreviewOfUploads(t *testing.T) {
	t.Parallel()
	stage := func(w *stageWorld, u render.Uploads) *render.Stage {
		s := render.NewStage(render.StageConfig{}, w, w, w, w, func(hub.Refresh, hub.ApplicationSpec) error { return w.permits }, slog.New(slog.DiscardHandler))
		if u != nil {
			s.Receives(u)
		}
		return s
	}
	of := func(position int) hub.Upload {
		return hub.Upload{Position: position, Archive: strings.NewReader("archive")}
	}
	t.Run("REPO-12 files of an upload are rendered in the place of the source, which need not be there, and nothing is stored", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		w.resolves = fault.New(fault.Offline, "the server cannot be reached")
		u := &sentFiles{files: map[string]string{"a/x.yaml": "1"}}
		s := stage(w, u)
		for range 2 {
			got, err := s.PreviewUpload(t.Context(), "acme", "a", of(0))
			if err != nil || len(got.Objects) == 0 || got.Revisions[0] != rendertest.NewTree(u.files).Commit() {
				t.Fatalf("%+v, %v", got, err)
			}
		}
		if w.renders != 2 || len(w.rendered)+len(w.unchanged)+len(w.failed)+len(w.skipped)+len(w.refreshed) != 0 {
			t.Errorf("%d renders of two equal uploads, stored %v %v %v", w.renders, w.rendered, w.unchanged, w.failed)
		}
		if u.open != 0 || u.received[0] != "acme archive" {
			t.Errorf("%d uploads are open, received %v", u.open, u.received)
		}
	})
	t.Run("REPO-12 SEC-A12 what the project does not permit is refused before anything is read", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		w.permits = fault.New(fault.Denied, "the project does not permit this source")
		u := &sentFiles{}
		if _, err := stage(w, u).PreviewUpload(t.Context(), "acme", "a", of(1)); fault.KindOf(err) != fault.Denied || len(u.received) != 0 {
			t.Errorf("%v, received %v", err, u.received)
		}
	})
	t.Run("REPO-12 what has to be signed cannot be uploaded", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		w.apps["a"].Project = &hub.Project{Spec: []byte(`{"sourceRepos":["*"],"signatureKeys":[{"keyID":"D83EABE7E2474348"}]}`)}
		u := &sentFiles{}
		if _, err := stage(w, u).PreviewUpload(t.Context(), "acme", "a", of(1)); fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "no signature") || len(u.received) != 0 {
			t.Errorf("%v, received %v", err, u.received)
		}
	})
	t.Run("REPO-12 a position behind the last source, a broken archive, a failed render: each is the caller's answer, and no condition", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		u := &sentFiles{files: map[string]string{"a/x.yaml": "1"}}
		if _, err := stage(w, u).PreviewUpload(t.Context(), "acme", "a", of(2)); fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "number 2") {
			t.Error(err)
		}
		if _, err := stage(w, nil).PreviewUpload(t.Context(), "acme", "a", of(1)); fault.KindOf(err) != fault.Invalid {
			t.Error(err)
		}
		u.err = fault.New(fault.Exceeded, "the archive unfolds to more than 1 byte")
		if _, err := stage(w, u).PreviewUpload(t.Context(), "acme", "a", of(1)); fault.KindOf(err) != fault.Exceeded {
			t.Error(err)
		}
		u.err = nil
		w.renderErr = func(string) error { return fault.New(fault.Invalid, "the manifest is not YAML") }
		if _, err := stage(w, u).PreviewUpload(t.Context(), "acme", "a", of(1)); err == nil || !strings.Contains(err.Error(), "not YAML") || u.open != 0 || len(w.failed) != 0 {
			t.Errorf("%v, %d open, %v", err, u.open, w.failed)
		}
	})
	t.Run("REPO-12 an upload that is still being sent counts as one of the tenant's previews", func(t *testing.T) {
		t.Parallel()
		w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
		s := stage(w, &slowFiles{})
		done := make(chan error, 2)
		var callers []*io.PipeWriter
		for range 2 {
			body, caller := io.Pipe()
			callers = append(callers, caller)
			go func() {
				_, err := s.PreviewUpload(context.WithoutCancel(t.Context()), "acme", "a", hub.Upload{Archive: body})
				done <- err
			}()
			if _, err := caller.Write([]byte("part")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.PreviewUpload(t.Context(), "acme", "a", of(1)); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("a third one: %v", err)
		}
		if _, err := s.PreviewUpload(t.Context(), "other", "a", of(1)); err != nil {
			t.Errorf("one of another tenant: %v", err)
		}
		for _, c := range callers {
			_ = c.Close()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// slowFiles receives several uploads at once.
type slowFiles struct{}

func (slowFiles) Receive(_ context.Context, _ hub.TenantID, from io.Reader) (hub.Tree, func(), error) {
	_, err := io.Copy(io.Discard, from)
	return rendertest.NewTree(map[string]string{"a/x.yaml": "1"}), func() {}, err
}
