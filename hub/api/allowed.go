package api

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// catalogView is an application as the catalog shows it.
type catalogView = catalog.View

// errSignedOut ends a stream whose caller is not signed in any more.
func errSignedOut() error {
	return fault.With(fault.New(fault.Unknown, "your sign-in has ended"), "", "sign in again")
}

// whileAllowed returns a context that ends when the caller's sign-in does, or
// when allowed returns an error (SEC-F2, SEC-F3). Then abort is called, which
// ends a write that waits. done ends the check and returns why it has ended the
// context; nil: it has not.
//
// what names what is checked: streams of one credential that need the same share
// a check, so that hundreds of readers do not wait for each other's connections.
func (s *Server) whileAllowed(ctx context.Context, who hub.Caller, what string, abort func(), allowed func(context.Context, hub.Caller) error) (_ context.Context, done func() error) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() { // ends with the context
		ended <- s.checkUntilLost(ctx, who, what, allowed, func(err error) { cancel(err); abort() })
	}()
	return ctx, func() error {
		cancel(nil)
		return <-ended
	}
}

// checkUntilLost checks once a second. It calls lost with the reason, and
// returns it; nil: ctx has ended.
func (s *Server) checkUntilLost(ctx context.Context, who hub.Caller, what string, allowed func(context.Context, hub.Caller) error, lost func(error)) error {
	for lifecycle.Sleep(ctx, lifecycle.System{}, s.cfg.StreamCheck) == nil {
		err := s.sharedCheck(ctx, who, what, allowed)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			lost(err)
			return err
		}
	}
	return nil
}

// checkTime bounds one check, which may wait behind hundreds of streams that are
// opened at once. A database that does not answer in time ends the
// stream: nobody knows what its caller may do.
const checkTime = 15 * time.Second

// sharedCheck is stillAllowed, once for all streams that ask at this moment.
func (s *Server) sharedCheck(ctx context.Context, who hub.Caller, what string, allowed func(context.Context, hub.Caller) error) error {
	checked := s.checks.DoChan(who.Credential+"\x00"+what, func() (any, error) {
		return nil, s.stillAllowed(context.WithoutCancel(ctx), who, allowed)
	})
	select {
	case c := <-checked:
		return c.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Server) stillAllowed(ctx context.Context, who hub.Caller, allowed func(context.Context, hub.Caller) error) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	now, err := s.Identity.Authenticate(ctx, secretOf(ctx))
	if fault.KindOf(err) == fault.Unknown {
		return errSignedOut()
	}
	if err != nil {
		return err
	}
	now.Address, now.Request = who.Address, who.Request
	return allowed(ctx, now)
}
