package settings

import (
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/deeplink"
)

// Keys of hub.SettingsMap that declare links (PROJ-23, UI-25).
const (
	ProjectLinksKey     = "project.links"
	ApplicationLinksKey = "application.links"
	ResourceLinksKey    = "resource.links"
)

func deepLinks() (out []Known) {
	for _, one := range [...]struct{ key, about string }{
		{ProjectLinksKey, "Links of projects: title, url (a template over project), description, icon.class and if (a condition)."},
		{ApplicationLinksKey, "Links of applications; url and if may read app, project and cluster."},
		{ResourceLinksKey, "Links of live objects; url and if may read resource, app, project and cluster."},
	} {
		out = append(out, Known{Map: hub.SettingsMap, Key: one.key, About: one.about, Sample: sampleLinks, Used: true, read: (*set).readLinks})
	}
	return out
}

// readLinks checks the form first, because it knows the lines.
func (s *set) readLinks(_ string, t text) error {
	if err := links("", t); err != nil {
		return s.whenSet(err)
	}
	_, err := deeplink.Read(t.value)
	return s.whenSet(err)
}
