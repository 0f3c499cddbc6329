package send

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

type emailOptions struct {
	Host               string `json:"host"`
	Port               int    `json:"port"`
	InsecureSkipVerify bool   `json:"insecure_skip_verify"`
	Username           string `json:"username"`
	Password           string `json:"password"`
	From               string `json:"from"`
	HTML               bool   `json:"html"`
}

const implicitTLS = 465

// email sends to the addresses of the recipient, which commas separate. A server
// that offers TLS is talked to with TLS; without it, no password is sent.
func (c *call) email() error {
	var o emailOptions
	var part struct{ Subject, Body string }
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	m, err := c.mail(o, part.Subject, or(part.Body, c.text()))
	if err != nil {
		return err
	}
	client, err := c.mailClient(o)
	if err != nil {
		return err
	}
	c.record(fmt.Sprintf("SMTP %s from %s to %s\nSubject: %s", net.JoinHostPort(o.Host, fmt.Sprint(o.Port)), or(o.From, o.Username), c.Recipient, part.Subject), or(part.Body, c.text()))
	err = client.DialAndSendWithContext(c.ctx, m)
	c.attempt.Answer = c.mask.Replace(m.ServerResponse())
	var refused *mail.SendError
	if errors.As(err, &refused) {
		c.attempt.Status = refused.ErrorCode()
		return &Failure{Permanent: !refused.IsTemp() && refused.ErrorCode() >= 500, Err: fault.New(fault.Offline, "the server refused the message: %s", refused.Error())}
	}
	if err == nil {
		c.attempt.Status = 250
	}
	return err
}

func (c *call) mail(o emailOptions, subject, body string) (*mail.Msg, error) {
	m := mail.NewMsg()
	if err := m.From(or(o.From, o.Username)); err != nil {
		return nil, invalid("the address %q of the sender cannot be read", or(o.From, o.Username))
	}
	for _, to := range strings.Split(c.Recipient, ",") {
		if err := m.AddTo(strings.TrimSpace(to)); err != nil {
			return nil, invalid("the address %q of the recipient cannot be read", strings.TrimSpace(to))
		}
	}
	m.Subject(strings.Join(strings.Fields(subject), " "))
	m.SetDateWithValue(c.At)
	// Mail servers that see the id again, in another attempt, may drop it.
	m.SetMessageIDWithValue(string(c.ID) + "@capstan")
	kind := mail.TypeTextPlain
	if o.HTML {
		kind = mail.TypeTextHTML
	}
	m.SetBodyString(kind, body)
	return m, nil
}

func (c *call) mailClient(o emailOptions) (*mail.Client, error) {
	if o.Host == "" {
		return nil, invalid("the service has no host")
	}
	authorities, err := c.Authorities(c.ctx, c.Tenant, o.Host)
	if err != nil {
		return nil, err
	}
	secure := &tls.Config{ServerName: o.Host, InsecureSkipVerify: o.InsecureSkipVerify, MinVersion: tls.VersionTLS12} //nolint:gosec // the tenant's own choice, for a server of theirs
	if authorities != "" {
		secure.RootCAs = x509.NewCertPool()
		secure.RootCAs.AppendCertsFromPEM([]byte(authorities))
	}
	dialer := guard.Dialer(c.Allowed)
	options := []mail.Option{
		mail.WithPort(o.Port), mail.WithTLSConfig(secure), mail.WithTimeout(timeout),
		mail.WithTLSPolicy(mail.TLSOpportunistic), mail.WithoutNoop(),
		mail.WithDialContextFunc(func(ctx context.Context, network, address string) (net.Conn, error) {
			if o.Port == implicitTLS {
				return (&tls.Dialer{NetDialer: dialer, Config: secure}).DialContext(ctx, network, address)
			}
			return dialer.DialContext(ctx, network, address)
		}),
	}
	if o.Port == implicitTLS {
		options = append(options, mail.WithSSL())
	}
	if o.Username != "" && o.Password != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(o.Username), mail.WithPassword(o.Password))
	}
	client, err := mail.NewClient(o.Host, options...)
	if err != nil {
		return nil, invalid("the options of the service %s are not usable: %s", c.Service.Name, rootCause(err))
	}
	return client, nil
}
