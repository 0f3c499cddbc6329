package notify

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Commit is what functions say of a commit.
type Commit struct {
	Message string
	Author  string
	Date    time.Time
	Tags    []string
}

// Details are what functions say of the source of an application.
type Details struct {
	Type      string
	Helm      any
	Kustomize any
	Directory any
}

// Lookups are what functions of templates and conditions read beyond the view of
// the application. They act with the rights of its project.
type Lookups struct {
	Commit  func(revision string) (Commit, error)
	Details func() (Details, error)
}

// secrets are values that a template may use by their keys, and that are never
// printed as a whole.
type secrets map[string]string

// String hides the values from every formatter.
func (secrets) String() string { return "(secrets)" }

// GoString hides the values from %#v too.
func (secrets) GoString() string { return "(secrets)" }

// MarshalJSON hides the values from toJson.
func (secrets) MarshalJSON() ([]byte, error) { return []byte(`"(secrets)"`), nil }

// Vars are what conditions and templates may read.
type Vars struct {
	App     map[string]any
	Project map[string]any
	Context map[string]string
	Secrets map[string]string // nil in conditions
	// Previous is what was known before the transition.
	Previous map[string]any
	Lookups
}

// Conditions returns the variables of expressions.
func (v Vars) Conditions() map[string]any {
	project := v.Project
	if project == nil {
		project = map[string]any{}
	}
	return map[string]any{
		"app": v.App, "appProject": project, "context": v.Context, "previous": v.Previous,
		"time": moments(), "strings": texts(), "sync": map[string]any{"GetInfoItem": infoItem}, "repo": v.repo(),
	}
}

// Template returns the variables of templates for one recipient.
func (v Vars) Template(s Service, recipient string) map[string]any {
	out := v.Conditions()
	out["serviceType"], out["recipient"], out["secrets"] = s.Type, recipient, secrets(v.Secrets)
	return out
}

func moments() map[string]any {
	return map[string]any{
		"Parse":      parseTime,
		"Now":        time.Now,
		"Nanosecond": time.Nanosecond, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
		"Layout": time.Layout, "ANSIC": time.ANSIC, "UnixDate": time.UnixDate, "RubyDate": time.RubyDate, "RFC822": time.RFC822, "RFC822Z": time.RFC822Z,
		"RFC850": time.RFC850, "RFC1123": time.RFC1123, "RFC1123Z": time.RFC1123Z, "RFC3339": time.RFC3339, "RFC3339Nano": time.RFC3339Nano,
		"Kitchen": time.Kitchen, "Stamp": time.Stamp, "StampMilli": time.StampMilli, "StampMicro": time.StampMicro, "StampNano": time.StampNano,
	}
}

func texts() map[string]any {
	short := func(do func(string) string) func(string) (string, error) {
		return func(s string) (string, error) {
			if len(s) > maxText {
				return "", errTooLong
			}
			return do(s), nil
		}
	}
	return map[string]any{
		"ReplaceAll": func(s, old, with string) (string, error) {
			if len(s)+strings.Count(s, old)*len(with) > maxText {
				return "", errTooLong
			}
			return strings.ReplaceAll(s, old, with), nil
		},
		"ToUpper": short(strings.ToUpper), "ToLower": short(strings.ToLower),
	}
}

// infoItem is the value of an item that somebody has given to a sync.
func infoItem(app map[string]any, name string) (string, error) {
	state := app
	for _, key := range []string{"status", "operationState", "operation"} {
		state, _ = state[key].(map[string]any)
	}
	items, _ := state["info"].([]any)
	for _, item := range items {
		if i, ok := item.(map[string]any); ok && i["name"] == name {
			return fmt.Sprint(i["value"]), nil
		}
	}
	return "", fault.New(fault.Missing, "the sync has no item %q", cut(name, 80))
}

func (v Vars) repo() map[string]any {
	return map[string]any{
		"RepoURLToHTTPS":    func(raw string) (string, error) { return webURL(raw) },
		"FullNameByRepoURL": fullName,
		"QueryEscape":       url.QueryEscape,
		"GetCommitMetadata": func(revision string) (Commit, error) {
			if v.Commit == nil {
				return Commit{}, fault.New(fault.Invalid, "commits are not known here")
			}
			return v.Commit(revision)
		},
		"GetAppDetails": func() (Details, error) {
			if v.Details == nil {
				return Details{}, fault.New(fault.Invalid, "details are not known here")
			}
			return v.Details()
		},
	}
}

// gitURL reads an address of a Git repository, also in the form of scp.
func gitURL(raw string) (*url.URL, error) {
	if !strings.Contains(raw, "://") {
		if host, path, ok := strings.Cut(raw, ":"); ok && !strings.Contains(host, "/") {
			raw = "ssh://" + host + "/" + strings.TrimPrefix(path, "/")
		}
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return nil, fault.New(fault.Invalid, "the address of the repository cannot be read")
	}
	return u, nil
}

func webURL(raw string) (string, error) {
	u, err := gitURL(raw)
	if err != nil {
		return "", err
	}
	u.Scheme, u.User = "https", nil
	return u.String(), nil
}

// fullName is the owner and the name of a repository.
func fullName(raw string) (string, error) {
	u, err := gitURL(raw)
	if err != nil {
		return "", err
	}
	parts := strings.FieldsFunc(strings.TrimSuffix(u.Path, ".git"), func(r rune) bool { return r == '/' })
	if len(parts) >= 2 {
		return strings.Join(parts[:2], "/"), nil
	}
	return strings.Join(parts, "/"), nil
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, fault.New(fault.Invalid, "%q is no time", cut(s, 80))
	}
	return t, nil
}

// RepositoryName is the owner and the name of a repository, by its address.
func RepositoryName(address string) (string, error) { return fullName(address) }
