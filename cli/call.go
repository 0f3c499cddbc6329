package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxAnswer bounds what is read of one answer.
const maxAnswer = 256 << 20

// answerError is an error that the hub answered with.
type answerError struct {
	status int
	body   apimodel.Error
}

func (e *answerError) Error() string { return e.body.Message }

func (e *answerError) sentence() string {
	s := e.body.Message
	if e.body.Fix != "" {
		s += "; " + e.body.Fix
	}
	return fmt.Sprintf("%s [%s, request %s]", s, e.body.Code, e.body.RequestId)
}

// statusOf is the status that a code of an error stands for; 0: none.
func statusOf(code string) int {
	status, err := strconv.Atoi(strings.TrimPrefix(code, "CAP-1"))
	if err != nil {
		return 0
	}
	return status
}

// call processes the result of a client method and decodes the response into T,
// beside its raw form. A response without a body leaves both empty.
func call[T any](res *http.Response, err error) (T, []byte, error) {
	var out T
	raw, err := read(res, err)
	if err != nil || len(raw) == 0 {
		return out, raw, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, raw, fmt.Errorf("the hub's answer cannot be read; is the address that of a Capstan hub? %w", err)
	}
	return out, raw, nil
}

func read(res *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, unreachable(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, unreachable(err)
	}
	if res.StatusCode < 300 {
		return raw, nil
	}
	e := &answerError{status: res.StatusCode}
	if json.Unmarshal(raw, &e.body) != nil || e.body.Message == "" {
		return nil, fault.New(fault.Offline, "the server answered %s, which is no answer of a Capstan hub", res.Status)
	}
	return nil, e
}

func unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fault.With(fault.Wrap(fault.Offline, err, "the hub cannot be reached"), "", "check --server and the network")
}

// unavailable reports whether an answer is that the agent could not be asked.
func unavailable(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.status == http.StatusServiceUnavailable
}

func answerText(err error) string {
	var answer *answerError
	if errors.As(err, &answer) {
		return answer.sentence()
	}
	return err.Error()
}
