package syncflags

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/cli/exit"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func TestSelectors(t *testing.T) {
	t.Parallel()
	cases := map[string]*apimodel.ResourceSelector{
		"apps:Deployment:shop/web": {Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"},
		":ConfigMap:web":           {Kind: "ConfigMap", Name: "web"},
		"apps:Deployment:a:b":      {Group: "apps", Kind: "Deployment", Name: "a:b"},
		"apps:Deployment":          nil,
		"apps::web":                nil,
		"apps:Deployment:":         nil,
		"apps:Deployment:shop/":    nil,
		"apps:Deployment:/web":     nil,
		"":                         nil,
	}
	for text, want := range cases {
		t.Run("CLI-06 "+text, func(t *testing.T) {
			t.Parallel()
			got, err := Selectors([]string{text})
			if want == nil {
				if exit.Of(err) != exit.Usage {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if diff := cmp.Diff(*want, got[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
}
