package lua

import (
	"math"
	"slices"
	"strings"
	"time"

	glua "github.com/yuin/gopher-lua"
)

const (
	maxThreads  = 16  // coroutines of one run
	maxUnpacked = 512 // values that unpack returns at once
	maxFormat   = 256 // bytes of a format of a time
)

// baseFunctions are the supported functions of the base library. Those that
// load code, read files or access the environment of other functions are not
// among them.
func baseFunctions() []string {
	return []string{
		"_G", "_VERSION", "assert", "error", "getmetatable", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget",
		"select", "setmetatable", "tonumber", "tostring", "type", "xpcall",
	}
}

// library sets what the script may call.
func (r *running) library() {
	l := r.l
	r.openers(map[string]glua.LGFunction{glua.BaseLibName: glua.OpenBase, glua.TabLibName: glua.OpenTable})
	keep := append(baseFunctions(), glua.TabLibName)
	globals := l.G.Global
	var drop []glua.LValue
	globals.ForEach(func(k, _ glua.LValue) {
		if !slices.Contains(keep, k.String()) {
			drop = append(drop, k)
		}
	})
	for _, k := range drop {
		globals.RawSet(k, glua.LNil)
	}
	r.functions(globals, map[string]glua.LGFunction{
		"print": func(*glua.LState) int { return 0 }, "rawset": r.rawSet, "unpack": r.unpack, "require": r.require,
	})
	table, _ := l.GetGlobal(glua.TabLibName).(*glua.LTable)
	r.functions(table, map[string]glua.LGFunction{"concat": r.tableConcat, "insert": r.tableInsert, "sort": r.tableSort, "unpack": r.unpack})
	system := l.NewTable()
	r.functions(system, map[string]glua.LGFunction{"time": r.osTime, "date": r.osDate, "clock": r.osClock, "difftime": osDifference})
	l.SetGlobal(glua.OsLibName, system)
	if r.open {
		r.openMore()
	}
}

// openMore adds the libraries that a setting enables.
func (r *running) openMore() {
	l := r.l
	r.openers(map[string]glua.LGFunction{glua.MathLibName: glua.OpenMath, glua.CoroutineLibName: glua.OpenCoroutine})
	if m, ok := l.GetGlobal(glua.MathLibName).(*glua.LTable); ok {
		m.RawSetString("randomseed", l.NewFunction(func(*glua.LState) int { return 0 }))
	}
	if co, ok := l.GetGlobal(glua.CoroutineLibName).(*glua.LTable); ok {
		for _, name := range []string{"create", "wrap"} {
			if made, ok := co.RawGetString(name).(*glua.LFunction); ok {
				co.RawSetString(name, l.NewFunction(r.thread(made)))
			}
		}
	}
	text := l.NewTable()
	r.functions(text, r.stringFunctions())
	l.SetGlobal(glua.StringLibName, text)
	meta := l.NewTable()
	meta.RawSetString("__index", text)
	l.SetMetatable(glua.LString(""), meta)
}

func (r *running) openers(open map[string]glua.LGFunction) {
	for name, f := range open {
		r.l.Push(r.l.NewFunction(f))
		r.l.Push(glua.LString(name))
		r.l.Call(1, 0)
	}
}

func (r *running) functions(into *glua.LTable, all map[string]glua.LGFunction) {
	for name, f := range all {
		into.RawSetString(name, r.l.NewFunction(f))
	}
}

// require returns the libraries that are open already, and nothing else.
func (r *running) require(l *glua.LState) int {
	name := l.CheckString(1)
	known := []string{glua.OsLibName, glua.TabLibName}
	if r.open {
		known = append(known, glua.StringLibName, glua.MathLibName, glua.CoroutineLibName)
	}
	if !slices.Contains(known, name) {
		l.RaiseError("there is no module %q here: a script can require %s", short(name), strings.Join(known, ", "))
	}
	l.Push(l.GetGlobal(name))
	return 1
}

