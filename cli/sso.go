package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/session"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// singleSignOn is how a browser signs the command line in.
type singleSignOn struct {
	on       bool
	port     int
	launch   bool
	provider string
	callback string
}

const (
	callbackPath  = "/auth/callback"
	browserWaits  = 10 * time.Minute // as long as a sign-in lasts at the hub
	answerTimeout = 10 * time.Second
)

func (o *singleSignOn) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "sso", false, "sign in with an identity provider, in a browser")
	f.IntVar(&o.port, "sso-port", 8085, "port of this machine that the browser comes back to; 0: a free one")
	f.BoolVar(&o.launch, "sso-launch-browser", true, "open the browser; otherwise the address is printed alone")
	f.StringVar(&o.provider, "sso-provider", "", "id of the identity provider (default: the first one of the organisation)")
	f.StringVar(&o.callback, "callback", "", "scheme, host and port under which the browser reaches --sso-port, such as http://localhost:9000")
}

// signInByBrowser lets a browser sign in, and exchanges what it brings back for
// a session. The code is worth nothing without the verifier, which stays here.
func (a *app) signInByBrowser(ctx context.Context, cfg session.Context, tenant string, o singleSignOn) error {
	cfg.Token = "" // of a session that may have ended
	api, err := session.NewClient(cfg)
	if err != nil {
		return err
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fault.With(fault.Wrap(fault.Invalid, err, "the port %d of this machine cannot be used", o.port), "", "choose another one with --sso-port, or 0")
	}
	defer ln.Close()
	back, err := o.back(ln.Addr().String())
	if err != nil {
		return err
	}
	state, verifier := randomText(), randomText()
	sum := sha256.Sum256([]byte(verifier))
	q := url.Values{
		"client": {back + callbackPath + "?state=" + state}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])},
		"tenant": {cmp.Or(tenant, "default")},
	}
	if o.provider != "" {
		q.Set("provider", o.provider)
	}
	address := strings.TrimSuffix(cfg.Server, "/") + "/auth/login?" + q.Encode()
	a.Note("Sign in with your browser: %s", address)
	if o.launch {
		if err := openBrowser(ctx, address); err != nil {
			a.Note("capstan: warning: no browser could be started on this machine: %s. To use one of another machine, stop this and run the command with --device.", err)
		}
	}
	code, err := awaitCode(ctx, ln, state)
	if err != nil {
		return err
	}
	in, _, err := client.Call[apimodel.SignedInAnswer](api.ExchangeSignInCode(ctx, apimodel.ExchangeSignInCodeJSONRequestBody{Code: code, Verifier: verifier}))
	if err != nil {
		return err
	}
	cfg.Token = in.Token
	return a.storeSignIn(ctx, cfg)
}

// back is the address under which the browser reaches the port: scheme, host
// and port. Another machine would get the session.
func (o singleSignOn) back(listens string) (string, error) {
	if o.callback == "" {
		return "http://" + listens, nil
	}
	u, err := url.Parse(o.callback)
	local := false
	if err == nil {
		ip, bad := netip.ParseAddr(u.Hostname())
		local = bad == nil && ip.IsLoopback() || u.Hostname() == "localhost"
	}
	if err != nil || u.Scheme != "http" || !local || u.Path != "" && u.Path != "/" && u.Path != callbackPath || u.RawQuery != "" {
		return "", usage.Errorf("--callback must be an address of the browser's own machine, such as http://localhost:9000")
	}
	return u.Scheme + "://" + u.Host, nil
}

func randomText() string {
	raw := make([]byte, 32)
	rand.Read(raw) // never fails: crypto/rand ends the program instead
	return base64.RawURLEncoding.EncodeToString(raw)
}

// awaitCode serves the port until the browser brings a code, or the time is up.
func awaitCode(ctx context.Context, ln net.Listener, state string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, browserWaits)
	defer cancel()
	answers := make(chan url.Values, 1)
	server := &http.Server{ReadHeaderTimeout: answerTimeout, Handler: receiver(state, answers)}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	defer serving.Wait()
	defer func() {
		// The browser gets its page before the port closes.
		end, stop := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer stop()
		if server.Shutdown(end) != nil {
			_ = server.Close()
		}
	}()
	select {
	case answer := <-answers:
		if code := answer.Get("code"); code != "" {
			return code, nil
		}
		return "", refusedBecause(answer.Get("error"))
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "", fault.With(fault.New(fault.Offline, "nobody has signed in with a browser within ten minutes"), "", "try again")
		}
		return "", ctx.Err()
	}
}

// receiver takes the first answer that has the state.
func receiver(state string, answers chan<- url.Values) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.Header().Set("Referrer-Policy", "no-referrer")
		q := r.URL.Query()
		known := subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) == 1 && q.Get("code")+q.Get("error") != ""
		if r.Method != http.MethodGet || r.URL.Path != callbackPath || !known {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, page("This address belongs to no sign-in."))
			return
		}
		message := "You are signed in."
		if q.Get("code") == "" {
			message = "You are not signed in."
		}
		fmt.Fprint(w, page(message+" Go back to the command line; this page can be closed."))
		select {
		case answers <- q:
		default: // there is one already
		}
	})
}

// refusedBecause is the error for a reason of the hub. Others are not repeated.
func refusedBecause(reason string) error {
	words := map[string]string{
		"consent": "it was declined at the identity provider", "refused": "the account may not sign in", "offline": "the identity provider does not answer",
		"proof": "the identity provider's answer proves nothing", "groups": "the account is in so many groups that the identity provider leaves them out",
		"config": "single sign-on is not set up for this",
	}
	cause, known := words[reason]
	if !known {
		cause = "the hub has refused it"
	}
	return fault.With(fault.New(fault.Unknown, "the sign-in with a browser failed: %s", cause), "", "try again, or ask an admin of the organisation")
}

// page is a page without anything that the browser has sent.
func page(text string) string {
	return "<!doctype html><html lang=\"en\"><title>Capstan</title><h1>Capstan</h1><p>" + text + "</p></html>\n"
}

// openBrowser opens an address in the browser of the person.
func openBrowser(ctx context.Context, address string) error {
	words := []string{"xdg-open", address}
	switch runtime.GOOS {
	case "darwin":
		words[0] = "open"
	case "windows":
		words = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	}
	return exec.CommandContext(ctx, words[0], words[1:]...).Run()
}
