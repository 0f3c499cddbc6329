package hub_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

func TestWindowsOf(t *testing.T) {
	t.Parallel()
	here := hub.Destination{Name: "prod", Namespace: "shop-eu"}
	there := hub.Destination{Server: "https://kubernetes.default.svc", Namespace: "shop-eu"}
	cases := map[string]struct {
		w    syncwindow.Window
		d    hub.Destination
		want bool
	}{
		"WIN-02 by application":                               {syncwindow.Window{Applications: []string{"sh?p-*"}}, here, true},
		"WIN-02 by namespace":                                 {syncwindow.Window{Namespaces: []string{"*-eu"}}, here, true},
		"WIN-02 by cluster name":                              {syncwindow.Window{Clusters: []string{"pr*"}}, here, true},
		"WIN-02 by server":                                    {syncwindow.Window{Clusters: []string{"https://kubernetes.*"}}, there, true},
		"WIN-02 the server is not looked up":                  {syncwindow.Window{Clusters: []string{"https://kubernetes.default.svc"}}, here, false},
		"WIN-02 one list of three is enough":                  {syncwindow.Window{Applications: []string{"x"}, Namespaces: []string{"y"}, Clusters: []string{"prod"}}, here, true},
		"WIN-02 none of them":                                 {syncwindow.Window{Applications: []string{"x"}, Namespaces: []string{"y"}, Clusters: []string{"z"}}, here, false},
		"WIN-02 andOperator needs all that are there":         {syncwindow.Window{AndOperator: true, Applications: []string{"shop-web"}, Clusters: []string{"prod"}}, here, true},
		"WIN-02 andOperator and one that does not fit":        {syncwindow.Window{AndOperator: true, Applications: []string{"shop-web"}, Clusters: []string{"test"}}, here, false},
		"WIN-02 no list concerns nothing":                     {syncwindow.Window{}, here, false},
		"WIN-02 no list concerns nothing with andOperator":    {syncwindow.Window{AndOperator: true}, here, false},
		"WIN-02 a star does not match what is not there":      {syncwindow.Window{Namespaces: []string{"*"}}, hub.Destination{Name: "prod"}, false},
		"WIN-02 a star matches names with slashes and dots":   {syncwindow.Window{Clusters: []string{"*"}}, there, true},
		"WIN-02 an empty pattern matches nothing":             {syncwindow.Window{Applications: []string{""}}, here, false},
		"WIN-02 letters count as they are":                    {syncwindow.Window{Applications: []string{"Shop-*"}}, here, false},
		"WIN-02 the whole name, not a part of it, must match": {syncwindow.Window{Applications: []string{"shop"}}, here, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := hub.ProjectSpec{SyncWindows: []syncwindow.Window{c.w}}
			if got := len(spec.WindowsOf("shop-web", c.d)) == 1; got != c.want {
				t.Errorf("it concerns the application: %v", got)
			}
		})
	}
}
