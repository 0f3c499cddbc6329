package client

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

// AnswerError is an error that the hub answered with.
type AnswerError struct {
	Status int
	Body   apimodel.Error
}

func (e *AnswerError) Error() string { return e.Body.Message }

// Sentence is the message with what to do, its code and its request.
func (e *AnswerError) Sentence() string {
	s := e.Body.Message
	if e.Body.Fix != "" {
		s += "; " + e.Body.Fix
	}
	return fmt.Sprintf("%s [%s, request %s]", s, e.Body.Code, e.Body.RequestId)
}

// StatusOf is the status that a code of an error stands for; 0: none.
func StatusOf(code string) int {
	status, err := strconv.Atoi(strings.TrimPrefix(code, "CAP-1"))
	if err != nil {
		return 0
	}
	return status
}

// Call processes the result of a client method and decodes the response into T,
// beside its raw form. A response without a body leaves both empty.
func Call[T any](res *http.Response, err error) (T, []byte, error) {
	var out T
	raw, err := Read(res, err)
	if err != nil || len(raw) == 0 {
		return out, raw, err
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, raw, fmt.Errorf("the hub's answer cannot be read; is the address that of a Capstan hub? %w", err)
	}
	return out, raw, nil
}

// Read returns the body of a response. The error is an AnswerError if the hub sent
// one.
func Read(res *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, Unreachable(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, Unreachable(err)
	}
	if res.StatusCode < 300 {
		return raw, nil
	}
	e := &AnswerError{Status: res.StatusCode}
	if json.Unmarshal(raw, &e.Body) != nil || e.Body.Message == "" {
		return nil, fault.New(fault.Offline, "the server answered %s, which is no answer of a Capstan hub", res.Status)
	}
	return nil, e
}

// Unreachable is the error of a request without a response.
func Unreachable(err error) error {
	if errors.Is(err, context.Canceled) {
		return context.Canceled
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if _, known := fault.As(err); known {
		return err
	}
	return fault.With(fault.Wrap(fault.Offline, err, "the hub cannot be reached"), "", "check --server and the network")
}

// Unavailable reports whether an answer is that the agent could not be asked.
func Unavailable(err error) bool {
	var answer *AnswerError
	return errors.As(err, &answer) && answer.Status == http.StatusServiceUnavailable
}

// Text is what an error says to people.
func Text(err error) string {
	var answer *AnswerError
	if errors.As(err, &answer) {
		return answer.Sentence()
	}
	return err.Error()
}
