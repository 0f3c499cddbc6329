package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxAuthentication bounds the answer of git-lfs-authenticate, in bytes.
const maxAuthentication = 64 << 10

// authenticate asks an SSH server where its LFS server is, and with which
// header that is read (Git LFS, "Server Discovery"). Only an address of HTTPS is
// accepted: it is sent a token.
func (l *largeFetch) authenticate(ctx context.Context) error {
	u, err := url.Parse(l.repo.URL)
	if err != nil {
		return fmt.Errorf("address of the repository: %w", err)
	}
	target, err := sshTargetOf(u, l.suffix, l.repo, l.cred)
	if err != nil {
		return err
	}
	trust, err := l.trust(ctx, l.repo, l.cred)
	if err != nil {
		return err
	}
	r, err := newRemote(l.cfg, trust, l.hostKeys)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, l.cfg.ListTimeout)
	defer cancel()
	limited, x := begin(limited, maxAuthentication)
	text, err := r.ask(limited, target, "git-lfs-authenticate "+quoted(target.path)+" download")
	if err != nil {
		if _, wrong := x.wrong(); wrong != nil {
			err = wrong
		}
		return err
	}
	var answer struct {
		Href   string            `json:"href"`
		Header map[string]string `json:"header"`
	}
	if json.Unmarshal(text, &answer) != nil || len(answer.Header) > maxLFSHeaders {
		return errLFSGarbled()
	}
	at, err := url.Parse(answer.Href)
	if err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil || at.RawQuery != "" {
		return fault.With(fault.New(fault.Invalid, "the Git server names an LFS server that is not asked"), "", "it must be at an address of HTTPS, without a user name")
	}
	l.batch, l.header = strings.TrimSuffix(answer.Href, "/"), answer.Header
	return nil
}

// ask runs a command that takes no input, and returns what it prints.
func (r *remote) ask(ctx context.Context, t sshTarget, command string) ([]byte, error) {
	conn, err := r.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.close() }() // the answer is here, or its error counts
	defer conn.bind(ctx)()
	session, err := conn.client.NewSession()
	if err != nil {
		return nil, exchangeOf(ctx).setError(fmt.Errorf("open channel: %w", err))
	}
	var refused complaints
	session.Stderr = &refused
	out, err := session.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open output: %w", err)
	}
	if err := session.Start(command); err != nil {
		return nil, errNoLFS()
	}
	text, err := io.ReadAll(io.LimitReader(out, maxAuthentication+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case len(text) > maxAuthentication:
		return nil, errLFSGarbled()
	}
	if err := session.Wait(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, errors.Join(cause, err)
		}
		return nil, errNoLFS()
	}
	return text, nil
}

func errNoLFS() error {
	return fault.With(fault.New(fault.Invalid, "the Git server does not say over SSH where its LFS server is"), "", "use the repository's https:// URL, or have git-lfs-authenticate permitted")
}
