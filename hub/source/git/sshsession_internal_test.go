package git

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

// endedInput is the input of a program that answers as soon as it has a request,
// and has ended before its input is closed.
type endedInput struct{ bytes.Buffer }

func (*endedInput) Close() error { return io.EOF }

func TestProgramThatEndsAtOnce(t *testing.T) {
	t.Parallel()
	in := &endedInput{}
	req := packp.NewUploadPackRequest()
	req.Wants = []plumbing.Hash{plumbing.NewHash(strings.Repeat("1", 40))}
	if err := (&sshRun{in: in}).sendRequest(req); err != nil {
		t.Errorf("CRED-07 the answer is not read, because the program has ended: %v", err)
	}
	if !strings.HasSuffix(in.String(), "0009done\n") {
		t.Errorf("the request is %q", in)
	}
}
