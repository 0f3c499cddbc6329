package store_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }
