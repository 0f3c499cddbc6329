package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"
)

// A session is one conversation about a repository: a listing, and then
// transfers.
type session interface {
	AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error)
	UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error)
	Close() error
}

// An sshSession is a conversation with git-upload-pack behind an SSH server,
// over a connection of its own. A program serves one listing and one
// transfer; a further transfer starts another program.
type sshSession struct {
	remote *remote
	target sshTarget
	conn   *sshConn // once connected
	run    *sshRun  // that waits for a request; nil: none does
}

// An sshRun is one run of git-upload-pack.
type sshRun struct {
	session    *ssh.Session
	in         io.WriteCloser
	out        io.Reader
	complaints complaints
	listed     *packp.AdvRefs
}

// AdvertisedReferencesContext connects and lists the refs.
func (s *sshSession) AdvertisedReferencesContext(ctx context.Context) (*packp.AdvRefs, error) {
	conn, err := s.remote.connect(ctx, s.target)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	defer conn.bind(ctx)()
	if s.run, err = s.start(ctx); err != nil {
		return nil, err
	}
	return s.run.listed, nil
}

// start starts the program and reads what it lists.
func (s *sshSession) start(ctx context.Context) (*sshRun, error) {
	x := exchangeOf(ctx)
	session, err := s.conn.client.NewSession()
	if err != nil {
		return nil, x.setError(fmt.Errorf("open channel: %w", err))
	}
	r := &sshRun{session: session}
	session.Stderr = &r.complaints
	in, err := session.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open input: %w", err)
	}
	out, err := session.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	if err := session.Start(s.target.command()); err != nil {
		return nil, x.setError(errNoUploadPack)
	}
	r.in, r.out = in, &limitedBody{body: io.NopCloser(out), left: x.limit, x: x}
	if err := r.list(x); err != nil {
		return nil, err
	}
	return r, nil
}

// list reads the refs that the program starts with.
func (r *sshRun) list(x *exchange) error {
	listed := packp.NewAdvRefs()
	err := listed.Decode(r.out)
	var message *pktline.ErrorLine
	switch {
	case err == nil && !listed.IsEmpty():
		transport.FilterUnsupportedCapabilities(listed.Capabilities)
		r.listed = listed
		return nil
	case err == nil, errors.Is(err, packp.ErrEmptyAdvRefs):
		return transport.ErrEmptyRemoteRepository
	case errors.As(err, &message):
		return x.complained(message.Text)
	case errors.Is(err, packp.ErrEmptyInput):
		_ = r.session.Wait() // so that its output is complete
		return x.complained(r.complaints.text())
	}
	return fmt.Errorf("%w: list of refs: %w", errProtocol, err)
}

// UploadPack requests objects. The caller closes the answer before ctx ends.
func (s *sshSession) UploadPack(ctx context.Context, req *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	if req.IsEmpty() {
		return nil, transport.ErrEmptyUploadPackRequest
	}
	if err := req.Validate(); err != nil {
		return nil, fmt.Errorf("request of objects: %w", err)
	}
	x := exchangeOf(ctx)
	release := s.conn.bind(ctx)
	run, err := s.run, error(nil)
	if s.run = nil; run == nil {
		if run, err = s.start(ctx); err != nil {
			release()
			return nil, err
		}
	} else {
		run.out = &limitedBody{body: io.NopCloser(run.out), left: x.limit, x: x}
	}
	body := &sshAnswer{run, release}
	if err := run.sendRequest(req); err != nil {
		return nil, errors.Join(x.setError(err), body.Close())
	}
	res := packp.NewUploadPackResponse(req)
	if err := res.Decode(body); err != nil {
		return nil, errors.Join(fmt.Errorf("error decoding the answer: %w", err), body.Close())
	}
	return res, nil
}

// sendRequest sends the request in few packets.
func (r *sshRun) sendRequest(req *packp.UploadPackRequest) error {
	w := bufio.NewWriterSize(r.in, 32<<10)
	err := req.UploadRequest.Encode(w)
	if err == nil {
		err = req.UploadHaves.Encode(w, true)
	}
	if err == nil {
		err = pktline.NewEncoder(w).EncodeString("done\n")
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = r.in.Close()
		if errors.Is(err, io.EOF) {
			err = nil // the program has read the request, answered and ended already
		}
	}
	if err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	return nil
}

// An sshAnswer is the answer to a request; closing it ends the program.
type sshAnswer struct {
	run     *sshRun
	release func()
}

func (a *sshAnswer) Read(p []byte) (int, error) { return a.run.out.Read(p) }

func (a *sshAnswer) Close() error {
	a.release()
	if err := a.run.session.Close(); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("end conversation: %w", err)
	}
	return nil
}

// Close ends the conversation. A program that waits for a request is notified.
func (s *sshSession) Close() error {
	if s.conn == nil {
		return nil
	}
	if s.run != nil {
		_, _ = s.run.in.Write(pktline.FlushPkt) // a courtesy
		s.run = nil
	}
	return s.conn.close()
}

// complaints store the beginning of a program's error output. The cause is
// derived from it; it is never shown.
type complaints struct {
	mu   sync.Mutex
	kept []byte
}

const maxComplaint = 4 << 10

func (c *complaints) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = append(c.kept, p[:min(len(p), maxComplaint-len(c.kept))]...)
	return len(p), nil
}

func (c *complaints) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.kept)
}

// errNoUploadPack means that a server accepts the login and does not speak Git.
var errNoUploadPack = errors.New("the server does not run git-upload-pack")

// complained finds out what a server means that lists nothing.
func (x *exchange) complained(text string) error {
	text = strings.ToLower(text)
	if strings.Contains(text, "git-upload-pack") && strings.Contains(text, "not found") {
		return x.setError(errNoUploadPack)
	}
	for _, s := range []string{
		"not found", "does not exist", "does not appear to be a git repository", "not a git repository",
		"could not be found", "no such repository", "access denied", "denied by",
	} {
		if strings.Contains(text, s) {
			x.mu.Lock()
			x.status = 404
			x.mu.Unlock()
			return transport.ErrRepositoryNotFound
		}
	}
	return x.setError(errNoUploadPack)
}
