package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// settingsMap is where settings are that are given without a map.
const settingsMap = "argocd-cm"

const maxSetting = 1 << 20

func (a *app) settingsCommand() *cobra.Command {
	return noun("settings", "Settings of the tenant: get, set", []string{"setting"}, a.settingsGet(), a.settingsSet())
}

func (a *app) pluginCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the config management plugins that applications may use", Args: cobra.NoArgs,
		Example: "  capstan plugin list\n  capstan plugin list -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			all, raw, err := client.Call[struct {
				Items []apimodel.ConfigPlugin `json:"items"`
			}](api.ListPlugins(cmd.Context()))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"NAME", "DISCOVERS", "PARAMETERS"}}
			for _, p := range all.Items {
				var parameters []string
				for _, one := range p.Parameters {
					parameters = append(parameters, one.Name)
				}
				t.Rows = append(t.Rows, []string{p.Name, strconv.FormatBool(p.Discovers), output.Dash(strings.Join(parameters, ","))})
				t.Names = append(t.Names, p.Name)
			}
			return a.Print(raw, t)
		},
	}
	return noun("plugin", "Config management plugins that the operator of the hub has declared", []string{"plugins"}, list)
}

func (a *app) settingsGet() *cobra.Command {
	var name string
	var known bool
	c := &cobra.Command{
		Use: "get [KEY]", Short: "Show settings, or the value of one", Args: cobra.MaximumNArgs(1),
		Example: "  capstan settings get\n  capstan settings get resource.exclusions\n  capstan settings get --known",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			all, raw, err := client.Call[apimodel.Settings](api.GetSettings(cmd.Context()))
			if err != nil {
				return err
			}
			switch {
			case len(args) == 1:
				return a.oneSetting(all, name, args[0])
			case known:
				return a.Print(raw, knownTable(all.Known))
			}
			return a.Print(raw, settingsTable(all.Items))
		},
	}
	c.Flags().StringVar(&name, "map", settingsMap, "ConfigMap or Secret with KEY")
	c.Flags().BoolVar(&known, "known", false, "show the keys that this release knows")
	return c
}

// oneSetting writes a value as it is, so that it can go into a file.
func (a *app) oneSetting(all apimodel.Settings, name, key string) error {
	for _, s := range all.Items {
		if s.Map != name || s.Key != key {
			continue
		}
		if s.Secret {
			return fault.New(fault.Denied, "the key %s of %s is a secret: it is stored encrypted and never returned", key, name)
		}
		_, err := fmt.Fprintln(a.Out, strings.TrimSuffix(s.Value, "\n"))
		return err
	}
	return fault.With(fault.New(fault.Missing, "the key %s of %s is not set", key, name), "", "see `capstan settings get`")
}

func settingsTable(all []apimodel.Setting) output.Table {
	t := output.Table{Head: []string{"MAP", "KEY", "VALUE", "STATE", "CHANGED", "BY"}, Wide: 1}
	for _, s := range all {
		value, state := s.Value, "in use"
		if s.Secret {
			value = "(secret)"
		}
		if first, rest, found := strings.Cut(value, "\n"); found && rest != "" {
			value = fmt.Sprintf("%s … (%d lines)", first, strings.Count(strings.TrimSuffix(value, "\n"), "\n")+1)
		}
		if !s.Used {
			state = "no effect"
		}
		t.Rows = append(t.Rows, []string{s.Map, s.Key, strings.TrimSpace(value), state, output.Ago(s.UpdatedAt), s.UpdatedBy})
		t.Names = append(t.Names, "setting/"+s.Map+"/"+s.Key)
	}
	return t
}

func knownTable(all []apimodel.KnownSetting) output.Table {
	t := output.Table{Head: []string{"MAP", "KEY", "STATE", "ABOUT"}}
	for _, k := range all {
		key, state := k.Key, "in use"
		switch {
		case strings.HasPrefix(key, "resource.customizations.") && strings.HasSuffix(key, "."):
			key += "GROUP_KIND"
		case strings.HasSuffix(key, "."):
			key += "NAME"
		}
		if !k.Used {
			state = "no effect"
		}
		t.Rows = append(t.Rows, []string{k.Map, key, state, k.About})
		t.Names = append(t.Names, "setting/"+k.Map+"/"+key)
	}
	return t
}

func (a *app) settingsSet() *cobra.Command {
	var name, from string
	var unset, dryRun bool
	c := &cobra.Command{
		Use: "set KEY=VALUE…", Short: "Set or remove keys", Args: cobra.MinimumNArgs(1),
		Example: "  capstan settings set application.resourceTrackingMethod=annotation\n" +
			"  capstan settings set resource.exclusions --from-file exclusions.yaml\n" +
			"  capstan settings set webhook.github.secret --map argocd-secret --from-file -\n" +
			"  capstan settings set resource.exclusions --unset",
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := a.settingsGiven(args, from, unset)
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			body := apimodel.PatchSettingsJSONRequestBody{Values: map[string]map[string]*string{name: keys}}
			all, raw, err := client.Call[apimodel.Settings](api.PatchSettings(cmd.Context(), apimodel.PatchSettingsParams{DryRun: dryRun}, body))
			if err != nil {
				return err
			}
			a.Warn(all.Warnings)
			var touched []apimodel.Setting
			for _, s := range all.Items {
				if _, given := keys[s.Key]; given && s.Map == name {
					touched = append(touched, s)
				}
			}
			return a.Print(raw, settingsTable(touched))
		},
	}
	c.Flags().StringVar(&name, "map", settingsMap, "ConfigMap or Secret with the keys")
	c.Flags().StringVar(&from, "from-file", "", "file with the value of the one key given, or - for standard input")
	c.Flags().BoolVar(&unset, "unset", false, "remove the keys")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, change nothing")
	return c
}

// settingsGiven reads keys and values from the words of a command.
func (a *app) settingsGiven(args []string, from string, unset bool) (map[string]*string, error) {
	out := map[string]*string{}
	if from != "" {
		if unset || len(args) != 1 || strings.Contains(args[0], "=") {
			return nil, usage.Errorf("--from-file needs one KEY, without a value")
		}
		value, err := a.settingFrom(from)
		out[args[0]] = &value
		return out, err
	}
	for _, arg := range args {
		key, value, found := strings.Cut(arg, "=")
		if found == unset {
			return nil, usage.Errorf("%q: write KEY=VALUE, or KEY with --unset or --from-file", arg)
		}
		out[key] = &value
		if unset {
			out[key] = nil
		}
	}
	return out, nil
}

func (a *app) settingFrom(name string) (string, error) {
	in := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", fault.Wrap(fault.Invalid, err, "the file %s cannot be read", name)
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxSetting+1))
	if err != nil {
		return "", fault.Wrap(fault.Invalid, err, "%s cannot be read", name)
	}
	if len(text) > maxSetting {
		return "", fault.New(fault.Exceeded, "%s has more than %d bytes", name, maxSetting)
	}
	return string(text), nil
}
