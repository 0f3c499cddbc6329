package auditlog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/shared/auditlog"
)

// file is a log of n records, after an anchor.
func file(t testing.TB, n int, anchor auditlog.Mark, change func(i int, r *auditlog.Record)) string {
	t.Helper()
	var b bytes.Buffer
	w, err := auditlog.NewWriter(&b, auditlog.Header{Tenant: "acme", TenantID: "id", ExportedAt: time.Unix(5, 0).UTC(), Anchor: anchor})
	if err != nil {
		t.Fatal(err)
	}
	last := anchor
	for i := range n {
		r := auditlog.Record{
			Seq: last.Seq + 1, Prev: last.Hash, At: time.UnixMicro(int64(1e15 + i)).UTC(), Actor: "ann", Action: "create", Resource: "projects",
			Object: fmt.Sprintf("p%d", i), Result: "allowed", Detail: json.RawMessage(`{"b":1, "a":"<é>"}`),
		}
		if change != nil {
			change(i, &r)
		}
		r.Hash = r.ChainHash()
		last = auditlog.Mark{Seq: r.Seq, Hash: r.Hash}
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestVerify(t *testing.T) {
	t.Parallel()
	good := file(t, 5, auditlog.Mark{}, nil)
	lines := strings.SplitAfter(strings.TrimSuffix(good, "\n"), "\n")
	join := func(l ...string) string { return strings.Join(l, "") }
	later := file(t, 3, auditlog.Mark{Seq: 40, Hash: []byte("anchor")}, nil)
	for name, text := range map[string]string{
		"a whole log": good, "an empty log": file(t, 0, auditlog.Mark{}, nil), "a log after an anchor": later,
		"line breaks in a detail": file(t, 2, auditlog.Mark{}, func(_ int, r *auditlog.Record) { r.Detail = json.RawMessage("{\n}") }),
	} {
		if _, err := auditlog.Verify(strings.NewReader(text), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := auditlog.Verify(strings.NewReader(later), nil)
	if err != nil || got.Records != 3 || got.Head.Seq != 43 || got.Header.Anchor.Seq != 40 {
		t.Errorf("the report is %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"a changed field":     strings.Replace(good, `"ann"`, `"bob"`, 1),
		"a changed detail":    strings.Replace(good, `{"b":1, "a"`, `{"b":2, "a"`, 1),
		"a space in a detail": strings.Replace(good, `{"b":1, "a"`, `{"b":1,"a"`, 1),
		"a removed record":    join(lines[0], lines[1], lines[3], lines[4], lines[5], lines[6]),
		"a removed first one": join(lines[0], lines[2], lines[3], lines[4], lines[5], lines[6]),
		"swapped records":     join(lines[0], lines[2], lines[1], lines[3], lines[4], lines[5], lines[6]),
		"a doubled record":    join(lines[0], lines[1], lines[1], lines[2], lines[3], lines[4], lines[5], lines[6]),
		"a cut-off end":       join(lines[:6]...), "two records fewer, end kept": join(lines[0], lines[1], lines[2], lines[3], lines[6]),
		"another anchor": strings.Replace(good, `"anchor":{"seq":0`, `"anchor":{"seq":1`, 1), "text behind the end": good + "\n{}\n",
		"no header": join(lines[1:]...), "nothing": "", "no JSON": lines[0] + "x\n",
	} {
		if _, err := auditlog.Verify(strings.NewReader(text), nil); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// Whatever a record contains, a line brings it back byte for byte.
func TestLinesKeepRecords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		texts := make([]string, 9)
		for i := range texts {
			texts[i] = rapid.String().Draw(rt, "text")
		}
		value, err := json.Marshal(rapid.MapOf(rapid.String(), rapid.String()).Draw(rt, "detail"))
		if err != nil {
			rt.Fatal(err)
		}
		text := file(t, 3, auditlog.Mark{}, func(_ int, r *auditlog.Record) {
			r.Actor, r.Via, r.Address, r.Action, r.Resource = texts[0], texts[1], texts[2], texts[3], texts[4]
			r.Object, r.Result, r.Reason, r.Request, r.Detail = texts[5], texts[6], texts[7], texts[8], value
		})
		if n := strings.Count(text, "\n"); n != 5 {
			rt.Errorf("SEC-L1 %d lines for 3 records", n)
		}
		if _, err := auditlog.Verify(strings.NewReader(text), func(r auditlog.Record) {
			if r.Actor != texts[0] || r.Reason != texts[7] || !bytes.Equal(r.Detail, value) {
				rt.Errorf("the record came back as %+v", r)
			}
		}); err != nil {
			rt.Error(err)
		}
	})
}
