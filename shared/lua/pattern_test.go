package lua

import (
	"context"
	"fmt"
	"strings"
	"testing"

	glua "github.com/yuin/gopher-lua"
	"pgregory.net/rapid"
)

// stock asks the interpreter's own matcher, which counts nothing.
func stock(l *glua.LState, text, pattern string) (found string, err error) {
	f, _ := l.GetGlobal("string").(*glua.LTable)
	if err := l.CallByParam(glua.P{Fn: f.RawGetString("find"), NRet: 3, Protect: true}, glua.LString(text), glua.LString(pattern)); err != nil {
		return "", err
	}
	defer l.Pop(3)
	return fmt.Sprint(l.Get(-3), l.Get(-2), l.Get(-1)), nil
}

func TestPatternsMatchLikeTheInterpreter(t *testing.T) {
	t.Parallel()
	l := glua.NewState()
	t.Cleanup(l.Close)
	script, err := Compile("script", `local a, b, c = string.find(obj.text, obj.pattern) return tostring(a) .. " " .. tostring(b) .. " " .. tostring(c)`)
	if err != nil {
		t.Fatal(err)
	}
	item := rapid.SampledFrom([]string{"a", "b", ".", "%a", "%d", "%s", "[ab]", "[^a]", "[a-c]", "[%d%-]", "%.", "(a)", "(.)", "(%a*)", "b-", "x"})
	suffix := rapid.SampledFrom([]string{"", "", "*", "+", "-", "?"})
	rapid.Check(t, func(rt *rapid.T) {
		var p strings.Builder
		if rapid.Bool().Draw(rt, "anchor") {
			p.WriteByte('^')
		}
		for range rapid.IntRange(1, 4).Draw(rt, "items") {
			i := item.Draw(rt, "item")
			p.WriteString(i)
			if !strings.HasSuffix(i, ")") && !strings.HasSuffix(i, "b-") {
				p.WriteString(suffix.Draw(rt, "suffix"))
			}
		}
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab c1-.")), 0, 12, -1).Draw(rt, "text")
		want, err := stock(l, text, p.String())
		if err != nil {
			return
		}
		got, err := script.Run(context.Background(), Call{Object: map[string]any{"text": text, "pattern": p.String()}, Open: true})
		if err != nil || strings.ReplaceAll(fmt.Sprint(got), " ", "") != strings.ReplaceAll(want, " ", "") {
			rt.Fatalf("find(%q, %q) = %v, %v; stock %v", text, p.String(), got, err, want)
		}
	})
}

func FuzzScript(f *testing.F) {
	f.Add(`return obj`)
	f.Add(`local t = {} t[1], t.x = "a" .. 1, {...} return t`)
	f.Add(`return string.gsub("abc", "%w", "%0")`)
	f.Add(`return ("x"):find("[a")`)
	f.Fuzz(func(t *testing.T, source string) {
		s, err := Compile("script", source)
		if err != nil {
			return
		}
		_, _ = s.Run(context.Background(), Call{Object: map[string]any{"a": []any{int64(1)}}, Open: true, Limits: Limits{Steps: 20000, Memory: 4 << 20}})
	})
}

func FuzzPattern(f *testing.F) {
	f.Add("abc", "[a-c]+")
	f.Add("x", "%f[")
	f.Add("x", "%b")
	f.Add("", "(()")
	f.Fuzz(func(t *testing.T, text, pattern string) {
		s, err := Compile("script", `return {string.find(obj.t, obj.p)}`)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.Run(context.Background(), Call{Object: map[string]any{"t": text, "p": pattern}, Open: true, Limits: Limits{Steps: 20000}})
	})
}
