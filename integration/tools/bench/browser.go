package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// browserTime bounds the run of the browser.
const browserTime = 5 * time.Minute

// listInBrowser measures the console's list in Chromium: the other half of B18.
// web/e2e/many.spec.ts says what it does.
func (b *bench) listInBrowser(ctx context.Context, s *stack.Stack, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, browserTime)
	defer cancel()
	text, err := runSpec(ctx, s, filepath.Join(dir, "browser"), "many", nil)
	if err != nil {
		return err
	}
	var got struct {
		Firsts, Sizes, Filters, Chosen []int
		End, Drawn, Heap, Requests     int
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return err
	}
	for _, list := range [][]int{got.Firsts, got.Sizes, got.Filters, got.Chosen} {
		if len(list) == 0 {
			return fmt.Errorf("the browser has measured nothing: %s", text)
		}
		slices.Sort(list)
	}
	middle := func(of []int) int { return of[len(of)/2] }
	both := func(of []int) string { return fmt.Sprintf("p50 %d ms, most %d ms", middle(of), of[len(of)-1]) }
	b.add("B18", fmt.Sprintf("the console's list of %d applications in Chromium", rightApps),
		fmt.Sprintf("first rows %s; filter typed to painted %s; facet clicked to painted %s", both(got.Firsts), both(got.Filters), both(got.Chosen)),
		fmt.Sprintf("%d bytes of lists in %d requests; the last row after %d ms; %d rows drawn; heap %d MB", middle(got.Sizes), got.Requests, got.End, got.Drawn, got.Heap>>20))
	return nil
}
