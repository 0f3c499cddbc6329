package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/cli/client"
	"github.com/capstan-cd/capstan/cli/output"
	"github.com/capstan-cd/capstan/cli/usage"
	"github.com/capstan-cd/capstan/shared/apimodel"
)

func (a *app) notificationsCommand() *cobra.Command {
	return noun("notifications", "Show what was sent to whom about applications, and try messages out", []string{"notification"}, a.notificationServices(), a.deliveriesCommand(), a.notificationTemplates(), a.notificationTriggers())
}

// adminNotifications has the words of `argocd admin notifications`.
func (a *app) adminNotifications() *cobra.Command {
	return noun("notifications", "Try templates and triggers of notifications out", nil, a.notificationTemplates(), a.notificationTriggers())
}

func (a *app) notificationServices() *cobra.Command {
	return a.plain("services", "List the services that messages can be sent to", "  capstan notifications services\n  capstan notifications services -o json",
		func(cmd *cobra.Command, api *client.Client) error {
			l, raw, err := client.Call[apimodel.NotificationServices](api.ListNotificationServices(cmd.Context()))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"NAME", "TYPE"}}
			for _, x := range l.Items {
				t.Rows = append(t.Rows, []string{x.Name, x.Type})
				t.Names = append(t.Names, "service/"+x.Name)
			}
			for key, problem := range l.Problems {
				a.Note("the setting %s has no effect: %s", key, problem)
			}
			return a.Print(raw, t)
		})
}

func (a *app) deliveriesCommand() *cobra.Command {
	return noun("deliveries", "Show what was sent and answered, and send it once more", []string{"delivery"}, a.deliveryList(), a.deliveryGet(), a.deliveryRedeliver())
}

func (a *app) deliveryList() *cobra.Command {
	var p apimodel.ListDeliveriesParams
	var state string
	c := a.plain("list", "List messages about applications, newest first",
		"  capstan notifications deliveries list --state failed\n  capstan notifications deliveries list --app argocd/web --limit 10 -o json",
		func(cmd *cobra.Command, api *client.Client) error {
			p.State = apimodel.DeliveryState(state)
			l, raw, err := client.Call[struct {
				Items []apimodel.Delivery `json:"items"`
				Next  string              `json:"next"`
			}](api.ListDeliveries(cmd.Context(), p))
			if err != nil {
				return err
			}
			if l.Next != "" {
				a.Note("there are more; --before %s shows them", l.Next)
			}
			return a.Print(raw, deliveryTable(l.Items))
		})
	f := c.Flags()
	f.StringVar(&p.Application, "app", "", "those about one application, NAMESPACE/NAME")
	f.StringVar(&state, "state", "", "those that are pending, delivered, failed or skipped")
	f.StringVar(&p.Service, "service", "", "those to one service")
	f.StringVar(&p.Trigger, "trigger", "", "those of one trigger")
	f.StringVar(&p.Before, "before", "", "those before a delivery, by its id")
	f.IntVar(&p.Limit, "limit", 0, "how many (default 50, at most 200)")
	return c
}

func deliveryTable(all []apimodel.Delivery) output.Table {
	t := output.Table{Head: []string{"ID", "SENT", "APPLICATION", "TRIGGER", "TO", "STATE", "ATTEMPTS", "REASON"}}
	for _, d := range all {
		t.Rows = append(t.Rows, []string{
			d.Id, output.Ago(d.CreatedAt), d.Namespace + "/" + d.Name, d.Trigger, strings.TrimSuffix(d.Service+":"+d.Recipient, ":"), string(d.State),
			fmt.Sprint(len(d.Attempts)), d.Reason,
		})
		t.Names = append(t.Names, "delivery/"+d.Id)
	}
	return t
}

func (a *app) deliveryGet() *cobra.Command {
	return a.named("get ID", "Show a message with each request and answer", "the id of a delivery",
		"  capstan notifications deliveries get 018f3c6e-0000-7000-8000-000000000002\n  capstan notifications deliveries get 018f3c6e-0000-7000-8000-000000000002 -o yaml",
		func(cmd *cobra.Command, api *client.Client, id string) error {
			d, raw, err := client.Call[apimodel.Delivery](api.GetDelivery(cmd.Context(), id))
			if err != nil {
				return err
			}
			return a.Print(raw, deliveryTable([]apimodel.Delivery{d}))
		})
}

func (a *app) deliveryRedeliver() *cobra.Command {
	return a.named("redeliver ID", "Send a message once more", "the id of a delivery",
		"  capstan notifications deliveries redeliver 018f3c6e-0000-7000-8000-000000000002\n  capstan notifications deliveries redeliver 018f3c6e-0000-7000-8000-000000000002 -o name",
		func(cmd *cobra.Command, api *client.Client, id string) error {
			d, raw, err := client.Call[apimodel.Delivery](api.Redeliver(cmd.Context(), id))
			if err != nil {
				return err
			}
			return a.Print(raw, deliveryTable([]apimodel.Delivery{d}))
		})
}

func (a *app) notificationTemplates() *cobra.Command {
	get := &cobra.Command{
		Use: "get [NAME]", Short: "List templates, or show one", Args: cobra.MaximumNArgs(1),
		Example: "  capstan notifications template get\n  capstan notifications template get app-sync-succeeded -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			l, raw, err := client.Call[apimodel.NotificationTemplates](api.ListNotificationTemplates(cmd.Context()))
			if err != nil {
				return err
			}
			return a.printSettings(raw, args, "template", func(row func(name string, builtin bool, about, text string)) {
				for _, x := range l.Items {
					row(x.Name, x.Builtin, "", x.Text)
				}
			})
		},
	}
	return noun("template", "Show templates of messages, and try them out", []string{"templates"}, get, a.templateNotify())
}

