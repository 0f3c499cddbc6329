package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
)

const (
	fetchBatch   = 512              // digests of one request
	bulkFrom     = 64               // blobs from which the bulk lane is worth its handshake: some 256 KiB
	fetchStall   = 30 * time.Second // after which a silent stream is ended
	fetchTries   = 5                // for a hub that responds without blobs
	digestLength = 32
)

// Fetch reads blobs from the hub and calls take for each, in any order, one at
// a time. missing are those that the hub does not have, or that this cluster
// may not read. It waits for a session and retries until all were read, ctx
// ends, take fails or the hub refuses.
func (c *Client) Fetch(ctx context.Context, digests [][]byte, take func(*linkv1.Blob) error) (missing [][]byte, err error) {
	f := &fetch{c: c, store: take, want: map[string]bool{}}
	for _, d := range digests {
		if len(d) != digestLength {
			return nil, fault.New(fault.Invalid, "a digest has %d bytes instead of %d", len(d), digestLength)
		}
		f.want[string(d)] = true
	}
	err = f.run(ctx)
	return f.missing, err
}

// fetch is one call of Fetch.
type fetch struct {
	c       *Client
	store   func(*linkv1.Blob) error
	want    map[string]bool
	missing [][]byte
	large   bool // a message was too large for the control lane
	tries   int  // since the last one that brought anything
}

// errTake marks an error of the caller of Fetch, which a retry does not help.
type errTake struct{ error }

func (e errTake) Unwrap() error { return e.error }

func (f *fetch) run(ctx context.Context) error {
	wait := lifecycle.Backoff{First: firstWait, Max: 30 * time.Second, Rand: f.c.cfg.Random}
	for len(f.want) > 0 {
		before := len(f.want)
		err := f.fetchBatch(ctx)
		if len(f.want) < before {
			wait.Reset()
			f.tries = 0
		}
		if err == nil && len(f.want) < before {
			continue
		}
		if err = f.hopeless(ctx, err); err != nil {
			return err
		}
		if err := lifecycle.Sleep(ctx, f.c.cfg.Clock, wait.Next()); err != nil {
			return err
		}
	}
	return nil
}

// hopeless returns the error with which to give up, or nil to retry.
func (f *fetch) hopeless(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if t := (errTake{}); errors.As(err, &t) {
		return t.error
	}
	if err == nil {
		err = fault.New(fault.Internal, "the hub neither sent nor named %d blobs", len(f.want))
	}
	kind := fault.KindOf(err)
	if kind == fault.Exceeded && !f.large {
		f.large = true
		return nil
	}
	f.tries++
	if kind != fault.Offline && f.tries >= fetchTries {
		return fmt.Errorf("fetch %d blobs: %w", len(f.want), err)
	}
	f.c.cfg.Log.WarnContext(ctx, "blobs are fetched again", logkey.Count, len(f.want), logkey.Error, err)
	return nil
}

// fetchBatch requests one batch on the lane that fits.
func (f *fetch) fetchBatch(ctx context.Context) error {
	a, err := f.c.wait(ctx)
	if err != nil {
		return err
	}
	conn, done := a.conn, func(error) {}
	if f.large || len(f.want) > bulkFrom {
		if b, end, ok := f.c.bulk.conn(ctx, a); ok {
			conn, done = b, end
		}
	}
	err = f.request(ctx, conn)
	if t := (errTake{}); errors.As(err, &t) || ctx.Err() != nil {
		done(nil) // not a failure of the connection
		return err
	}
	done(err)
	return err
}

func (f *fetch) request(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(fetchStall, func() {
		cancel(fault.New(fault.Offline, "the hub sent nothing for %s", fetchStall))
	})
	defer stall.Stop()
	req := &linkv1.FetchRequest{}
	for d := range f.want {
		if req.Digests = append(req.Digests, []byte(d)); len(req.Digests) == fetchBatch {
			break
		}
	}
	stream, err := linkv1.NewBlobsClient(conn).Fetch(ctx, req)
	if err != nil {
		return fmt.Errorf("fetch blobs: %w", stalled(ctx, err))
	}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fetch blobs: %w", stalled(ctx, err))
		}
		stall.Stop() // the caller may be slow
		if err := f.accept(reply); err != nil {
			return err
		}
		stall.Reset(fetchStall)
	}
}

// accept delivers the requested blobs, each once.
func (f *fetch) accept(reply *linkv1.FetchReply) error {
	for _, b := range reply.GetBlobs() {
		if !f.want[string(b.GetDigest())] {
			continue
		}
		if err := f.store(b); err != nil {
			return errTake{err}
		}
		delete(f.want, string(b.GetDigest()))
	}
	for _, d := range reply.GetMissing() {
		if f.want[string(d)] {
			delete(f.want, string(d))
			f.missing = append(f.missing, d)
		}
	}
	return nil
}

// stalled returns the reason for which a stream was given up, if it was, or
// that its session was closed: the next one may succeed.
func stalled(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); fault.KindOf(cause) == fault.Offline {
		return cause
	}
	if errors.Is(err, context.Canceled) && ctx.Err() == nil {
		return fault.Wrap(fault.Offline, err, "the session with the hub has ended")
	}
	return err
}