// thread creates a coroutine whose instructions are counted like all others.
func (r *running) thread(make *glua.LFunction) glua.LGFunction {
	return func(l *glua.LState) int {
		l.CheckFunction(1)
		if r.b.threads++; r.b.threads > maxThreads {
			l.RaiseError("the script makes more than %d coroutines", maxThreads)
		}
		r.pay(l, 1, 2*registers*valueBytes+callDepth*frameBytes)
		parent := l.RemoveContext()
		made := make.GFunction(l)
		l.SetContext(parent)
		if th := threadOf(l.Get(-1)); th != nil {
			th.SetContext(meter{parent, r.b, th})
		}
		return made
	}
}

// threadOf finds the thread in the library's result: itself, or the function
// that resumes it.
func threadOf(v glua.LValue) *glua.LState {
	switch v := v.(type) {
	case *glua.LState:
		return v
	case *glua.LFunction:
		if len(v.Upvalues) > 0 {
			th, _ := v.Upvalues[0].Value().(*glua.LState)
			return th
		}
	}
	return nil
}

func (r *running) rawSet(l *glua.LState) int {
	t, k := l.CheckTable(1), l.CheckAny(2)
	if k == glua.LNil {
		l.RaiseError("the key of a table must not be nil")
	}
	r.payEntry(l, t, k)
	t.RawSet(k, l.CheckAny(3))
	l.Push(t)
	return 1
}

func (r *running) unpack(l *glua.LState) int {
	t := l.CheckTable(1)
	from, to := l.OptInt(2, 1), l.OptInt(3, t.Len())
	if from > to {
		return 0
	}
	if n := float64(to) - float64(from) + 1; n > maxUnpacked {
		l.RaiseError("too many results to unpack: %.0f, and at most %d are given", n, maxUnpacked)
	}
	r.pay(l, int64(to-from), 0)
	for i := from; i <= to; i++ {
		l.Push(t.RawGetInt(i))
	}
	return to - from + 1
}

func (r *running) tableConcat(l *glua.LState) int {
	t, sep := l.CheckTable(1), l.OptString(2, "")
	from, to := l.OptInt(3, 1), l.OptInt(4, t.Len())
	var parts []string
	size := 0
	for i := from; i <= to; i++ {
		v := t.RawGetInt(i)
		if !glua.LVCanConvToString(v) {
			l.RaiseError("invalid value (%s) at index %d in table for 'concat'", v.Type(), i)
		}
		part := v.String()
		size += len(part) + len(sep)
		if size > r.b.limits.Text {
			r.payText(l, size)
		}
		r.pay(l, 1, valueBytes)
		parts = append(parts, part)
	}
	r.payText(l, size)
	l.Push(glua.LString(strings.Join(parts, sep)))
	return 1
}

func (r *running) tableInsert(l *glua.LState) int {
	t := l.CheckTable(1)
	if l.GetTop() < 2 {
		l.RaiseError("wrong number of arguments to 'insert'")
	}
	if l.GetTop() == 2 {
		r.pay(l, 0, 2*valueBytes)
		t.Append(l.Get(2))
		return 0
	}
	at, n := l.CheckInt(2), t.Len()
	if at < 1 || at > n+1 {
		l.RaiseError("bad argument #2 to 'insert' (position out of bounds)")
	}
	r.pay(l, int64(n-at+1)/16, 2*valueBytes)
	t.Insert(at, l.CheckAny(3))
	return 0
}

