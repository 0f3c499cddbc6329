package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
)

// deviceGrant is the grant type of a device at the token endpoint (RFC 8628).
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// devicePath is the page of the console on which people decide about a device.
const devicePath = "/device"

// codeTries is how often a code is made anew that another device shows.
const codeTries = 5

// form reads the form of an OAuth endpoint.
func (s *Server) form(c echo.Context) (url.Values, error) {
	r := c.Request()
	r.Body = http.MaxBytesReader(c.Response(), r.Body, maxExchange)
	if err := r.ParseForm(); err != nil {
		return nil, fault.New(fault.Invalid, "the form cannot be read")
	}
	return r.PostForm, nil
}

// answerToken serves the token endpoint for each grant type that the hub knows.
func (s *Server) answerToken(c echo.Context) error {
	if !s.limits.Address.Allow(clientip.Key(callerOf(c.Request().Context()).Address)) {
		return s.exchangeFailed(c, errTooFast())
	}
	form, err := s.form(c)
	if err != nil {
		return s.exchangeFailed(c, err)
	}
	switch form.Get("grant_type") {
	case deviceGrant:
		return s.deviceToken(c, form)
	case exchange.GrantType:
		return s.exchangeToken(c, form)
	}
	return s.exchangeFailed(c, fault.With(fault.New(fault.Invalid, "grant_type is neither %s nor %s", exchange.GrantType, deviceGrant), "unsupported_grant_type", ""))
}

type deviceAnswer struct {
	DeviceCode              string `json:"device_code"`
	UserCode                string `json:"user_code"`
	VerificationURI         string `json:"verification_uri"`
	VerificationURIComplete string `json:"verification_uri_complete"`
	ExpiresIn               int    `json:"expires_in"` // seconds
	Interval                int    `json:"interval"`   // seconds
}

// askDevice begins the sign-in of a device (RFC 8628, section 3.1). tenant names
// the tenant; without it, it is the one called default.
func (s *Server) askDevice(c echo.Context) error {
	ctx := c.Request().Context()
	address := clientip.Key(callerOf(ctx).Address)
	if !s.limits.Address.Allow(address) || !s.limits.SignIn.Allow(address) {
		return s.exchangeFailed(c, errTooFast())
	}
	form, err := s.form(c)
	if err != nil {
		return s.exchangeFailed(c, err)
	}
	answer, err := s.begunDevice(ctx, cmp.Or(form.Get("tenant"), defaultTenant))
	if err != nil {
		return s.exchangeFailed(c, err)
	}
	return c.JSON(http.StatusOK, answer)
}

func (s *Server) begunDevice(ctx context.Context, tenantName string) (deviceAnswer, error) {
	tenant, err := s.Identity.TenantByName(ctx, tenantName)
	if fault.KindOf(err) == fault.Missing || err == nil && tenant.Suspended {
		return deviceAnswer{}, fault.With(fault.New(fault.Denied, "this organisation signs no devices in"), "", "check the name of the organisation")
	}
	if err != nil {
		return deviceAnswer{}, err
	}
	secret, err := identity.NewStamp(tenant.ID)
	if err != nil {
		return deviceAnswer{}, err
	}
	for try := 1; ; try++ {
		code := identity.NewUserCode()
		plain, err := identity.TypedUserCode(code)
		if err != nil {
			return deviceAnswer{}, err
		}
		d, err := s.Catalog.AskDevice(ctx, tenant.ID, from(ctx), identity.Hash(secret), plain)
		if fault.KindOf(err) == fault.Conflict && try < codeTries {
			continue // another device shows this code
		}
		if err != nil {
			return deviceAnswer{}, err
		}
		page := strings.TrimRight(s.cfg.ExternalURL, "/") + devicePath
		q := url.Values{"user_code": {code}}
		if tenantName != defaultTenant {
			q.Set("tenant", tenantName)
		}
		return deviceAnswer{
			DeviceCode: secret, UserCode: code, VerificationURI: page, VerificationURIComplete: page + "?" + q.Encode(),
			ExpiresIn: int(hub.DeviceLoginLasts.Seconds()), Interval: d.Pace,
		}, nil
	}
}

