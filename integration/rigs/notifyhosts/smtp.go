package notifyhosts

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A Mail is a message that a mail server has accepted.
type Mail struct {
	From string
	To   []string
	Data string
	TLS  bool
	User string
}

// A MailServer speaks SMTP with STARTTLS, and accepts mail of the user bot whose
// password is Token.
type MailServer struct {
	Port      int
	Authority string // of its certificate for 127.0.0.1, in PEM

	config *tls.Config
	mu     sync.Mutex
	all    []Mail
	refuse []string // answers to the next messages
}

// NewMail starts a mail server until the test ends.
func NewMail(t testing.TB) *MailServer {
	t.Helper()
	certified := httptest.NewTLSServer(nil) // for its certificate alone
	t.Cleanup(certified.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &MailServer{
		Port: listener.Addr().(*net.TCPAddr).Port, config: &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}, //nolint:forcetypeassert // it is TCP
		Authority: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw})),
	}
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		connections.Wait()
	})
	return s
}

// Refuse makes the next message be answered with a line such as "451 later".
func (s *MailServer) Refuse(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = append(s.refuse, line)
}

// All is what was accepted.
func (s *MailServer) All() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Mail(nil), s.all...)
}

// serve is one conversation.
func (s *MailServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	say := func(line string) { _, _ = fmt.Fprintf(conn, "%s\r\n", line) } // the client may be gone
	say("220 mail.example.com ESMTP")
	var m Mail
	user, secure := "", false
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		switch verb := strings.ToUpper(line); {
		case strings.HasPrefix(verb, "EHLO") && !secure:
			say("250-mail.example.com\r\n250 STARTTLS")
		case strings.HasPrefix(verb, "EHLO"):
			say("250-mail.example.com\r\n250 AUTH PLAIN")
		case verb == "STARTTLS":
			say("220 go ahead")
			c := tls.Server(conn, s.config)
			if c.Handshake() != nil {
				return
			}
			conn, r, secure = c, bufio.NewReader(c), true
		case strings.HasPrefix(verb, "AUTH PLAIN "):
			plain, _ := base64.StdEncoding.DecodeString(line[len("AUTH PLAIN "):])
			if string(plain) != "\x00bot\x00"+Token {
				say("535 5.7.8 authentication failed")
				continue
			}
			user = "bot"
			say("235 welcome")
		case user == "" && strings.HasPrefix(verb, "MAIL"):
			say("530 5.7.0 authentication required")
		case strings.HasPrefix(verb, "MAIL FROM:"):
			m = Mail{From: address(line), TLS: secure, User: user}
			say("250 ok")
		case strings.HasPrefix(verb, "RCPT TO:"):
			m.To = append(m.To, address(line))
			say("250 ok")
		case verb == "DATA":
			say("354 go ahead")
			if m.Data = data(r); m.Data == "" {
				return
			}
			say(s.take(m))
		case verb == "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// take accepts a message, or refuses it.
func (s *MailServer) take(m Mail) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refuse) > 0 {
		line := s.refuse[0]
		s.refuse = s.refuse[1:]
		return line
	}
	s.all = append(s.all, m)
	return "250 2.0.0 accepted"
}

func data(r *bufio.Reader) string {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return ""
		}
		if strings.TrimSpace(line) == "." {
			return b.String()
		}
		b.WriteString(line)
	}
}

func address(line string) string {
	_, rest, _ := strings.Cut(line, "<")
	a, _, _ := strings.Cut(rest, ">")
	return a
}
