// Package notify decides who is told what about an application, and renders the
// messages. Triggers, templates, subscriptions and services are written as Argo
// CD's: in the ConfigMap argocd-notifications-cm and in annotations. It does no
// I/O: the stage in hub/notify/stage passes it what has changed, and hub/notify/send
// delivers what it returns.
//
// What always holds: an application is seen through a view without secrets, a
// condition or a template that a tenant writes ends soon and stays small, and
// each transition of a condition makes one message for each recipient.
package notify

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Config is what a tenant has set about notifications.
type Config struct {
	Services        map[string]Service
	Triggers        map[string]Trigger
	Templates       map[string]Template
	Subscriptions   []Subscription
	DefaultTriggers []string
	ServiceTriggers map[string][]string // default triggers of a service
	Context         map[string]string
	// Problems has a sentence for each key that cannot be read.
	Problems map[string]string
}

// A Service is where messages can be sent to.
type Service struct {
	Name, Type string
	// Options are as they are set, with references to secrets.
	Options json.RawMessage
}

// A Subscription makes recipients hear of all applications that a selector
// chooses.
type Subscription struct {
	Recipients []string
	Triggers   []string
	selector   labels.Selector
}

// The beginnings of keys.
const (
	servicePrefix  = "service."
	triggerPrefix  = "trigger."
	templatePrefix = "template."
	defaultsKey    = "defaultTriggers"
	contextKey     = "context"
	subscribersKey = "subscriptions"
)

// Types are the types of services, in order of their names.
func Types() []string {
	return []string{
		"alertmanager", "awssqs", "email", "gcppubsub", "github", "googlechat", "grafana", "mattermost", "nats", "newrelic", "opsgenie", "pagerduty",
		"pagerdutyv2", "pushover", "rocketchat", "slack", "teams", "teams-workflows", "telegram", "webex", "webhook",
	}
}

// Read reads settings by their keys. A key that cannot be read is a problem, and
// leaves the others as they are. Triggers and templates that are not set are
// those of the catalogue.
func Read(values map[string]string) *Config {
	c := empty()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := c.read(key, values[key]); err != nil {
			c.Problems[key] = fault.Sentence(err)
		}
	}
	builtIn := Catalogue()
	for name, t := range builtIn.Triggers {
		if _, own := values[triggerPrefix+name]; !own {
			c.Triggers[name] = t
		}
	}
	for name, t := range builtIn.Templates {
		if _, own := values[templatePrefix+name]; !own {
			c.Templates[name] = t
		}
	}
	return c
}

// Check reports what is wrong with the value of a key.
func Check(key, value string) error { return empty().read(key, value) }

func empty() *Config {
	return &Config{
		Services: map[string]Service{}, Triggers: map[string]Trigger{}, Templates: map[string]Template{}, ServiceTriggers: map[string][]string{},
		Context: map[string]string{}, Problems: map[string]string{},
	}
}

func (c *Config) read(key, value string) error {
	name := key[strings.IndexByte(key, '.')+1:]
	switch {
	case strings.HasPrefix(key, servicePrefix):
		return c.readService(name, value)
	case strings.HasPrefix(key, triggerPrefix):
		t, err := ReadTrigger(name, value)
		c.Triggers[name] = t
		return err
	case strings.HasPrefix(key, templatePrefix):
		t, err := ReadTemplate(name, value)
		c.Templates[name] = t
		return err
	case key == defaultsKey:
		return decode(value, &c.DefaultTriggers, "a list of names of triggers")
	case strings.HasPrefix(key, defaultsKey+"."):
		var list []string
		err := decode(value, &list, "a list of names of triggers")
		c.ServiceTriggers[name] = list
		return err
	case key == contextKey:
		return decode(value, &c.Context, "a map of texts")
	case key == subscribersKey:
		return c.readSubscriptions(value)
	}
	return fault.With(fault.New(fault.Invalid, "there is no such setting of notifications"), "",
		"keys begin with service., trigger. or template., or are subscriptions, defaultTriggers or context")
}

func (c *Config) readService(name, value string) error {
	kind, own, named := strings.Cut(name, ".")
	if named {
		name = own
	}
	switch {
	case !slices.Contains(Types(), kind):
		return fault.With(fault.New(fault.Invalid, "there is no service of the type %q", kind), "", "the types are "+strings.Join(Types(), ", "))
	case name == "" || strings.Contains(name, "."):
		return fault.With(fault.New(fault.Invalid, "the name of the service has a dot, or is empty"), "", "name it service.TYPE or service.TYPE.NAME")
	}
	options, err := yaml.YAMLToJSON([]byte(value))
	if err != nil {
		return fault.New(fault.Invalid, "it is not valid YAML: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(options, &fields); err != nil {
		return fault.New(fault.Invalid, "the options of a service are a map")
	}
	c.Services[name] = Service{Name: name, Type: kind, Options: options}
	return nil
}

func (c *Config) readSubscriptions(value string) error {
	var all []struct {
		Recipients []string `json:"recipients"`
		Triggers   []string `json:"triggers"`
		Selector   string   `json:"selector"`
	}
	if err := decode(value, &all, "a list of recipients, triggers and selector"); err != nil {
		return err
	}
	for i, s := range all {
		chosen, err := labels.Parse(s.Selector)
		if err != nil {
			return fault.New(fault.Invalid, "the selector of subscription %d cannot be read: %w", i+1, err)
		}
		c.Subscriptions = append(c.Subscriptions, Subscription{s.Recipients, s.Triggers, chosen})
	}
	return nil
}

// decode reads YAML; what says what it has to be.
func decode(text string, into any, what string) error {
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		return fault.New(fault.Invalid, "it is not %s", what)
	}
	return nil
}
