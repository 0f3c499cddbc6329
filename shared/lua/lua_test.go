package lua_test

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lua"
)

func compile(t testing.TB, source string) *lua.Script {
	t.Helper()
	s, err := lua.Compile("script", source)
	if err != nil {
		t.Fatalf("compile %q: %v", source, err)
	}
	return s
}

func run(t testing.TB, source string, c lua.Call) (any, error) {
	t.Helper()
	return compile(t, source).Run(context.Background(), c)
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var raw map[string]any
	if err := d.Decode(&raw); err != nil {
		t.Fatal(err)
	}
	return exact(raw).(map[string]any)
}

// exact returns numbers the types that objects of a cluster have.
func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = exact(e)
		}
	case []any:
		for i, e := range v {
			v[i] = exact(e)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

func TestHostileScripts(t *testing.T) {
	t.Parallel()
	limits := lua.Limits{Time: 10 * time.Minute}     // what ends these is no clock, unless the test says so
	const whichever = "the script was stopped after" // so many steps, or its time
	cases := []struct{ name, source, want string }{
		{"endless loop", `while true do end`, "steps"},
		{"endless loop in pcall", `while true do pcall(function() while true do end end) end`, "steps"},
		{"endless repeat", `repeat local x = 1 until false`, "steps"},
		{"endless goto", `::a:: goto a`, "steps"},
		{"endless recursion in tail calls", `local function f() return f() end return f()`, "steps"},
		{"deep recursion", `local function f() f() return 1 end return f()`, "stack overflow"},
		{"recursion through metamethods", `local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. "x"] end return t.a`, "stack overflow"},
		{"recursion through pcall", `local function f() pcall(f) f() end f()`, whichever},
		{"recursion through xpcall", `local function f() xpcall(f, f) f() end f()`, whichever},
		{"recursion through tostring", `local t = {} setmetatable(t, {__tostring = function(x) return tostring(x) end}) return tostring(t)`, "stack overflow"},
		{"doubling text", `local s = "x" while true do s = s .. s end`, "text of more than|memory"},
		{"doubling text kept", `local s, k = "x", {} for i = 1, 1e6 do if #s < 1000000 then s = s .. s end k[i] = s .. i end`, "memory|steps"},
		{"string.rep", `return string.rep("x", 200000000)`, "text of more than"},
		{"string.rep by an endless number", `return string.rep("x", 1e300)`, "text of more than"},
		{"string.rep as a method", `return ("x"):rep(1e9)`, "text of more than"},
		{"string.rep kept", `local k = {} for i = 1, 1e6 do k[i] = ("x"):rep(1e6) end`, "memory|steps"},
		{"string.format by width", `return string.format("%99999999d", 1)`, "width or precision"},
		{"string.format kept", `local s = ("x"):rep(1e5) for i = 1, 1e6 do s = string.format("%s%s", s, s) end`, "text of more than|memory"},
		{"string.gsub that grows", `local s = "a" for i = 1, 100 do s = s:gsub("a", "aa") end`, "text of more than|memory|steps"},
		{"table.concat", `local t = {} for i = 1, 100 do t[i] = ("x"):rep(1e5) end return table.concat(t)`, "text of more than|memory"},
		{"pattern that explodes", `return string.find(("a"):rep(30), ("a?"):rep(30) .. ("a"):rep(30) .. "b")`, "steps"},
		{"pattern of stars", `return string.match(("a"):rep(200), ("a*"):rep(20) .. "b")`, "steps"},
		{"pattern in gsub", `return string.gsub(("a"):rep(5000), ".-.-.-.-b", "")`, "steps"},
		{"pattern in gmatch", `for x in string.gmatch(("a"):rep(5000), ".-.-.-.-b") do end`, "steps"},
		{"pattern that nests", `return string.match("a", ("("):rep(300) .. (")"):rep(300))`, "too many captures"},
		{"sparse list", `local t = {} t[60000000] = 1`, "memory"},
		{"sparse list in a constructor", `local n = 60000000 local t = {[n] = 1}`, "memory"},
		{"sparse list by rawset", `local t = {} rawset(t, 60000000, 1)`, "memory"},
		{"sparse list through a metatable", `local a, b = {}, {} setmetatable(a, {__newindex = b}) a[60000000] = 1`, "memory"},
		{"sparse list in a pair", `local a, b = {}, {} a[60000000], b[1] = 1, 2`, "memory"},
		{"sparse list in a function's name", `local t = {} local u = {t} function u.x() end t[50000000] = u`, "memory"},
		{"sparse list by insert", `table.insert({}, 60000000, 1)`, "out of bounds"},
		{"growing table", `local t = {} local i = 0 while true do i = i + 1 t[i] = {} t["k" .. i] = {} end`, "memory|steps"},
		{"many values", `local function f(...) local t = {...} return f(1, ...) end f()`, "memory|steps|registry|stack"},
		{"many values kept", `local k = {} local function f(...) k[#k + 1] = {...} end local t = {} for i = 1, 500 do t[i] = i end while true do f(unpack(t)) end`, "memory|steps"},
		{"unpack", `return unpack({}, 1, 100000000)`, "too many results"},
		{"unpack of odd ends", `return unpack({}, -9e18, 9e18)`, "too many results"},
		{"coroutines", `for i = 1, 1e6 do coroutine.create(function() end) end`, "coroutines"},
		{"wrapped coroutines", `for i = 1, 1e6 do coroutine.wrap(function() end)() end`, "coroutines"},
		{"endless coroutine", `coroutine.wrap(function() while true do end end)()`, "steps"},
		{"coroutine that doubles", `local co = coroutine.create(function() local s = "x" while true do s = s .. s end end) while true do coroutine.resume(co) end`, "text of more than|memory"},
		{"sort that lies", `local t = {} for i = 1, 20000 do t[i] = i end table.sort(t, function(a, b) return true end) while true do end`, "steps"},
		{"sort without end", `local t = {} for i = 1, 3000 do t[i] = 3000 - i end while true do table.sort(t, function(a, b) return a < b end) end`, "steps"},
		{"deep result", `local t = {} local r = t for i = 1, 100000 do t.x = {} t = t.x end return r`, "nests deeper"},
		{"result that holds itself", `local t = {} t.x = t return t`, "nests deeper"},
		{"result that shares itself", `local t = {} for i = 1, 60 do t = {a = t, b = t} end return t`, "steps|memory"},
		{"nested source", `return ` + strings.Repeat("(1+", 5000) + "1" + strings.Repeat(")", 5000), "nests deeper"},
		{"nested tables", `return ` + strings.Repeat("{", 5000) + strings.Repeat("}", 5000), "nests deeper"},
		{"nested functions", strings.Repeat("return function() ", 5000) + strings.Repeat(" end", 5000), "nests deeper"},
		{"long source", `return "` + strings.Repeat("x", 300000) + `"`, "bytes"},
		{"no Lua", `return this is no Lua`, "not valid Lua"},
		{"open text", `return "`, "not valid Lua"},
		{"error that is a table", `error({message = "the reason"})`, "the reason"},
		{"error that is nil", `error(nil)`, "script failed"},
		{"long error", `error(("x"):rep(100000))`, "xxxx…"},
	}
	for _, c := range cases {
		t.Run("SEC-B9 "+c.name, func(t *testing.T) {
			t.Parallel()
			s, err := lua.Compile("script", c.source)
			if err == nil {
				l := limits
				if c.want == whichever {
					l.Time = 0 // each unwinding of the whole stack takes long: the clock ends it
				}
				_, err = s.Run(context.Background(), lua.Call{Open: true, Limits: l})
			}
			if err == nil {
				t.Fatal("it ended without an error")
			}
			if k := fault.KindOf(err); k != fault.Exceeded && k != fault.Invalid {
				t.Errorf("kind %q: %v", k, err)
			}
			if len(err.Error()) > 4096 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			for _, w := range strings.Split(c.want, "|") {
				if strings.Contains(fault.Sentence(err), w) {
					return
				}
			}
			t.Errorf("error %q, want %q in it", fault.Sentence(err), c.want)
		})
	}
}

// What a script that exhausts the call stack leaves behind reaches neither
// itself nor a script that runs beside or after it.
func TestRecursionThatIsCaughtEndsByALimit(t *testing.T) {
	t.Parallel()
	const runs, together = 120, 6
	hostile := compile(t, `local function f() pcall(f) f() end f()`)
	friendly := compile(t, `local function f(n) if n == 0 then return 0 end return 1 + f(n - 1) end return f(100)`)
	t.Run("SEC-B9 120 runs of a recursion through pcall, six at a time, are all stopped by a limit", func(t *testing.T) {
		t.Parallel()
		work := make(chan struct{}, runs)
		for range runs {
			work <- struct{}{}
		}
		close(work)
		var group sync.WaitGroup
		for range together {
			group.Go(func() {
				for range work {
					_, err := hostile.Run(context.Background(), lua.Call{Limits: lua.Limits{Time: 100 * time.Millisecond}})
					if fault.KindOf(err) != fault.Exceeded || !strings.Contains(fault.Sentence(err), "the script was stopped after") {
						t.Errorf("the hostile script: %v", err)
					}
					if got, err := friendly.Run(context.Background(), lua.Call{}); err != nil || got != int64(100) {
						t.Errorf("a script that runs after it: %v, %v; want 100", got, err)
					}
				}
			})
		}
		group.Wait()
	})
}

func TestLimitsOfTime(t *testing.T) {
	t.Parallel()
	t.Run("HLT-09 a script ends at its time limit", func(t *testing.T) {
		t.Parallel()
		_, err := run(t, `while true do end`, lua.Call{Limits: lua.Limits{Time: 50 * time.Millisecond, Steps: 1 << 40, Memory: 1 << 50}})
		if fault.KindOf(err) != fault.Exceeded || !strings.Contains(err.Error(), "50ms") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("HLT-09 the standard limit is one second", func(t *testing.T) {
		t.Parallel()
		if lua.Bounds().Time != time.Second {
			t.Error(lua.Bounds().Time)
		}
	})
	t.Run("a script without a caller ends", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := compile(t, `while true do end`).Run(ctx, lua.Call{Limits: lua.Limits{Time: time.Hour, Steps: 1 << 40, Memory: 1 << 50}})
		if fault.KindOf(err) != fault.Offline {
			t.Errorf("error %v", err)
		}
	})
}

func TestMemoryStaysBounded(t *testing.T) {
	// What a script keeps is never much more than its limit.
	for _, source := range []string{
		`local k = {} for i = 1, 1e9 do k[i] = {} end`,
		`local k = {} for i = 1, 1e9 do k[i] = {a = 1, b = 2, c = {}} end`,
		`local k = {} for i = 1, 1e9 do k["k" .. i] = i end`,
		`local k = {} for i = 1, 1e9 do local t = {} t[4000] = 1 k[i] = t end`,
		`local k = {} for i = 1, 1e9 do k[i] = function() return k end end`,
		`local k = {} for i = 1, 1e9 do k[i] = {nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil,nil} end`,
	} {
		before, most := heap(), uint64(0)
		done := make(chan error, 1)
		go func() {
			_, err := run(t, source, lua.Call{Open: true, Limits: lua.Limits{Time: time.Minute, Memory: 16 << 20}})
			done <- err
		}()
		var err error
	wait:
		for {
			select {
			case err = <-done:
				break wait
			default:
				most = max(most, heap())
				runtime.Gosched()
			}
		}
		if fault.KindOf(err) != fault.Exceeded {
			t.Errorf("%s: error %v", source, err)
		}
		if grown := int64(most) - int64(before); grown > 256<<20 {
			t.Errorf("%s: the heap grew by %d MiB with a limit of 16", source, grown>>20)
		}
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestUnsafeFunctionsAreMissing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"io", "debug", "package", "dofile", "load", "loadfile", "loadstring", "module", "newproxy", "collectgarbage", "getfenv", "setfenv", "channel",
		"os.execute", "os.exit", "os.getenv", "os.remove", "os.rename", "os.setenv", "os.tmpname", "os.setlocale", "string.dump",
	} {
		for _, open := range []bool{false, true} {
			t.Run("HLT-09 a script has no "+name, func(t *testing.T) {
				t.Parallel()
				source := "return " + name + " == nil"
				if strings.HasPrefix(name, "string.") {
					source = "return string == nil or " + name + " == nil"
				}
				got, err := run(t, source, lua.Call{Open: open})
				if err != nil || got != true {
					t.Errorf("open %v: %v, %v", open, got, err)
				}
			})
		}
	}
	t.Run("HLT-09 require returns only open libraries", func(t *testing.T) {
		t.Parallel()
		for _, name := range []string{"io", "debug", "package", "/etc/passwd", "string"} {
			if _, err := run(t, `return require("`+name+`")`, lua.Call{}); err == nil || !strings.Contains(err.Error(), "no module") {
				t.Errorf("require %q: %v", name, err)
			}
		}
	})
	t.Run("the counted functions cannot be reached or replaced", func(t *testing.T) {
		t.Parallel()
		got, err := run(t, `for k in pairs(_G) do if k == "(set)" or k == "(concat)" or k == "(key)" then return k end end
			_G["(set)"] = function() end _G["(key)"] = function(k) return k end
			local t = {} local n = 5 t[n] = "x" .. n return t[5]`, lua.Call{})
		if err != nil || got != "x5" {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("a run does not affect the next", func(t *testing.T) {
		t.Parallel()
		s := compile(t, `local was = seen seen = true string.rep = nil table.concat = nil return was`)
		for range 2 {
			if got, err := s.Run(context.Background(), lua.Call{Open: true}); err != nil || got != nil {
				t.Errorf("%v, %v", got, err)
			}
		}
	})
}

func TestLibraries(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	cases := []struct {
		source string
		open   bool
		want   any
	}{
		{`return string == nil and math == nil and coroutine == nil`, false, true},
		{`return string ~= nil and math ~= nil and coroutine ~= nil`, true, true},
		{`local os = require("os") return os.date("!%Y-%m-%dT%XZ")`, false, "2026-03-04T05:06:07Z"},
		{`return os.date("%c %a %A %j %w %% %Q", 0)`, false, "Thu Jan  1 00:00:00 1970 Thu Thursday 001 4 % %Q"},
		{`return os.time()`, false, at.Unix()},
		{`return os.time({year=2020, month="1", day=2, hour=3, min=4, sec=5})`, false, int64(1577934245)},
		{`return os.date("*t", 0).year`, false, int64(1970)},
		{`return os.difftime(5, 3) + (os.clock() >= 0 and 1 or 0)`, false, int64(3)},
		{`return table.getn({1, 2, 3}) + table.maxn({1, 2})`, false, int64(5)},
		{`local t = {3, 1, 2} table.sort(t) table.insert(t, 9) table.insert(t, 1, 0) table.remove(t) return table.concat(t, ",")`, false, "0,1,2,3"},
		{`local t = {"b", "a"} table.sort(t, function(a, b) return a > b end) return t[1]`, false, "b"},
		{`return select("#", 1, nil, 3) + (unpack({4, 5}))`, false, int64(7)},
		{`local ok, e = pcall(function() error("no", 0) end) return tostring(ok) .. e`, false, "falseno"},
		{`return "a" .. 1 .. 2.5 .. "b"`, false, "a12.5b"},
		{`return setmetatable({}, {__concat = function(a, b) return "joined" end}) .. "x"`, false, "joined"},
		{`local a, b = 1, 2 a, b = b, a local t, i = {}, 1 i, t[i] = i + 1, 20 return a * 1000 + b * 100 + i * 10 + (t[1] == 20 and 1 or 0)`, false, int64(2121)},
		{`local t = {} t[1], t[2], t.x = (function() return 1, 2, 3 end)() return t[1] + t[2] + t.x`, false, int64(6)},
		{`local t = {} local f = function() return 1, 2 end t["a" .. 1] = f() return t.a1`, false, int64(1)},
		{`local co = coroutine.wrap(function(a) local b = coroutine.yield(a + 1) return b * 2 end) return co(1) + co(10)`, true, int64(22)},
		{`return math.floor(2.7) + math.max(1, 5) + (math.huge > 1 and 1 or 0)`, true, int64(8)},
		{`math.randomseed(1) return math.random(1, 1)`, true, int64(1)},
		{`return string.match("3/5", "(%d+)/(%d+)")`, true, "3"},
		{`return (string.gsub("ERROR, bad", "ERROR, ", ""))`, true, "bad"},
		{`return (("hello world"):gsub("o", {o = "0"}))`, true, "hell0 w0rld"},
		{`return (("hello"):gsub("", "-"))`, true, "-h-e-l-l-o-"},
		{`return (("abc"):gsub("%w", "%0%0", 2))`, true, "aabbc"},
		{`return (("abc"):gsub("(a)(b)", function(x, y) return y .. x end))`, true, "bac"},
		{`return string.format("%5.2f|%-4d|%04x|%s|%q|%%", 3.14159, 7, 255, "s", "q")`, true, ` 3.14|7   |00ff|s|"q"|%`},
		{`local n = 0 for k, v in string.gmatch("a=1, b=2", "(%w+)=(%w+)") do n = n + tonumber(v) end return n`, true, int64(3)},
		{`return ("THE (quick) fox"):find("%((%a+)%)")`, true, int64(5)},
		{`return ("f(a(b)c)d"):match("%b()")`, true, "(a(b)c)"},
		{`return ("THE (quick) fox"):gsub("%f[%a]%a+", "x")`, true, "x (x) x"},
		{`return ("abab"):match("(ab)%1") .. ("x"):upper() .. ("Y"):lower() .. ("xy"):reverse() .. #("abc") .. ("abc"):sub(-2) .. ("a"):byte() .. string.char(66)`, true, "abXyyx3bc97B"},
		{`return ("a.b"):find(".", 1, true)`, true, int64(2)},
		{`return ("key = value"):match("^(%w+)%s*=%s*(%w+)$")`, true, "key"},
		{`return ("  trim  "):match("^%s*(.-)%s*$")`, true, "trim"},
		{`print("nobody hears") return tostring(nil) .. type({}) .. tostring(1e15)`, false, "niltable1000000000000000"},
	}
	for _, c := range cases {
		got, err := run(t, c.source, lua.Call{Open: c.open, Now: func() time.Time { return at }})
		if err != nil || got != c.want {
			t.Errorf("%s\n got %v (%T), %v\nwant %v", c.source, got, got, err, c.want)
		}
	}
}

func TestObjects(t *testing.T) {
	t.Parallel()
	text := `{"metadata":{"name":"x","generation":9007199254740993,"labels":{},"finalizers":[]},"spec":{"replicas":3,"ratio":0.25,"whole":2.0,` +
		`"list":[1,null,{"a":[]},{"b":{}}],"none":null,"on":true,"text":"ünï"}}`
	t.Run("an unchanged object is returned unchanged", func(t *testing.T) {
		t.Parallel()
		in := object(t, text)
		got, err := run(t, `return obj`, lua.Call{Object: in})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(object(t, text), got); d != "" {
			t.Error(d)
		}
	})
	t.Run("the input is never changed", func(t *testing.T) {
		t.Parallel()
		in := object(t, text)
		got, err := run(t, `obj.spec.replicas = 5 obj.spec.list = {} obj.metadata.labels.a = "b" obj.spec.none = 1 obj.metadata.finalizers[1] = "f" return obj`, lua.Call{Object: in})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(object(t, text), in); d != "" {
			t.Error(d)
		}
		want := object(t, text)
		spec, meta := want["spec"].(map[string]any), want["metadata"].(map[string]any)
		spec["replicas"], spec["list"], spec["none"] = int64(5), []any{}, int64(1)
		meta["labels"], meta["finalizers"] = map[string]any{"a": "b"}, []any{"f"}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
	t.Run("a new empty table is a map", func(t *testing.T) {
		t.Parallel()
		got, err := run(t, `return {a = {}, b = {1, 2}, c = {x = {}}}`, lua.Call{})
		if d := cmp.Diff(map[string]any{"a": map[string]any{}, "b": []any{int64(1), int64(2)}, "c": map[string]any{"x": map[string]any{}}}, got); d != "" || err != nil {
			t.Error(d, err)
		}
	})
	t.Run("an emptied list stays a list", func(t *testing.T) {
		t.Parallel()
		got, err := run(t, `table.remove(obj.l) return obj`, lua.Call{Object: map[string]any{"l": []any{"a"}}})
		if d := cmp.Diff(map[string]any{"l": []any{}}, got); d != "" || err != nil {
			t.Error(d, err)
		}
	})
	for source, want := range map[string]string{
		`return {1, 2, x = 3}`:            "neither a list nor a map",
		`return {[1] = 1, [5] = 2}`:       "gaps",
		`return {x = 1, [true] = 2}`:      "neither a list nor a map",
		`return {x = function() end}`:     "function",
		`return {x = 0/0}`:                "number that is none",
		`return {x = 1/0}`:                "number that is none",
		`return print`:                    "function",
		`return {x = "\255\254"}`:         "UTF-8",
		`return obj.a.b.c`:                "line 1: attempt to index",
		"\n\nlocal x = nil\nreturn x + 1": "line 4:",
		`return "a" .. {}`:                "concatenate a table",
		`local t = {} t[nil] = 1`:         "must not be nil",
	} {
		t.Run("a wrong result is refused "+source, func(t *testing.T) {
			t.Parallel()
			got, err := run(t, source, lua.Call{Object: map[string]any{}})
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), want) {
				t.Errorf("%v, %v; want %q", got, err, want)
			}
		})
	}
	t.Run("parameters are texts by name", func(t *testing.T) {
		t.Parallel()
		got, err := run(t, `return tonumber(actionParams["replicas"]) + (actionParams.none == nil and 1 or 0)`, lua.Call{Params: map[string]string{"replicas": "4"}})
		if err != nil || got != int64(5) {
			t.Error(got, err)
		}
	})
}

func BenchmarkRun(b *testing.B) {
	s := compile(b, `local hs = {} if obj.status ~= nil then for i, c in ipairs(obj.status.conditions) do if c.type == "Ready" and c.status == "True" then hs.status = "Healthy" hs.message = c.message return hs end end end hs.status = "Progressing" return hs`)
	o := object(b, `{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":"x"},"status":{"conditions":[{"type":"Issuing","status":"False"},{"type":"Ready","status":"True","message":"ready"}]}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Run(context.Background(), lua.Call{Object: o}); err != nil {
			b.Fatal(err)
		}
	}
}
