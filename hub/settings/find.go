package settings

import (
	"slices"
	"strings"
	"sync"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/suggest"
)

// An index finds known keys without reading the whole catalogue.
type index struct {
	all      []Known
	byKey    map[string]map[string]int // by map and key: the place in all
	families map[string][]int          // by map: families, the longest names first
}

var catalogueIndex = sync.OnceValue(func() *index { //nolint:gochecknoglobals // the catalogue is a constant that is expensive to make
	x := &index{all: Catalogue(), byKey: map[string]map[string]int{}, families: map[string][]int{}}
	for i, k := range x.all {
		if x.byKey[k.Map] == nil {
			x.byKey[k.Map] = map[string]int{}
		}
		if _, twice := x.byKey[k.Map][k.Key]; twice {
			continue
		}
		x.byKey[k.Map][k.Key] = i
		if k.family() {
			x.families[k.Map] = append(x.families[k.Map], i)
		}
	}
	for _, places := range x.families {
		slices.SortStableFunc(places, func(a, b int) int { return len(x.all[b].Key) - len(x.all[a].Key) })
	}
	return x
})

// family reports whether the key stands for those that begin with it.
func (k Known) family() bool { return strings.HasSuffix(k.Key, ".") }

// find returns the place of a key in the catalogue: it may be listed itself,
// belong to a family, or be one of a map with names of users' own.
func (x *index) find(name, key string) (place int, ok bool) {
	keys := x.byKey[name]
	if i, ok := keys[key]; ok && key != anyKey {
		return i, true
	}
	for _, i := range x.families[name] {
		if k := x.all[i].Key; strings.HasPrefix(key, k) && len(key) > len(k) {
			return i, true
		}
	}
	i, ok := keys[anyKey]
	return i, ok
}

// Find returns what is known of a key.
func Find(name, key string) (Known, bool) {
	if strings.HasPrefix(name, hub.SecretPrefix) {
		return Known{Map: name, Key: anyKey, Used: true, read: (*set).readSecret}, true
	}
	x := catalogueIndex()
	i, ok := x.find(name, key)
	if !ok {
		return Known{}, false
	}
	if known := x.all[i]; isPassword(name, key) { // of a family that is not used otherwise
		known.Used, known.Instead, known.Sample = true, "", sampleBcrypt
		return known, true
	}
	return x.all[i], true
}

// unknown refuses a key that this release does not know, and names the nearest
// known one. The keys of argocd-secret are names of the tenant's own as well,
// which other settings refer to as $name.
func unknown(name, key string) error {
	x := catalogueIndex()
	var near []string
	for _, k := range x.all {
		if k.Map == name && k.Key != anyKey {
			near = append(near, k.alike(key))
		}
	}
	question := suggest.Question(key, near)
	if name == hub.SecretMap && question == "" && !reserved(key) {
		return nil
	}
	for _, other := range [...]string{hub.SettingsMap, hub.ParamsMap, hub.SecretMap, rolesMap} {
		if _, there := x.find(other, key); there && other != name {
			return fault.With(fault.New(fault.Invalid, "there is no setting of that name"), "", "it is a key of "+other)
		}
	}
	return fault.With(fault.New(fault.Invalid, "there is no setting of that name%s", strings.TrimSuffix(question, "?")), "",
		"`capstan settings get --known` lists the settings; leave out what is none of them")
}

// alike returns the key, of a family the one that ends as another key does.
func (k Known) alike(key string) string {
	if !k.family() {
		return k.Key
	}
	parts := strings.SplitN(key, ".", strings.Count(k.Key, ".")+1)
	return k.Key + parts[len(parts)-1]
}

// reserved reports whether a key of argocd-secret begins like those of Argo CD.
func reserved(key string) bool {
	for _, prefix := range [...]string{"admin.", "server.", "accounts.", "webhook.", "tls."} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// Public reports whether the value of a key may be shown in the audit log: it
// is none of a Secret, of a name of the tenant's own, or of a text that people
// write credentials into.
func Public(name, key string) bool {
	k, known := Find(name, key)
	switch {
	case !known || IsSecret(name) || k.Key == anyKey || name == hub.NotificationsMap:
		return false
	case name != hub.SettingsMap:
		return k.Key != "otlp.headers"
	}
	return !slices.Contains([]string{"dex.config", "oidc.config", "extension.config", "extension.config.", "repositories", "repository.credentials", "helm.repositories"}, k.Key)
}
