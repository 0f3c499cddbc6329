package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
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
	const user, password = "browser", "a-long-enough-password"
	account := map[string]any{"name": user, "password": password, "roles": []string{"tenant-admin"}}
	if err := s.API.Do(ctx, http.MethodPost, "/api/v1/users", account, nil); err != nil {
		return err
	}
	work, err := filepath.Abs(filepath.Join(dir, "browser"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, browserTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("node_modules", ".bin", "playwright"), "test")
	cmd.Dir = "web"
	cmd.Env = append(os.Environ(), "CAPSTAN_SPECS=many", "CAPSTAN_URL="+s.Hub.URL, "CAPSTAN_USER="+user, "CAPSTAN_PASSWORD="+password,
		"CAPSTAN_SHOTS="+work, "CAPSTAN_E2E_WORK="+work)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run the browser: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(work, "figures.json"))
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
