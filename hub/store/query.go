package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/capstan-cd/capstan/hub"
)

// A querier is a transaction or a pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// list runs a query and reads all its rows. what names it in errors.
func list[T any](ctx context.Context, q querier, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", what, err)
	}
	out, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return out, nil
}

// one runs a query that returns one row, or pgx.ErrNoRows.
func one[T any](ctx context.Context, q querier, what string, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, fmt.Errorf("query %s: %w", what, err)
	}
	out, err := pgx.CollectExactlyOneRow(rows, scan)
	if err != nil {
		return out, fmt.Errorf("read %s: %w", what, err)
	}
	return out, nil
}

// exec runs a statement and returns how many rows it touched.
func exec(ctx context.Context, q querier, what, sql string, args ...any) (int64, error) {
	tag, err := q.Exec(ctx, sql, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return tag.RowsAffected(), nil
}

// queueList has a batch run a query and read all its rows into out, whose
// capacity is used.
func queueList[T any](b *pgx.Batch, what string, scan pgx.RowToFunc[T], out *[]T, sql string, args ...any) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		if *out, err = pgx.AppendRows((*out)[:0], rows, scan); err != nil {
			return fmt.Errorf("read %s: %w", what, err)
		}
		return nil
	})
}

// send runs a batch in one round trip. Its error is the first one.
func send(ctx context.Context, tx pgx.Tx, what string, b *pgx.Batch) error {
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// texts turns identifiers and other named strings into strings.
func texts[T ~string](in []T) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}

// ids is texts for identifiers that come from outside: what is no identifier
// cannot name a row, and would only make the query fail.
func ids[T ~string](in []T) []string {
	out := make([]string, 0, len(in))
	for _, s := range in {
		if hub.ValidID(string(s)) {
			out = append(out, string(s))
		}
	}
	return out
}

// digests turns digests into parameters.
func digests(in []hub.Digest) [][]byte {
	out := make([][]byte, len(in))
	for i := range in {
		out[i] = in[i][:]
	}
	return out
}

func fromBytes(in [][]byte) (out []hub.Digest) {
	for _, b := range in {
		var d hub.Digest
		copy(d[:], b)
		out = append(out, d)
	}
	return out
}

// clean makes a text storable: the database stores no NUL and no invalid UTF-8.
// It is for texts of clusters and tools, where refusing one would delay
// everything with it.
func clean(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// jsonText encodes what goes into a json column.
func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %T: %w", v, err)
	}
	return string(b), nil
}

// cleaned is clean for a list, which is never nil.
func cleaned(in []string) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = clean(s)
	}
	return out
}

// arrayText is a list as the database reads an array of texts: lists of
// different length are no column.
func arrayText(in []string) string {
	if len(in) == 0 {
		return "{}"
	}
	var b strings.Builder
	for i, s := range in {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteByte('"')
		for _, c := range []byte(clean(s)) {
			if c == '"' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

// micro truncates a time to the database's precision, so that what was written
// equals what is read.
func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// nonNil returns an empty list for none, because columns are NOT NULL.
func nonNil[T any](in []T) []T {
	if in == nil {
		return []T{}
	}
	return in
}

// labels returns an empty map for none.
func labels(in map[string]string) map[string]string {
	if in == nil {
		return map[string]string{}
	}
	return in
}