// printSettings prints named settings: all as a table, or the text of one.
func (a *app) printSettings(raw json.RawMessage, args []string, what string, each func(row func(name string, builtin bool, about, text string))) error {
	t := output.Table{Head: []string{"NAME", "FROM", "DESCRIPTION"}}
	var found *string
	each(func(name string, builtin bool, about, text string) {
		if len(args) == 1 && name != args[0] {
			return
		}
		from := "argocd-notifications-cm"
		if builtin {
			from = "built in"
		}
		t.Rows = append(t.Rows, []string{name, from, about})
		t.Names = append(t.Names, what+"/"+name)
		found = &text
	})
	if len(args) == 0 {
		return a.Print(raw, t)
	}
	if found == nil {
		return usage.Errorf("there is no %s %q", what, args[0])
	}
	if *found != "" {
		fmt.Fprint(a.Out, *found)
		return nil
	}
	return a.Print(raw, t)
}

// readSetting reads the value of a key of a ConfigMap in a file.
func readSetting(path, key string) (string, error) {
	if path == "" {
		return "", nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", usage.Errorf("the file %s cannot be read", path)
	}
	var m struct {
		Data map[string]string `json:"data"`
	}
	if err := yaml.Unmarshal(content, &m); err != nil {
		return "", usage.Errorf("the file %s has no ConfigMap", path)
	}
	return m.Data[key], nil
}

// consoleService is the name of Argo CD's service that prints messages.
const consoleService = "console"

func (a *app) templateNotify() *cobra.Command {
	var recipients []string
	var file string
	c := &cobra.Command{
		Use: "notify NAME APPLICATION", Short: "Render a template for an application, and send it to recipients",
		Example: "  capstan notifications template notify app-sync-succeeded argocd/web\n  capstan notifications template notify app-deployed web --recipient email:a@example.com --recipient slack:dev\n  capstan notifications template notify app-deployed web --config-map argocd-notifications-cm.yaml",
		Args:    usage.Exactly("a template", "an application"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readSetting(file, "template."+args[0])
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			for _, r := range recipients {
				service, recipient, _ := strings.Cut(r, ":")
				d, raw, err := client.Call[apimodel.Delivery](api.TryNotificationTemplate(cmd.Context(), args[0], apimodel.TemplateTrial{
					Application: args[1], Service: service, Recipient: recipient, Text: text, Send: service != consoleService,
				}))
				if err != nil {
					return err
				}
				if err := a.printMessage(raw, d); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringArrayVar(&recipients, "recipient", []string{consoleService + ":stdout"}, "SERVICE:RECIPIENT; may be given several times; the service console prints the message, and sends nothing")
	f.StringVar(&file, "config-map", "", "take the template from a file with argocd-notifications-cm")
	return c
}

// printMessage prints a message as YAML, which people can read.
func (a *app) printMessage(raw json.RawMessage, d apimodel.Delivery) error {
	text, err := yaml.Marshal(d.Message)
	if err != nil {
		return err
	}
	if d.Id != "" {
		a.Note("sent: `capstan notifications deliveries get %s` shows the answer", d.Id)
	}
	return a.Print(raw, output.Table{Head: []string{"MESSAGE"}, Rows: [][]string{{strings.TrimSpace(string(text))}}, Names: []string{"delivery/" + d.Id}})
}

func (a *app) notificationTriggers() *cobra.Command {
	get := &cobra.Command{
		Use: "get [NAME]", Short: "List triggers, or show one", Args: cobra.MaximumNArgs(1),
		Example: "  capstan notifications trigger get\n  capstan notifications trigger get on-deployed",
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			l, raw, err := client.Call[apimodel.NotificationTriggers](api.ListNotificationTriggers(cmd.Context()))
			if err != nil {
				return err
			}
			return a.printSettings(raw, args, "trigger", func(row func(name string, builtin bool, about, text string)) {
				for _, x := range l.Items {
					row(x.Name, x.Builtin, x.Description, x.Text)
				}
			})
		},
	}
	var file string
	run := &cobra.Command{
		Use: "run NAME APPLICATION", Short: "Evaluate a trigger for the present state of an application", Args: usage.Exactly("a trigger", "an application"),
		Example: "  capstan notifications trigger run on-deployed argocd/web\n  capstan notifications trigger run on-deployed web --config-map argocd-notifications-cm.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readSetting(file, "trigger."+args[0])
			if err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			l, raw, err := client.Call[apimodel.TriggerResults](api.TryNotificationTrigger(cmd.Context(), args[0], apimodel.TriggerTrial{Application: args[1], Text: text}))
			if err != nil {
				return err
			}
			t := output.Table{Head: []string{"CONDITION", "TRIGGERED", "ONCE PER", "TEMPLATES", "PROBLEM"}}
			for _, x := range l.Items {
				t.Rows = append(t.Rows, []string{x.When, fmt.Sprint(x.Triggered), x.OncePer, strings.Join(x.Templates, ", "), x.Problem})
				t.Names = append(t.Names, "condition/"+x.Condition)
			}
			return a.Print(raw, t)
		},
	}
	run.Flags().StringVar(&file, "config-map", "", "take the trigger from a file with argocd-notifications-cm")
	return noun("trigger", "Show triggers of messages, and evaluate them", []string{"triggers"}, get, run)
}
