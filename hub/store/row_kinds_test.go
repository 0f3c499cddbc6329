package store_test

import (
	"slices"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// The parameters of the statements that read the log cover each kind that the
// database lets a row have, and each once.
func TestRowKindsInSQL(t *testing.T) {
	t.Parallel()
	var passed []int
	for _, kinds := range store.LifeParameters() {
		for _, k := range kinds.([]int16) {
			passed = append(passed, int(k))
		}
	}
	slices.Sort(passed)
	conn := storetest.Connect(t, storetest.Database(t).Superuser)
	allowed := queryOne[int](t, conn, `
		SELECT substring(pg_get_constraintdef(oid) FROM 'kind <= ([0-9]+)')::int
		FROM   pg_constraint WHERE conname = 'log_row_kind_check'`)
	var want []int
	for k := 1; k <= allowed; k++ {
		want = append(want, k)
		if hub.RowKind(k).Life() == 0 {
			t.Errorf("log_row may have rows of kind %d, which nothing keeps alive", k)
		}
	}
	if !slices.Equal(passed, want) {
		t.Errorf("statements are given the kinds %v, rows may have %v", passed, want)
	}
}
