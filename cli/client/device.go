package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// maxDevice bounds an answer of the endpoints of OAuth, in bytes.
const maxDevice = 64 << 10

// A DeviceAnswer is what the endpoints of OAuth answer to a device (RFC 8628):
// codes, a token, or an error.
type DeviceAnswer struct {
	Status      int    `json:"-"`
	DeviceCode  string `json:"device_code"`
	UserCode    string `json:"user_code"`
	URI         string `json:"verification_uri"`
	Complete    string `json:"verification_uri_complete"`
	ExpiresIn   int    `json:"expires_in"` // seconds
	Interval    int    `json:"interval"`   // seconds
	AccessToken string `json:"access_token"`
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// AskDevice begins the sign-in of this device.
func (c *Client) AskDevice(ctx context.Context, form url.Values) (DeviceAnswer, error) {
	return c.form(ctx, "/api/v1/device/code", form)
}

// AskToken asks for a token. What the hub refuses is in the answer and no error.
func (c *Client) AskToken(ctx context.Context, form url.Values) (DeviceAnswer, error) {
	return c.form(ctx, "/api/v1/token", form)
}

func (c *Client) form(ctx context.Context, path string, form url.Values) (out DeviceAnswer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server+path, strings.NewReader(form.Encode()))
	if err != nil {
		return out, fault.New(fault.Invalid, "%q is no URL of a hub", c.server)
	}
	r.Header = c.header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(r)
	if err != nil {
		return out, fault.Wrap(fault.Offline, err, "the hub does not answer")
	}
	defer resp.Body.Close()
	out.Status = resp.StatusCode
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxDevice)).Decode(&out); err != nil {
		return out, fault.Wrap(fault.Offline, err, "the hub answered with status %d", resp.StatusCode)
	}
	return out, nil
}
