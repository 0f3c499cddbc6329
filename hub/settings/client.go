package settings

import (
	"net/url"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Keys of hub.SettingsMap that clients show.
const (
	urlKey       = "url"
	chatURLKey   = "help.chatUrl"
	chatTextKey  = "help.chatText"
	downloadKey  = "help.download." // the platform follows, such as linux-amd64
	bannerKey    = "ui.bannercontent"
	bannerURL    = "ui.bannerurl"
	bannerStays  = "ui.bannerpermanent"
	bannerPlace  = "ui.bannerposition"
	styleKey     = "ui.cssurl"
	resourcesOff = "ui.view.resources.disabled"
	trackingKey  = "application.resourceTrackingMethod"
	instanceKey  = "application.instanceLabelKey"
	usualLabel   = "app.kubernetes.io/instance"
	usualChat    = "Chat now!"
	impersonates = "application.sync.impersonation.enabled"
)

// BadgeKey is the key of hub.SettingsMap that lets everybody see badges.
const (
	BadgeKey = "statusbadge.enabled"
	badgeURL = "statusbadge.url"
)

// A Client is what every client of a tenant may know of its settings.
type Client struct {
	URL            string
	ChatURL        string
	ChatText       string
	Downloads      map[string]string // addresses of the command line by platform
	Banner         Banner
	TrackingMethod string
	LabelKey       string
	Impersonation  bool
	Badges         bool // everybody may see the status of applications as pictures
	BadgeURL       string
	Style          string // address of a style sheet of the hub's operator; empty: none
	ResourcesOff   bool   // the console has no page of all objects
	Replace        bool   // people may sync with Replace or Force
	Exec           bool   // people may open a terminal in a container
}

// A Banner is a text above or below all pages.
type Banner struct {
	Content   string // empty: there is none
	URL       string
	Permanent bool
	Position  string // top, bottom or both
}

// ForClients reads what clients may know. Values are those of the tenant by map
// and key. Addresses that are not of http or https are left out.
func ForClients(values map[string]map[string]string) Client {
	cm := values[hub.SettingsMap]
	on := func(value string) bool {
		b, err := text{value, 0}.truth()
		return err == nil && b
	}
	out := Client{
		URL: link(cm[urlKey]), ChatURL: link(cm[chatURLKey]), ChatText: cm[chatTextKey], Downloads: map[string]string{},
		Banner:         Banner{Content: cm[bannerKey], URL: link(cm[bannerURL]), Permanent: on(cm[bannerStays]), Position: cm[bannerPlace]},
		TrackingMethod: cm[trackingKey], LabelKey: cm[instanceKey], Impersonation: on(cm[impersonates]), Replace: true, Exec: on(cm["exec.enabled"]),
		Badges: on(cm[BadgeKey]), BadgeURL: link(cm[badgeURL]), ResourcesOff: on(cm[resourcesOff]),
	}
	if v, set := values[hub.ParamsMap][replaceAllowed]; set {
		out.Replace = on(v)
	}
	if out.LabelKey == "" {
		out.LabelKey = usualLabel
	}
	if out.ChatURL != "" && out.ChatText == "" {
		out.ChatText = usualChat
	}
	if name := styleName(cm[styleKey]); name != "" {
		out.Style = "/" + stylesFolder + name
	}
	if out.Banner.Position == "" {
		out.Banner.Position = "top"
	}
	for key, value := range cm {
		if platform, is := strings.CutPrefix(key, downloadKey); is && link(value) != "" {
			out.Downloads[platform] = link(value)
		}
	}
	return out
}

// link is an address that a page may lead to, or nothing.
func link(value string) string {
	u, err := url.Parse(strings.TrimSpace(value))
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return ""
	}
	return u.String()
}

func (s *set) readLink(_ string, t text) error {
	if strings.TrimSpace(t.value) != "" && link(t.value) == "" {
		return fault.With(fault.New(fault.Invalid, "%q is no address of http or https", short(t.value)), "", "write it like https://example.com/help")
	}
	return nil
}

func (s *set) readPosition(_ string, t text) error {
	switch strings.TrimSpace(t.value) {
	case "", "top", "bottom", "both":
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "%q is no position of a banner", short(t.value)), "", "write top, bottom or both")
}

// stylesFolder is where the hub serves the style sheets of its operator.
const stylesFolder = "custom/"

// styleName is the file that a path such as ./custom/acme.css names among the
// style sheets of the hub's operator; empty: it names none.
func styleName(value string) string {
	name, is := strings.CutPrefix(strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(value), "."), "/"), stylesFolder)
	if !is || !strings.HasSuffix(name, ".css") || !plain(name) || strings.HasPrefix(name, ".") {
		return ""
	}
	return name
}

// readStyle accepts what Argo CD does: a path on the server, or an address.
func (s *set) readStyle(_ string, t text) error {
	if value := strings.TrimSpace(t.value); value != "" && styleName(value) == "" && link(value) == "" {
		return fault.With(fault.New(fault.Invalid, "%q is no path of a style sheet", short(value)), "", "write it like ./custom/acme.css, where acme.css is one of the hub's operator")
	}
	return nil
}

// Foreign says why a value of a key that is used changes nothing; empty: it may
// have an effect. Style sheets of other servers are stored, not loaded.
func Foreign(name, key, value string) string {
	if name != hub.SettingsMap || key != styleKey || strings.TrimSpace(value) == "" || styleName(value) != "" {
		return ""
	}
	return "the value of " + styleKey + " is stored without effect: the console loads style sheets of its own hub alone; name one like ./custom/acme.css"
}

// clients are the keys that only clients read.
func clients() []Known {
	cm := func(key, about, sample string, read func(*set, string, text) error) Known {
		return Known{Map: hub.SettingsMap, Key: key, About: about, Sample: sample, Used: true, read: read}
	}
	return []Known{
		cm(chatURLKey, "Where people of this tenant get help.", "https://chat.example.com/deployments", (*set).readLink),
		cm(chatTextKey, "What the link to help says.", "Ask the platform team", (*set).readAny),
		cm(downloadKey, "Where the command line for a platform is; the platform is behind the dot.", "https://example.com/capstan-linux-amd64", (*set).readLink),
		cm(BadgeKey, "Whether pictures show the status of an application without signing in.", "true", (*set).readSwitch),
		cm(badgeURL, "The address at which pictures of the status are found by others.", "https://cd.example.com", (*set).readLink),
		cm(resourcesOff, "Whether the console hides its page of all objects.", "true", (*set).readSwitch),
		cm(bannerKey, "A text that clients show with every page.", "Maintenance on Sunday", (*set).readAny),
		cm(bannerURL, "Where the text of the banner leads to.", "https://status.example.com", (*set).readLink),
		cm(bannerStays, "Whether the banner cannot be closed.", "true", (*set).readSwitch),
		cm(styleKey, "A style sheet of the hub's operator that the console loads.", "./custom/acme.css", (*set).readStyle),
		cm(bannerPlace, "Where the banner is: top, bottom or both.", "top", (*set).readPosition),
	}
}
