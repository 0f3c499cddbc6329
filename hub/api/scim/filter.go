package scim

import (
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Filter is what a list is limited to. Nothing matches if two of its terms
// exclude each other.
type Filter struct {
	hub.SCIMQuery
	Nothing bool
}

const maxFilter = 1000 // bytes

// A term is an attribute and the value that it must equal.
type term struct{ attribute, value string }

// UserFilter reads a filter of users: terms with eq, joined with and.
func UserFilter(text string) (Filter, error) {
	return read(text, func(f *Filter, t term) error {
		switch t.attribute {
		case "id":
			return f.set(&f.ID, t.value, false)
		case "username":
			return f.set(&f.Name, t.value, true)
		case "externalid":
			return f.set(&f.ExternalID, t.value, false)
		case "emails", "emails.value":
			return f.set(&f.Email, t.value, true)
		case "active":
			on, err := strconv.ParseBool(t.value)
			if err != nil {
				return invalid("active is compared with true or false")
			}
			if f.Active != nil && *f.Active != on {
				f.Nothing = true
			}
			f.Active = &on
			return nil
		}
		return invalid("users cannot be filtered by " + short(t.attribute))
	})
}

// GroupFilter reads a filter of groups.
func GroupFilter(text string) (Filter, error) {
	return read(text, func(f *Filter, t term) error {
		switch t.attribute {
		case "id":
			return f.set(&f.ID, t.value, false)
		case "displayname":
			return f.set(&f.Name, t.value, true)
		case "externalid":
			return f.set(&f.ExternalID, t.value, false)
		case "members", "members.value":
			return f.set(&f.Member, t.value, false)
		}
		return invalid("groups cannot be filtered by " + short(t.attribute))
	})
}

// set limits one field. An empty value matches nothing, for none is stored.
func (f *Filter) set(field *string, value string, anyCase bool) error {
	same := *field == value || anyCase && strings.EqualFold(*field, value)
	if value == "" || *field != "" && !same {
		f.Nothing = true
	}
	*field = value
	return nil
}

func short(s string) string { return s[:min(len(s), 100)] }

// invalid is the error of a filter, which answers the type invalidFilter.
func invalid(why string) error {
	return fault.With(fault.New(fault.Invalid, "%s", why), "filter", "write terms like userName eq \"jane\", joined with and")
}

func read(text string, use func(*Filter, term) error) (Filter, error) {
	var f Filter
	if len(text) > maxFilter {
		return f, invalid("the filter is longer than 1000 bytes")
	}
	rest := strings.TrimSpace(text)
	for first := true; rest != ""; first = false {
		if !first {
			word, after, _ := strings.Cut(rest, " ")
			if !strings.EqualFold(word, "and") {
				return f, invalid("only and joins terms")
			}
			if rest = strings.TrimSpace(after); rest == "" {
				return f, invalid("a term is missing after and")
			}
		}
		t, after, err := readTerm(rest)
		if err != nil {
			return f, err
		}
		if err := use(&f, t); err != nil {
			return f, err
		}
		rest = strings.TrimSpace(after)
	}
	return f, nil
}

// readTerm takes one term off the front of a filter.
func readTerm(text string) (t term, rest string, err error) {
	attribute, rest, err := readAttribute(text)
	if err != nil {
		return t, "", err
	}
	operator, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
	if !strings.EqualFold(operator, "eq") {
		return t, "", invalid("only eq compares")
	}
	value, rest, err := readValue(strings.TrimSpace(rest))
	return term{attribute, value}, rest, err
}

// readAttribute reads a name, which may have the URN of its schema in front and
// a filter in brackets, as in emails[type eq "work"].value. The brackets are
// left out: a provider compares with the one value that it has.
func readAttribute(text string) (name, rest string, err error) {
	end := strings.IndexAny(text, " [")
	if end < 0 {
		return "", "", invalid("a term has an attribute, eq and a value")
	}
	name, rest = text[:end], text[end:]
	if rest[0] == '[' {
		closing := strings.IndexByte(rest, ']')
		if closing < 0 {
			return "", "", invalid("a bracket is not closed")
		}
		after, tail, _ := strings.Cut(rest[closing+1:], " ")
		name, rest = name+after, tail
	}
	for _, schema := range []string{UserSchema, GroupSchema} {
		if len(name) > len(schema) && strings.EqualFold(name[:len(schema)], schema) {
			name = strings.TrimPrefix(name[len(schema):], ":")
		}
	}
	return strings.ToLower(name), rest, nil
}

func readValue(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		value, rest, _ = strings.Cut(text, " ")
		if value == "" || strings.ContainsAny(value, `"()[]`) {
			return "", "", invalid("a value stands in quotes")
		}
		return value, rest, nil
	}
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", "", invalid("a value's quotes are not closed")
	}
	value, err = strconv.Unquote(quoted)
	if err != nil {
		return "", "", invalid("a value cannot be read")
	}
	return value, text[len(quoted):], nil
}
