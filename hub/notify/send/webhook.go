package send

import (
	"net/http"
	"net/url"
	"strings"
)

type basicAuth struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

func (b *basicAuth) user() *url.Userinfo {
	if b == nil {
		return nil
	}
	return url.UserPassword(b.Username, b.Password)
}

type webhookOptions struct {
	URL     string `json:"url"`
	Headers []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"headers"`
	BasicAuth          *basicAuth `json:"basicAuth"`
	InsecureSkipVerify bool       `json:"insecureSkipVerify"`
}

// webhook sends a request of any form. The header X-Capstan-Delivery is the same
// in all attempts of a message.
func (c *call) webhook() error {
	var o webhookOptions
	if err := c.options(&o); err != nil {
		return err
	}
	var part struct{ Method, Path, Body string }
	found, err := c.part(&part)
	if err != nil {
		return err
	}
	r := request{method: http.MethodGet, url: o.URL, user: o.BasicAuth.user(), body: c.text(), insecure: o.InsecureSkipVerify, header: map[string]string{"X-Capstan-Delivery": string(c.ID)}}
	if found {
		r.method, r.body = strings.ToUpper(or(part.Method, r.method)), part.Body
		if part.Path != "" {
			r.url = strings.TrimRight(o.URL, "/") + "/" + strings.TrimLeft(part.Path, "/")
		}
	}
	for _, h := range o.Headers {
		r.header[h.Name] = h.Value
	}
	_, err = c.do(r)
	return err
}
