package settings

import (
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/notify"
)

// notificationKeys are the keys of notifications (NOTI-01).
func notificationKeys() []Known {
	key := func(key, about, sample, example string) Known {
		return Known{
			Map: hub.NotificationsMap, Key: key, About: about, Sample: sample, Example: example, Used: true,
			read: func(s *set, end string, t text) error {
				if !s.strict {
					return nil // a key that an earlier release has stored is reported where it is used
				}
				return notify.Check(key+end, t.value)
			},
		}
	}
	return []Known{
		key("service.", "A service that messages are sent to: service.TYPE, or service.TYPE.NAME. Values $NAME are keys of argocd-notifications-secret.", "token: $slack-token\n", "slack"),
		key("template.", "A message: message, and a part for each type of service that needs one.", "message: '{{.app.metadata.name}} is synced'\n", "app-synced"),
		key("trigger.", "When templates are sent: a list of when, send, oncePer and description.", "- when: app.status.health.status == 'Degraded'\n  send: [app-health-degraded]\n", "on-degraded"),
		key("subscriptions", "Who hears of all applications that a selector chooses: a list of recipients, triggers and selector.", "- recipients: [slack:deployments]\n  triggers: [on-sync-failed]\n", ""),
		key("defaultTriggers", "Triggers of subscriptions that name none.", "[on-sync-failed]\n", ""),
		key("defaultTriggers.", "The same for one service.", "[on-sync-failed]\n", "slack"),
		key("context", "Texts that templates read as context, such as argocdUrl.", "argocdUrl: https://capstan.example.com\n", ""),
		{Map: hub.ParamsMap, Key: hub.ProcessorsKey, About: "How many messages of the organisation a replica sends at once, at most 16; 4 without it.", Sample: "4", Used: true, read: func(s *set, end string, t text) error {
			if !s.strict {
				return nil
			}
			return positive(end, t)
		}},
		{Map: hub.NotificationsSecret, Key: anyKey, About: "What services of notifications sign in with, and what templates read as secrets.", Sample: "a token", Used: true, read: (*set).readSecret},
	}
}
