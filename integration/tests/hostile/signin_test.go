package hostile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// at is a client whose connections come from an address of this machine.
func at(t *testing.T, address string) *http.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: waitLimit}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// signIn tries a password from an address and gives the status of the answer,
// and the answer without what each has of its own.
func signIn(t *testing.T, address, tenant, username, password string, forwarded ...string) (int, string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"tenant": tenant, "username": username, "password": password, "mode": "token"})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(within(t, waitLimit), http.MethodPost, s.URL()+"/api/v1/login", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for _, f := range forwarded {
		req.Header.Set("X-Forwarded-For", f)
	}
	res, err := at(t, address).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, strings.ReplaceAll(string(text), res.Header.Get("X-Request-Id"), "ID")
}

// account makes an account of the installation's own tenant.
func account(ctx context.Context, t *testing.T, name, password string) {
	t.Helper()
	body := map[string]any{"name": name, "password": password, "roles": []string{"readonly"}}
	if err := s.API.Do(ctx, http.MethodPost, "/api/v1/users", body, nil); err != nil {
		t.Fatal(err)
	}
}

// Strangers try passwords of an account from many addresses, four from each.
func TestUnknownAddressesLockNoOwnerOut(t *testing.T) {
	const password, home, elsewhere = "correct horse battery", "127.0.1.1", "127.0.1.2"
	ctx := within(t, 5*time.Minute)
	account(ctx, t, "victim", password)
	if status, gotText := signIn(t, home, "default", "victim", password); status != http.StatusOK {
		t.Fatalf("the owner's first sign-in: %d %s", status, gotText)
	}
	for i := range 100 {
		if status, gotText := signIn(t, fmt.Sprint("127.0.2.", 1+i/4), "default", "victim", "guess"); status != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d %s", i, status, gotText)
		}
	}
	t.Run("SEC-E8 INV-7 the owner signs in from a known address", func(t *testing.T) {
		if status, gotText := signIn(t, home, "default", "victim", password); status != http.StatusOK {
			t.Errorf("%d %s", status, gotText)
		}
	})
	t.Run("SEC-E8 SEC-G1 unknown addresses are refused, and learn nothing of the password", func(t *testing.T) {
		right, gotText := signIn(t, elsewhere, "default", "victim", password)
		wrong, wrongText := signIn(t, elsewhere, "default", "victim", "guess")
		if right != http.StatusTooManyRequests || wrong != right || gotText != wrongText {
			t.Errorf("right: %d %s\nwrong: %d %s", right, gotText, wrong, wrongText)
		}
	})
	t.Run("SEC-E8 the audit log says that the account is closed to strangers", func(t *testing.T) {
		out, err := s.API.CLI(ctx, "", "audit", "list", "-o", "json")
		if err != nil || strings.Count(out, "it is closed to all such addresses") != 1 {
			t.Errorf("error %v in %.2000s", err, out)
		}
	})
	t.Run("SEC-E8 thirty wrong names of one address close no other address", func(t *testing.T) {
		stopped := false
		for i := range 31 {
			status, _ := signIn(t, "127.0.3.1", "default", fmt.Sprint("nobody-", i), "guess")
			stopped = status == http.StatusTooManyRequests
			if stopped {
				break
			}
		}
		if !stopped {
			t.Error("the address was never refused")
		}
		if status, gotText := signIn(t, home, "default", "victim", password); status != http.StatusOK {
			t.Errorf("another address: %d %s", status, gotText)
		}
	})
}

// Behind a proxy that is listed each client has limits of its own; what a
// client says of itself changes nothing.
func TestClientsBehindAProxy(t *testing.T) {
	const password, self = "correct horse battery", "127.0.6.1"
	ctx := within(t, 5*time.Minute)
	account(ctx, t, "behind", password)
	// closed guesses names until an address is refused, and says whether it is.
	closed := func(address string, forwarded func(i int) string) bool {
		for i := range 40 {
			if status, _ := signIn(t, address, "default", fmt.Sprint("nobody-", i), "guess", forwarded(i)); status == http.StatusTooManyRequests {
				return true
			}
		}
		return false
	}
	t.Run("SEC-E8 TM07 INV-7 one client behind the proxy closes it for no other", func(t *testing.T) {
		if !closed(proxy, func(int) string { return "203.0.113.1" }) {
			t.Error("the client that guesses was never refused")
		}
		if status, gotText := signIn(t, proxy, "default", "behind", password, "203.0.113.2"); status != http.StatusOK {
			t.Errorf("another client: %d %s", status, gotText)
		}
	})
	t.Run("SEC-E8 TM07 the audit log names the client and not the proxy", func(t *testing.T) {
		out, err := s.API.CLI(ctx, "", "audit", "list", "-o", "json")
		if err != nil || !strings.Contains(out, "203.0.113.2") || strings.Contains(out, proxy) {
			t.Errorf("error %v in %.2000s", err, out)
		}
	})
	t.Run("SEC-E8 a client that is no proxy cannot claim another address", func(t *testing.T) {
		if !closed(self, func(i int) string { return fmt.Sprint("198.51.100.", i+1) }) {
			t.Error("an address of its own choice for each guess was believed")
		}
	})
}
