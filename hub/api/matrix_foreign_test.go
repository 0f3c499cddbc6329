package api_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// A harvest is what the database has of a tenant.
type harvest struct {
	ids    []string          // uuids by which things are addressed
	names  []string          // names and addresses of things
	tables int               // tables with rows of the tenant
	rows   map[string]string // hash of the tenant's rows, by table
}

// harvested reads all values of a tenant that a request may name something by.
func (w *world) harvested(t *testing.T, tenant hub.TenantID) harvest {
	t.Helper()
	ctx := context.Background()
	c := storetest.Connect(t, w.Superuser)
	columns, err := c.Query(ctx, `
		SELECT c.table_schema || '.' || c.table_name, c.column_name, c.data_type
		FROM   information_schema.columns c
		WHERE  c.table_schema IN ('public', 'directory')
		AND    EXISTS (SELECT 1 FROM information_schema.columns k
		               WHERE (k.table_schema, k.table_name, k.column_name) = (c.table_schema, c.table_name, 'tenant_id'))
		ORDER  BY 1, c.ordinal_position`)
	if err != nil {
		t.Fatal(err)
	}
	type column struct{ Table, Name, Type string }
	var all []column
	for columns.Next() {
		var col column
		if err := columns.Scan(&col.Table, &col.Name, &col.Type); err != nil {
			t.Fatal(err)
		}
		all = append(all, col)
	}
	if err := columns.Err(); err != nil {
		t.Fatal(err)
	}
	ids, names, rows := map[string]bool{}, map[string]bool{}, map[string]string{}
	for _, col := range all {
		if _, seen := rows[col.Table]; !seen {
			var hash string
			query := fmt.Sprintf(`SELECT coalesce(md5(string_agg(r::text, '|' ORDER BY r::text)), '') FROM %s r WHERE tenant_id = $1`, col.Table)
			if err := c.QueryRow(ctx, query, tenant).Scan(&hash); err != nil {
				t.Fatal(err)
			}
			rows[col.Table] = hash
		}
		into := ids
		switch {
		case rows[col.Table] == "" || col.Name == "tenant_id":
			continue
		case col.Type == "uuid":
		case slices.Contains([]string{"name", "url", "address", "server", "username", "host"}, col.Name) && col.Type == "text":
			into = names
		default:
			continue
		}
		found, err := c.Query(ctx, fmt.Sprintf(`SELECT DISTINCT %[2]s::text FROM %[1]s WHERE tenant_id = $1 AND %[2]s IS NOT NULL ORDER BY 1 LIMIT 5`, col.Table, col.Name), tenant)
		if err != nil {
			t.Fatal(err)
		}
		for found.Next() {
			var v string
			if err := found.Scan(&v); err != nil {
				t.Fatal(err)
			}
			if v != "" {
				into[v] = true
			}
		}
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
	}
	tables := 0
	for _, hash := range rows {
		if hash != "" {
			tables++
		}
	}
	return harvest{slices.Sorted(maps.Keys(ids)), slices.Sorted(maps.Keys(names)), tables, rows}
}

// without leaves out what another harvest has too.
func (h harvest) without(other harvest) harvest {
	h.ids = slices.DeleteFunc(slices.Clone(h.ids), func(v string) bool { return slices.Contains(other.ids, v) })
	h.names = slices.DeleteFunc(slices.Clone(h.names), func(v string) bool { return slices.Contains(other.names, v) })
	return h
}

// unlike is a value of the same form that names nothing. n keeps it apart from
// others, since some requests create what they name.
func unlike(value string, n int) string {
	tail := fmt.Sprintf("%04d", n%10_000)
	if len(value) <= len(tail) {
		return strings.Repeat("q", max(0, len(value)-2)) + tail[len(tail)-min(2, len(value)):]
	}
	if strings.HasPrefix(value, "http") || strings.Contains(value, "@") || strings.Contains(value, ".") {
		return strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'f' {
				return 'z' - (r - 'a')
			}
			return r
		}, value)
	}
	return value[:len(value)-len(tail)] + tail
}