func (r *running) tableSort(l *glua.LState) int {
	t := l.CheckTable(1)
	n := t.Len()
	less := func(a, b glua.LValue) bool { return l.LessThan(a, b) }
	if l.GetTop() > 1 && l.Get(2) != glua.LNil {
		f := l.CheckFunction(2)
		less = func(a, b glua.LValue) bool {
			l.Push(f)
			l.Push(a)
			l.Push(b)
			l.Call(2, 1)
			yes := glua.LVAsBool(l.Get(-1))
			l.Pop(1)
			return yes
		}
	}
	r.pay(l, int64(n), int64(n)*valueBytes)
	values := make([]glua.LValue, n)
	for i := range values {
		values[i] = t.RawGetInt(i + 1)
	}
	slices.SortStableFunc(values, func(a, b glua.LValue) int {
		r.pay(l, 1, 0)
		switch {
		case less(a, b):
			return -1
		case less(b, a):
			return 1
		}
		return 0
	})
	for i, v := range values {
		t.RawSetInt(i+1, v)
	}
	return 0
}

// osClock counts the run's own instructions: the process's CPU time must not be
// visible here.
func (r *running) osClock(l *glua.LState) int {
	l.Push(glua.LNumber(float64(r.b.steps) / 1e7))
	return 1
}

func osDifference(l *glua.LState) int {
	l.Push(l.CheckNumber(1) - l.OptNumber(2, 0))
	return 1
}

func (r *running) osTime(l *glua.LState) int {
	if l.GetTop() == 0 || l.Get(1) == glua.LNil {
		l.Push(glua.LNumber(r.now().Unix()))
		return 1
	}
	t := l.CheckTable(1)
	field := func(name string, otherwise int) int {
		n := glua.LVAsNumber(t.RawGetString(name))
		if t.RawGetString(name) == glua.LNil || math.IsNaN(float64(n)) {
			return otherwise
		}
		return int(max(min(n, 1<<31), -1<<31))
	}
	at := time.Date(field("year", 1970), time.Month(field("month", 1)), field("day", 1),
		field("hour", 12), field("min", 0), field("sec", 0), 0, time.UTC)
	l.Push(glua.LNumber(at.Unix()))
	return 1
}

func (r *running) osDate(l *glua.LState) int {
	format := l.OptString(1, "%c")
	if len(format) > maxFormat {
		l.RaiseError("the format of a date has more than %d bytes", maxFormat)
	}
	at := r.now()
	if l.GetTop() >= 2 && l.Get(2) != glua.LNil {
		at = time.Unix(l.CheckInt64(2), 0)
	}
	at = at.UTC()
	format = strings.TrimPrefix(format, "!")
	if strings.HasPrefix(format, "*t") {
		l.Push(dateTable(l, at))
		return 1
	}
	text := dateText(at, format)
	r.payText(l, len(text))
	l.Push(glua.LString(text))
	return 1
}

func dateTable(l *glua.LState, at time.Time) *glua.LTable {
	t := l.NewTable()
	for name, n := range map[string]int{
		"year": at.Year(), "month": int(at.Month()), "day": at.Day(), "hour": at.Hour(), "min": at.Minute(), "sec": at.Second(),
		"wday": int(at.Weekday()) + 1, "yday": at.YearDay(),
	} {
		t.RawSetString(name, glua.LNumber(n))
	}
	t.RawSetString("isdst", glua.LFalse)
	return t
}

// dateText writes a time by a format of strftime.
func dateText(at time.Time, format string) string {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'b': "Jan", 'B': "January", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'D': "01/02/06", 'e': "_2",
		'F': "2006-01-02", 'H': "15", 'I': "03", 'j': "002", 'm': "01", 'M': "04", 'n': "\n", 'p': "PM", 'R': "15:04", 'S': "05", 't': "\t",
		'T': "15:04:05", 'x': "01/02/06", 'X': "15:04:05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
	}
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			out.WriteByte(format[i])
			continue
		}
		i++
		switch layout, known := layouts[format[i]]; {
		case known:
			out.WriteString(at.Format(layout))
		case format[i] == 'w':
			out.WriteByte('0' + byte(at.Weekday()))
		case format[i] == '%':
			out.WriteByte('%')
		default:
			out.WriteByte('%')
			out.WriteByte(format[i])
		}
	}
	return out.String()
}
