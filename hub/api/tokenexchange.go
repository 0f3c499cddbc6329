package api

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// exchangeToken gives a machine a session for the token of its issuer. Request
// and answers are those of OAuth, which clients of Argo CD's Dex send and read.
func (s *Server) exchangeToken(c echo.Context) error {
	ctx, r := c.Request().Context(), c.Request()
	if err := r.ParseForm(); err != nil {
		return s.exchangeFailed(c, fault.Wrap(fault.Invalid, err, "the form cannot be read"))
	}
	tenant := cmp.Or(r.PostForm.Get("tenant"), defaultTenant)
	in, err := s.SignIn.ExchangeToken(ctx, from(ctx), tenant, r.PostForm)
	if s.Metrics != nil {
		s.Metrics.Login(err == nil)
	}
	if err != nil {
		return s.exchangeFailed(c, err)
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.JSON(http.StatusOK, exchange.Response{
		AccessToken: in.Secret, IssuedTokenType: exchange.TypeAccessToken, TokenType: "Bearer", ExpiresIn: int64(time.Until(in.Expires).Seconds()),
	})
}

// An oauthError is an error in the shape of the API, with the fields of OAuth.
type oauthError struct {
	apimodel.Error
	Code        string `json:"error"`
	Description string `json:"error_description"`
}

// exchangeFailed answers an error as OAuth does (RFC 6749, 5.2).
func (s *Server) exchangeFailed(c echo.Context, err error) error {
	code, status := exchange.ErrorCode(err), http.StatusBadRequest
	_, body := s.present(c, err)
	switch code {
	case "temporarily_unavailable":
		status = http.StatusServiceUnavailable
	case "server_error":
		status = http.StatusInternalServerError
		s.noteInternal(c, err)
	}
	if e, ok := fault.As(err); ok && e.RetryAfter > 0 {
		c.Response().Header().Set("Retry-After", strconv.Itoa(int(e.RetryAfter.Seconds())))
	}
	s.Log.InfoContext(c.Request().Context(), "a machine's token was refused", logkey.Request, requestID(c), logkey.Error, err)
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.JSON(status, oauthError{Error: body, Code: code, Description: fault.Sentence(err)})
}
