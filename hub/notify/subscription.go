package notify

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Annotations that subscribe to an application, or to all of a project.
const (
	subscribeOne       = "notifications.argoproj.io/subscribe."
	subscribeMany      = "notifications.argoproj.io/subscriptions"
	NotifiedAnnotation = "notified.notifications.argoproj.io"
)

// A Destination is a recipient of a service, by the service's name.
type Destination struct{ Service, Recipient string }

// Subscribers returns who hears of an application, by trigger, and what is wrong
// with its annotations.
func (c *Config) Subscribers(a hub.Application, project *hub.Project) (map[string][]Destination, []string) {
	out, problems := map[string][]Destination{}, []string(nil)
	add := func(triggers []string, d Destination) {
		for _, t := range triggers {
			if !slices.Contains(out[t], d) {
				out[t] = append(out[t], d)
			}
		}
	}
	for _, s := range c.Subscriptions {
		triggers := s.Triggers
		if len(triggers) == 0 {
			triggers = c.DefaultTriggers
		}
		if !s.selector.Matches(labels.Set(a.Labels)) {
			continue
		}
		for _, r := range s.Recipients {
			service, recipient, _ := strings.Cut(r, ":")
			add(triggers, Destination{service, recipient})
		}
	}
	sources := []map[string]string{a.Annotations}
	if project != nil {
		sources = append(sources, project.Annotations)
	}
	for _, annotations := range sources {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			value := annotations[key]
			switch rest, one := strings.CutPrefix(key, subscribeOne); {
			case one:
				c.subscribeOne(rest, value, add)
			case strings.HasPrefix(key, subscribeMany):
				if err := c.subscribeMany(value, add); err != nil {
					problems = append(problems, fault.Sentence(fault.With(err, "annotation "+key, "")))
				}
			}
		}
	}
	return out, problems
}

// subscribeOne reads subscribe.<trigger>.<service>, or subscribe.<service>.
func (c *Config) subscribeOne(rest, value string, add func([]string, Destination)) {
	trigger, service, both := strings.Cut(rest, ".")
	triggers := []string{trigger}
	if !both {
		service = rest
		triggers = c.defaults(service)
	}
	service, _, _ = strings.Cut(service, ".")
	if value == "" {
		add(triggers, Destination{service, ""})
		return
	}
	for _, r := range strings.Split(value, ";") {
		if r = strings.TrimSpace(r); r != "" {
			add(triggers, Destination{service, r})
		}
	}
}

func (c *Config) defaults(service string) []string {
	if own, ok := c.ServiceTriggers[service]; ok {
		return own
	}
	return c.DefaultTriggers
}

func (c *Config) subscribeMany(value string, add func([]string, Destination)) error {
	var all []struct {
		Trigger      []string `json:"trigger"`
		Destinations []struct {
			Service    string   `json:"service"`
			Recipients []string `json:"recipients"`
		} `json:"destinations"`
	}
	if err := decode(value, &all, "a list of trigger and destinations"); err != nil {
		return err
	}
	for _, s := range all {
		for _, d := range s.Destinations {
			triggers := s.Trigger
			if len(triggers) == 0 {
				triggers = c.defaults(d.Service)
			}
			recipients := d.Recipients
			if len(recipients) == 0 {
				recipients = []string{""}
			}
			for _, r := range recipients {
				add(triggers, Destination{d.Service, r})
			}
		}
	}
	return nil
}
