package send

import (
	"bufio"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

type natsOptions struct {
	URL      string            `json:"url"`
	Headers  map[string]string `json:"headers"`
	NKey     string            `json:"nkey"`
	Username string            `json:"username"`
	Password string            `json:"password"`
}

// natsLine is the longest line of a server that is read.
const natsLine = 64 << 10

// nats publishes to a subject, by the text protocol of NATS. The server has the
// message when it answers the ping behind it.
func (c *call) nats() error {
	var o natsOptions
	if err := c.options(&o); err != nil {
		return err
	}
	if strings.ContainsAny(c.Recipient, " \r\n\t") || c.Recipient == "" {
		return invalid("the recipient %q is no subject", c.Recipient)
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "nats" && u.Scheme != "tls" {
		return invalid("the address of the service is none of nats:// or tls://")
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "4222")
	}
	c.record("PUB "+c.Recipient+" at "+u.Scheme+"://"+u.Host, c.text())
	conn, err := guard.Dialer(c.Allowed).DialContext(c.ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	c.close = append(c.close, func() { _ = conn.Close() })
	if deadline, ok := c.ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	} else {
		_ = conn.SetDeadline(time.Now().Add(timeout))
	}
	return c.natsTalk(o, u, conn)
}

func (c *call) natsTalk(o natsOptions, u *url.URL, conn net.Conn) error {
	r := bufio.NewReaderSize(io.LimitReader(conn, natsLine), natsLine)
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	var info struct {
		Nonce       string `json:"nonce"`
		TLSRequired bool   `json:"tls_required"`
		Headers     bool   `json:"headers"`
	}
	text, ok := strings.CutPrefix(line, "INFO ")
	if !ok || json.Unmarshal([]byte(text), &info) != nil {
		return fault.New(fault.Offline, "the answer is none of NATS")
	}
	if u.Scheme == "tls" || info.TLSRequired {
		secure, err := c.natsTLS(u, conn)
		if err != nil {
			return err
		}
		conn, r = secure, bufio.NewReaderSize(io.LimitReader(secure, natsLine), natsLine)
	}
	hello := map[string]any{
		"verbose": false, "pedantic": false, "lang": "go", "name": "capstan", "version": "1", "protocol": 1, "headers": true, "no_responders": true,
		"tls_required": u.Scheme == "tls",
	}
	switch {
	case o.NKey != "":
		public, signature, err := signNATS(o.NKey, info.Nonce)
		if err != nil {
			return err
		}
		hello["nkey"], hello["sig"] = public, signature
	case o.Username != "":
		hello["user"], hello["pass"] = o.Username, o.Password
	}
	connect, err := json.Marshal(hello)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "CONNECT "+string(connect)+"\r\n"+c.natsMessage(o)+"PING\r\n"); err != nil {
		return err
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		line = strings.TrimSpace(line)
		switch {
		case line == "PONG":
			c.attempt.Answer = line
			return nil
		case line == "PING":
			if _, err := io.WriteString(conn, "PONG\r\n"); err != nil {
				return err
			}
		case strings.HasPrefix(line, "-ERR"):
			c.attempt.Answer = c.mask.Replace(line)
			return &Failure{Permanent: strings.Contains(line, "Auth") || strings.Contains(line, "Permissions"), Err: fault.New(fault.Offline, "the server refused the message: %s", c.mask.Replace(line))}
		}
	}
}

func (c *call) natsTLS(u *url.URL, conn net.Conn) (net.Conn, error) {
	authorities, err := c.Authorities(c.ctx, c.Tenant, u.Hostname())
	if err != nil {
		return nil, err
	}
	config := &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12}
	if authorities != "" {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM([]byte(authorities))
	}
	secure := tls.Client(conn, config)
	return secure, secure.HandshakeContext(c.ctx)
}

// natsMessage is the message with its headers. Nats-Msg-Id makes streams drop
// another attempt.
func (c *call) natsMessage(o natsOptions) string {
	header := "NATS/1.0\r\nNats-Msg-Id: " + string(c.ID) + "\r\n"
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		header += oneLine(name) + ": " + oneLine(o.Headers[name]) + "\r\n"
	}
	header += "\r\n"
	return fmt.Sprintf("HPUB %s %d %d\r\n%s%s\r\n", c.Recipient, len(header), len(header)+len(c.text()), header, c.text())
}

func oneLine(s string) string { return strings.NewReplacer("\r", " ", "\n", " ").Replace(s) }

// signNATS signs the nonce of a server with a seed. A seed is base32 of two bytes
// that say what it is for, 32 bytes, and a checksum.
func signNATS(seed, nonce string) (public, signature string, err error) {
	decoded, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(strings.TrimSpace(seed))
	if err != nil || len(decoded) != 36 || checksum(decoded[:34]) != uint16(decoded[34])|uint16(decoded[35])<<8 {
		return "", "", invalid("nkey of the service is no seed")
	}
	kind := (decoded[0]&7)<<5 | decoded[1]>>3
	key := ed25519.NewKeyFromSeed(decoded[2:34])
	point, _ := key.Public().(ed25519.PublicKey)
	text := append([]byte{kind}, point...)
	sum := checksum(text)
	public = base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(append(text, byte(sum), byte(sum>>8)))
	return public, base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(nonce))), nil
}

// checksum is CRC-16/XMODEM.
func checksum(data []byte) (crc uint16) {
	for _, b := range data {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
