package lua

import (
	"context"
	"time"

	glua "github.com/yuin/gopher-lua"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A running is one run of one script, with an interpreter of its own.
type running struct {
	l       *glua.LState
	b       *budget
	now     func() time.Time
	open    bool
	origins map[*glua.LTable]any // the value that a table was made from: map[string]any or []any
	object  map[string]any
}

func newRun(ctx context.Context, c Call) *running {
	r := &running{
		b: newBudget(ctx, c.Limits), now: c.Now, open: c.Open,
		origins: map[*glua.LTable]any{}, object: c.Object,
	}
	if r.now == nil {
		r.now = time.Now
	}
	// A call stack of fixed size: the growing one (MinimizeStackMemory) does
	// not detect that it is full, and shares its frames between interpreters.
	r.l = glua.NewState(glua.Options{
		SkipOpenLibs: true, CallStackSize: callDepth,
		RegistrySize: registers, RegistryMaxSize: moreValues, RegistryGrowStep: registers,
	})
	r.library()
	params := r.l.CreateTable(0, len(c.Params))
	for name, value := range c.Params {
		params.RawSetString(name, glua.LString(value))
	}
	r.l.SetGlobal("actionParams", params)
	return r
}

func (r *running) close() { r.l.Close() }

func (r *running) do(s *Script) (any, error) {
	object, err := r.fromGo(r.object, 0)
	if err != nil {
		return nil, err
	}
	r.l.SetGlobal("obj", object)
	r.l.SetContext(meter{context.Background(), r.b, r.l})
	main := r.l.NewFunctionFromProto(s.proto)
	err = r.l.CallByParam(glua.P{Fn: main, NRet: 1, Protect: true},
		r.l.NewFunction(r.concat), r.l.NewFunction(r.set), r.l.NewFunction(r.key))
	switch {
	case r.b.err != nil:
		return nil, r.b.err
	case err != nil:
		return nil, failure(err)
	}
	return r.toGo(r.l.Get(-1), r.object, 0)
}

// concat joins two values as the operator .. does.
func (r *running) concat(l *glua.LState) int {
	a, b := l.Get(1), l.Get(2)
	if glua.LVCanConvToString(a) && glua.LVCanConvToString(b) {
		left, right := a.String(), b.String()
		r.payText(l, len(left)+len(right))
		l.Push(glua.LString(left + right))
		return 1
	}
	for _, v := range []glua.LValue{a, b} {
		if f := l.GetMetaField(v, "__concat"); f.Type() == glua.LTFunction {
			l.Push(f)
			l.Push(a)
			l.Push(b)
			l.Call(2, 1)
			return 1
		}
	}
	odd := a
	if glua.LVCanConvToString(a) {
		odd = b
	}
	l.RaiseError("attempt to concatenate a %s value", odd.Type())
	return 0
}

// set is t[k] = v.
func (r *running) set(l *glua.LState) int {
	t, k, v := l.Get(1), l.Get(2), l.Get(3)
	switch k := k.(type) {
	case *glua.LNilType:
		l.RaiseError("the key of a table must not be nil")
	case glua.LNumber:
		if k != k {
			l.RaiseError("the key of a table must be a number that is one")
		}
	}
	r.payEntry(l, t, k)
	l.SetTable(t, k, v)
	return 0
}

// key counts a computed key of a table constructor.
func (r *running) key(l *glua.LState) int {
	r.payEntry(l, nil, l.Get(1))
	l.Push(l.Get(1))
	return 1
}

// payEntry counts by how much an entry makes a table grow. A number beyond the
// end of a list makes the list as long as the number.
func (r *running) payEntry(l *glua.LState, t, k glua.LValue) {
	n, ok := k.(glua.LNumber)
	if !ok || n < 1 || n >= glua.LNumber(glua.MaxArrayIndex) {
		r.pay(l, 0, entryBytes)
		return
	}
	length := 0
	if table, plain := t.(*glua.LTable); plain && (table.Metatable == nil || table.Metatable == glua.LNil) {
		length = table.Len()
	}
	gap := max(int64(n)-int64(length), 1)
	r.pay(l, gap/64, gap*2*valueBytes)
}

// wrong is the error for a value that a script cannot return.
func wrong(format string, args ...any) error {
	return fault.New(fault.Invalid, "the script returned "+format, args...)
}
