package storeports_test

import (
	"reflect"
	"testing"

	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/store"
)

// A port that nobody fills would show when it is first used.
func TestEveryPortIsFilled(t *testing.T) {
	t.Parallel()
	tenant := &store.Tenant{}
	for _, ports := range []any{
		storeports.Dispatch(tenant), storeports.Stream(tenant), storeports.Catalog(tenant), storeports.Identity(&store.System{}),
	} {
		v := reflect.ValueOf(ports)
		filled(t, v.Type().String(), v)
	}
}

// filled looks at the ports of a struct and of the structs in it.
func filled(t *testing.T, name string, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		field, at := v.Field(i), name+"."+v.Type().Field(i).Name
		switch {
		case field.Kind() == reflect.Struct:
			filled(t, at, field)
		case field.IsNil():
			t.Errorf("%s is not filled", at)
		}
	}
}
