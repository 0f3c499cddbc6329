package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/shared/apimodel"
)

func TestTreeShowsWhyAnObjectIsBroken(t *testing.T) {
	t.Parallel()
	var tree apimodel.Tree
	text := `{"nodes":[
		{"kind":"Deployment","namespace":"shop","name":"orders","managed":true,"status":"Synced","health":"Degraded","message":"has timed out progressing"},
		{"kind":"ReplicaSet","namespace":"shop","name":"orders-1","managed":false,"health":"Progressing"},
		{"kind":"Pod","namespace":"shop","name":"orders-1-a","managed":false,"health":"Degraded","message":"container orders: Back-off pulling image"},
		{"kind":"Pod","namespace":"shop","name":"shop-1-a","managed":false,"health":"Healthy"}]}`
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range treeTable(tree).Rows {
		got = append(got, strings.Join(row, " "))
	}
	want := []string{
		"Deployment shop orders Synced Degraded has timed out progressing",
		"Pod shop orders-1-a - Degraded container orders: Back-off pulling image",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the table is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