var (
	anyUUID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anySecret  = regexp.MustCompile(`\bcp[a-z]_[A-Za-z0-9]+`)
	anyVersion = regexp.MustCompile(`"version":[0-9]+`)
	anyTime    = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`)
)

// neutral is an answer without what differs between any two requests, and with
// a mark in place of the values that were asked for.
func neutral(a answer, values ...string) string {
	text := fmt.Appendf(nil, "%d\n", a.status)
	for _, k := range slices.Sorted(maps.Keys(a.header)) {
		if k != "Date" && k != "X-Request-Id" && k != "Content-Length" && k != "Etag" {
			text = fmt.Appendf(text, "%s: %s\n", k, strings.Join(a.header[k], ", "))
		}
	}
	text = append(text, a.body...)
	// What is drawn at random comes first: a short name that was asked for can be
	// a part of it by chance.
	text = anySecret.ReplaceAll(text, []byte("‹secret›"))
	text = anyVersion.ReplaceAll(text, []byte(`"version":‹version›`))
	text = anyTime.ReplaceAll(text, []byte("‹time›"))
	for _, value := range values {
		for _, v := range []string{value, url.PathEscape(value), url.QueryEscape(value), strings.Trim(string(must(json.Marshal(value))), `"`)} {
			text = bytes.ReplaceAll(text, []byte(v), []byte("‹asked›"))
		}
	}
	return string(anyUUID.ReplaceAll(text, []byte("‹uuid›")))
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// A probe is one place of a request in which a thing can be named.
type probe struct {
	where string
	send  func(caller, value string) answer
}

// probes are the places of an operation.
func (m *matrix) probes(op method) []probe {
	var out []probe
	fill := func(name, value string) string {
		path := op.path
		for _, p := range op.op.Parameters {
			if p.Value.In == "path" && p.Value.Name != name {
				v := "absent"
				switch p.Value.Name {
				case "namespace":
					v = "argocd"
				case "id":
					v = "0190b2c4-0000-7000-8000-00000000ffff"
				}
				path = strings.ReplaceAll(path, "{"+p.Value.Name+"}", v)
			}
		}
		return strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	required, all := requiredQuery(op), leaves(m.body(op), nil)
	for _, p := range op.op.Parameters {
		name, schema := p.Value.Name, p.Value.Schema.Value
		if schema.Type.Includes("array") {
			schema = schema.Items.Value
		}
		if !schema.Type.Includes("string") || len(schema.Enum) > 0 || schema.Pattern != "" {
			continue
		}
		switch p.Value.In {
		case "path":
			out = append(out, probe{"path " + name, func(caller, value string) answer {
				body := m.body(op)
				if slices.ContainsFunc(all, func(at []string) bool { return strings.Join(at, ".") == "metadata.name" }) && name == "name" {
					body = clone(body)
					put(body, []string{"metadata", "name"}, value) // which has to be that of the path
				}
				return m.call(caller, op.verb, fill(name, value)+query(required), body)
			}})
		case "query":
			out = append(out, probe{"query " + name, func(caller, value string) answer {
				with := maps.Clone(required)
				with[name] = value
				return m.call(caller, op.verb, fill("", "")+query(with), m.body(op))
			}})
		}
	}
	if op.resource == "self" {
		return out // what a body says there names nothing
	}
	for _, at := range all {
		out = append(out, probe{"body " + strings.Join(at, "."), func(caller, value string) answer {
			body := clone(m.body(op))
			m.made++
			fresh := fmt.Sprintf("made-%06d", m.made)
			for _, other := range all {
				if other[len(other)-1] == "name" {
					put(body, other, fresh) // so that no request meets what another one has made
				}
			}
			put(body, at, value)
			a := m.call(caller, op.verb, fill("", "")+query(required), body)
			a.body = bytes.ReplaceAll(a.body, []byte(fresh), []byte("‹made›"))
			return a
		}})
	}
	return out
}

// rank puts previews before other operations.
func rank(operation string) int {
	if strings.HasPrefix(operation, "preview") || strings.HasPrefix(operation, "tryNotification") || operation == "generateApplicationSet" {
		return 0
	}
	return 1
}

func query(values map[string]string) string {
	if len(values) == 0 {
		return ""
	}
	q := url.Values{}
	for k, v := range values {
		q.Set(k, v)
	}
	return "?" + q.Encode()
}

// requiredQuery are values of the parameters that a request must have.
func requiredQuery(op method) map[string]string {
	out := map[string]string{}
	for _, p := range op.op.Parameters {
		if p.Value.In == "query" && p.Value.Required {
			out[p.Value.Name] = fmt.Sprint(sample(p.Value.Schema.Value, 0))
		}
	}
	return out
}

// leaves are the paths of the texts in a JSON body.
func leaves(v any, at []string) [][]string {
	var out [][]string
	if body, is := v.(map[string]any); is {
		for _, k := range slices.Sorted(maps.Keys(body)) {
			next := append(slices.Clone(at), k)
			if _, text := body[k].(string); text && k != "kind" && k != "apiVersion" && k != "version" && k != "patch" && k != "patchType" && k != "password" && k != "knownHosts" {
				out = append(out, next)
			}
			out = append(out, leaves(body[k], next)...)
		}
	}
	return out
}

func clone(v any) any {
	var out any
	if err := json.Unmarshal(must(json.Marshal(v)), &out); err != nil {
		panic(err)
	}
	return out
}

func put(v any, at []string, value string) {
	body := v.(map[string]any)
	if len(at) > 1 {
		put(body[at[0]], at[1:], value)
		return
	}
	body[at[0]] = value
}

// fits reports whether a value is worth being sent in a place: an id where ids
// are, a name elsewhere.
func (h harvest) fits(where string) []string {
	if strings.HasSuffix(where, " id") || strings.HasSuffix(where, "Id") || strings.HasSuffix(where, "ID") {
		return h.ids
	}
	return h.names
}

// SEC-D1, ISO-5: every place of every operation in which something can be
// named, with all that the database has of another tenant. The answer has to be
// that to something that does not exist.
func TestForeignMatrix(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	m.seed()
	acme, other := m.Tenant("acme"), m.Tenant("other")
	admin := m.Admin("other")
	callers := []matrixCaller{
		{name: "a tenant-admin", secret: admin, role: "tenant-admin"},
		{name: "a token of a tenant-admin", secret: m.token(admin, "matrix"), role: "tenant-admin"},
		{name: "readonly", secret: m.User("other", "peer", hub.RoleReadOnly), role: "readonly"},
		{name: "an account without roles", secret: m.User("other", "alien"), role: "no-role"},
	}
	before := m.harvested(t, acme)
	theirs := before.without(m.harvested(t, other))
	if len(theirs.ids) < 15 || len(theirs.names) < 8 {
		t.Fatalf("only %d ids and %d names were found in the database", len(theirs.ids), len(theirs.names))
	}
	cells := 0
	var problems []string
	try := func(op method, p probe, c matrixCaller) {
		for _, value := range theirs.fits(p.where) {
			cells++
			nothing := unlike(value, cells)
			want, got := neutral(p.send(c.secret, nothing), nothing, value), neutral(p.send(c.secret, value), nothing, value)
			if want != got {
				problems = append(problems, fmt.Sprintf("%s, %s %q, for %s:\n%s\nbut %q, which does not exist:\n%s", op.id, p.where, value, c.name, got, nothing, want))
			}
		}
	}
	// What a body names may be made by the request, so the other places come
	// first, and bodies are sent by one caller alone. A preview or a trial answers with what
	// there is, so it comes before what makes something.
	ops := methods(t)
	slices.SortStableFunc(ops, func(a, b method) int {
		return cmp.Compare(rank(a.id), rank(b.id))
	})
	for _, inBody := range []bool{false, true} {
		for _, op := range ops {
			if op.resource == "public" || op.resource == "stream" || op.resource == "audit" || op.id == "logout" {
				continue // nothing of a tenant is named, or the caller's own requests are the answer: TestTwoTenants has these
			}
			for _, p := range m.probes(op) {
				if strings.HasPrefix(p.where, "body ") != inBody {
					continue
				}
				for _, c := range callers {
					if !inBody || c == callers[0] {
						try(op, p, c)
					}
				}
			}
		}
	}
	t.Logf("%d cells: %d ids and %d names of %d tables of another tenant in every place of every operation", cells, len(theirs.ids), len(theirs.names), before.tables)
	t.Run("SEC-D1 SEC-G2 ISO-5 API-19 things of another tenant are answered byte for byte like missing ones", func(t *testing.T) {
		for _, problem := range problems[:min(len(problems), 20)] {
			t.Error(problem)
		}
	})
	t.Run("SEC-D1 ISO-5 no row of the other tenant has changed", func(t *testing.T) {
		after := m.harvested(t, acme)
		for table, hash := range before.rows {
			if after.rows[table] != hash {
				t.Errorf("%s has changed", table)
			}
		}
	})
	if cells < 1000 {
		t.Errorf("only %d cells: the search for places is broken", cells)
	}
}
