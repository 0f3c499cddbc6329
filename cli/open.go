package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) appOpen() *cobra.Command {
	var alone bool
	c := &cobra.Command{
		Use: "open NAME", Short: "Print the address of an application in the console, and open it in a browser",
		Long: "Print the address of an application in the console, and open it in a browser. " +
			"The address is that of publicURL in the hub's configuration. A machine without a browser only prints it.",
		Example: "  capstan app open shop\n  capstan app open team-a/shop --print-only", Args: usage.Exactly("the name of an application"),
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name := client.SplitName(args[0])
			address, err := a.consoleOf(cmd.Context(), namespace, name)
			if err != nil {
				return err
			}
			raw := map[string]string{"url": address}
			if err := a.PrintValue(raw, output.Table{Rows: [][]string{{address}}, Names: []string{address}}); err != nil || alone {
				return err
			}
			if err := openBrowser(cmd.Context(), address); err != nil {
				a.Note("capstan: no browser could be started on this machine: %s", err)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&alone, "print-only", false, "start no browser")
	return c
}

// consoleOf is the address of an application that exists.
func (a *app) consoleOf(ctx context.Context, namespace, name string) (string, error) {
	cfg, err := a.load()
	if err != nil {
		return "", err
	}
	api, err := a.client()
	if err != nil {
		return "", err
	}
	if _, err := client.Read(api.GetApplication(ctx, namespace, name, apimodel.GetApplicationParams{})); err != nil {
		return "", err
	}
	hub, _, err := client.Call[struct {
		ConsoleURL string `json:"consoleURL"`
	}](api.GetVersion(ctx))
	if err != nil {
		return "", err
	}
	// A hub of an earlier release does not say it.
	base := strings.TrimSuffix(cmp.Or(hub.ConsoleURL, cfg.Server), "/")
	if u, err := url.Parse(base); err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("the hub says that its console is at %q, which is no address of http or https", base)
	}
	return base + "/applications/" + url.PathEscape(namespace) + "/" + url.PathEscape(name), nil
}