// deviceToken answers a device that asks whether it was approved.
func (s *Server) deviceToken(c echo.Context, form url.Values) error {
	secret := form.Get("device_code")
	if secret == "" {
		return s.exchangeFailed(c, fault.New(fault.Invalid, "device_code is missing"))
	}
	answer, err := s.polledDevice(c.Request().Context(), secret)
	if err != nil {
		return s.exchangeFailed(c, err)
	}
	return c.JSON(http.StatusOK, answer)
}

// oauth is an error with a word of its own in the shape of OAuth.
func oauth(word, cause string) error {
	return fault.With(fault.New(fault.Denied, "%s", cause), word, "")
}

func (s *Server) polledDevice(ctx context.Context, secret string) (exchangeAnswer, error) {
	unknown := oauth("invalid_grant", "the code of the device is unknown, or was used")
	id, ok := identity.TenantOf(secret)
	if !ok {
		return exchangeAnswer{}, unknown
	}
	tenant, err := s.Identity.Tenant(ctx, id)
	var d hub.DeviceLogin
	var early bool
	if err == nil {
		d, early, err = s.Catalog.PollDevice(ctx, id, identity.Hash(secret))
	}
	switch {
	case fault.KindOf(err) == fault.Missing:
		return exchangeAnswer{}, unknown
	case err != nil:
		return exchangeAnswer{}, err
	case early:
		return exchangeAnswer{}, oauth("slow_down", "the device asks too often")
	case tenant.Suspended:
		return exchangeAnswer{}, oauth("access_denied", "the organisation is suspended")
	case d.Decision == hub.DeviceDenied:
		return exchangeAnswer{}, oauth("access_denied", "the sign-in was denied in the browser")
	case !time.Now().Before(d.ExpiresAt):
		return exchangeAnswer{}, oauth("expired_token", "nobody has approved the sign-in in time")
	case d.Decision == "":
		return exchangeAnswer{}, oauth("authorization_pending", "nobody has decided yet")
	}
	token, _, expires, err := s.Identity.BeginFrom(ctx, from(ctx), tenant, d)
	if fault.KindOf(err) == fault.Denied {
		return exchangeAnswer{}, oauth("access_denied", "the sign-in that has approved this device has ended")
	}
	if err != nil {
		return exchangeAnswer{}, err
	}
	return exchangeAnswer{token, exchange.TypeAccessToken, "bearer", int(time.Until(expires).Seconds())}, nil
}

// FindDeviceLogin answers what waits with a code, so that people compare it.
func (s *Server) FindDeviceLogin(ctx context.Context, r gen.FindDeviceLoginRequestObject) (gen.FindDeviceLoginResponseObject, error) {
	who := callerOf(ctx)
	code, err := identity.TypedUserCode(r.Body.UserCode)
	if err != nil {
		return nil, err
	}
	var d hub.DeviceLogin
	err = s.Identity.TryUserCode(ctx, who, func(ctx context.Context) (err error) {
		d, err = s.Catalog.DeviceLogin(ctx, who, code)
		return err
	})
	if err != nil {
		return nil, err
	}
	return gen.FindDeviceLogin200JSONResponse{
		UserCode: identity.ShownUserCode(code), Address: d.Address, Client: d.Client, CreatedAt: d.CreatedAt.UTC(), ExpiresAt: d.ExpiresAt.UTC(),
		SameAddress: clientip.Key(d.Address) == clientip.Key(who.Address), Recent: who.Via == "session" && who.Fresh(time.Now()),
	}, nil
}

// DecideDeviceLogin approves or denies the sign-in of a device.
func (s *Server) DecideDeviceLogin(ctx context.Context, r gen.DecideDeviceLoginRequestObject) (gen.DecideDeviceLoginResponseObject, error) {
	who := callerOf(ctx)
	code, err := identity.TypedUserCode(r.Body.UserCode)
	if err != nil {
		return nil, err
	}
	err = s.Identity.TryUserCode(ctx, who, func(ctx context.Context) error {
		return s.Catalog.DecideDevice(ctx, who, identity.Hash(secretOf(ctx)), code, r.Body.Approve)
	})
	if err != nil {
		return nil, err
	}
	return gen.DecideDeviceLogin204Response{}, nil
}
