// Package poll waits for what cannot be watched: it repeats a check until it
// passes. The other rigs and the tests call it; it starts nothing itself.
package poll

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// pollEvery is the pause between two checks.
const every = 25 * time.Millisecond

// Until repeats check until it has no complaint, and fails
// with the last one when ctx ends. It is for what cannot be watched.
func Until(ctx context.Context, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", context.Cause(ctx), err)
		case <-time.After(every):
		}
	}
}

// OK checks that a URL answers 200.
func OK(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, res.Status)
	}
	return nil
}
