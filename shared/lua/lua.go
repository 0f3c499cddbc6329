// Package lua runs users' small scripts for health and actions. A script gets
// an object and returns a value; it can access no file, no network, no
// environment, no other script and no code except its own text. agent/rule and
// shared/action call it. A script ends within its limits of time, steps and
// memory with one clear error. The object that it returns has the same
// integers, empty lists and empty maps, unless the script changed them.
package lua

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	glua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	chunkName  = "line"    // what the interpreter writes before a line number
	maxSource  = 256 << 10 // bytes of one script
	maxMessage = 1 << 10   // bytes of an error that a script raises
	callDepth  = 180       // calls inside one another
	registers  = 1024      // values on a script's stack at once
	moreValues = 8192      // as many as that may grow to
)

// Limits bound one run of a script.
type Limits struct {
	Time   time.Duration // on the clock
	Steps  int64         // instructions, and steps of the functions that a script calls
	Memory int64         // bytes of all texts and tables that it creates
	Text   int           // bytes of one text
}

// Bounds are the limits of users' scripts.
func Bounds() Limits {
	return Limits{Time: time.Second, Steps: 1_000_000, Memory: 64 << 20, Text: 4 << 20}
}

// A Script is text that was compiled. Many goroutines may run it at once.
type Script struct {
	name  string
	hash  [sha256.Size]byte
	proto *glua.FunctionProto
}

// Compile reads a script. The name is what errors call it by.
func Compile(name, source string) (s *Script, err error) {
	defer func() {
		if r := recover(); r != nil {
			s, err = nil, broken(name, fmt.Sprint(r))
		}
	}()
	if len(source) > maxSource {
		return nil, fault.With(fault.New(fault.Exceeded, "the script has %d bytes, and the limit is %d", len(source), maxSource), name, "")
	}
	chunk, err := parse.Parse(strings.NewReader(source), chunkName)
	if err != nil {
		return nil, broken(name, err.Error())
	}
	if chunk, err = guard(chunk); err != nil {
		return nil, fault.With(err, name, "")
	}
	proto, err := glua.Compile(chunk, chunkName)
	if err != nil {
		return nil, broken(name, err.Error())
	}
	return &Script{name: name, hash: sha256.Sum256([]byte(source)), proto: proto}, nil
}

// broken is the error for a script that is not valid Lua.
func broken(name, message string) error {
	message = strings.TrimPrefix(strings.Join(strings.Fields(message), " "), chunkName+" ")
	return fault.With(fault.New(fault.Invalid, "the script is not valid Lua: %s", short(message)), name, "correct the script")
}

// Hash distinguishes scripts of different text.
func (s *Script) Hash() [sha256.Size]byte { return s.hash }

// A Call contains the inputs of one run.
type Call struct {
	Object map[string]any    // the global obj; never changed
	Params map[string]string // the global actionParams
	Open   bool              // with the libraries string, math and coroutine
	Limits Limits            // zero fields: those of Bounds
	Now    func() time.Time  // the clock that the script reads; nil: the real one
}

// Run runs the script and returns its first result: nil, bool, int64, float64,
// string, []any or map[string]any. A script that fails is fault.Invalid, one
// that exceeds a limit fault.Exceeded.
func (s *Script) Run(ctx context.Context, c Call) (result any, err error) {
	r := newRun(ctx, c)
	defer func() {
		if broken := recover(); broken != nil {
			result, err = nil, fault.With(r.brokenDown(broken), s.name, "")
		}
		r.close()
	}()
	result, err = r.do(s)
	if err != nil {
		return nil, fault.With(err, s.name, "")
	}
	return result, nil
}

// brokenDown is the error for a script in which the interpreter itself failed.
// A limit that was exceeded before is the cause.
func (r *running) brokenDown(recovered any) error {
	if r.b.err != nil {
		return r.b.err
	}
	return fault.New(fault.Invalid, "the script failed: %s", short(fmt.Sprint(recovered)))
}

// failure is the error for a script that did not reach its end.
func failure(err error) error {
	var api *glua.ApiError
	if !errors.As(err, &api) {
		return fault.New(fault.Invalid, "the script failed: %s", short(err.Error()))
	}
	message := "it raised an error that is no text"
	switch v := api.Object.(type) {
	case glua.LString, glua.LNumber:
		message = v.String()
	case *glua.LTable:
		if text, ok := v.RawGetString("message").(glua.LString); ok {
			message = string(text)
		}
	case nil, *glua.LNilType:
		if api.Cause != nil {
			message = api.Cause.Error()
		}
	}
	if rest, ok := strings.CutPrefix(message, chunkName+":"); ok {
		message = chunkName + " " + rest
	}
	return fault.New(fault.Invalid, "the script failed: %s", short(message))
}

// short truncates a script's own error text.
func short(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}
