// Package migrations holds the schema as numbered SQL files. They go forward
// only; a file is never edited after it was released, and the release before
// the newest file still runs on the schema that it makes. The store applies
// them; no other package reads them.
package migrations

import "embed"

// Files are the migrations, named number_reason.sql.
//
//go:embed *.sql
var Files embed.FS
