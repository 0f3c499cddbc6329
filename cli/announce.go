package cli

import (
	"fmt"
	"net/http"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

// announce says what a deletion does, before it is confirmed. Nobody reads it if
// it is confirmed already.
func (a *app) announce(yes bool, plan func() (*http.Response, error)) error {
	if yes {
		return nil
	}
	p, _, err := client.Call[apimodel.DeletionPlan](plan())
	for _, e := range p.Effects {
		fmt.Fprintln(a.Err, "- "+e)
	}
	return err
}
