// Package deeplink evaluates the links that a tenant declares in the settings
// project.links, application.links and resource.links (PROJ-23). A declaration
// is a template of an address and a condition over objects. It is written by
// somebody who may not harm other tenants, so templates and conditions have
// neither loops nor functions that let a small text need much time or memory.
package deeplink

import (
	"fmt"
	"net/url"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Limits of declarations.
const (
	maxLinks = 50
	maxText  = 4 << 10 // bytes of one template, condition or shown text
)

// A Declared is a link as a setting declares it.
type Declared struct {
	Title       string `json:"title"`
	URL         string `json:"url"`
	Description string `json:"description"`
	IconClass   string `json:"icon.class"`
	If          string `json:"if"`
}

// A Link is one that is shown.
type Link struct{ Title, URL, Description, IconClass string }

// Read reads the value of a setting; empty: there are none. The error names the
// link and what is wrong with it.
func Read(text string) ([]Declared, error) {
	var out []Declared
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		return nil, fault.New(fault.Invalid, "the links are no list of title, url, description, icon.class and if")
	}
	if len(out) > maxLinks {
		return nil, fault.New(fault.Exceeded, "there are %d links, and at most %d are possible", len(out), maxLinks)
	}
	for i, d := range out {
		if err := d.check(); err != nil {
			return nil, fault.With(err, fmt.Sprintf("link %d (%q)", i+1, shorten(d.Title)), "")
		}
	}
	return out, nil
}

func (d Declared) check() error {
	if d.Title == "" || d.URL == "" {
		return fault.New(fault.Invalid, "a link needs title and url")
	}
	for name, text := range map[string]string{"title": d.Title, "url": d.URL, "description": d.Description, "icon.class": d.IconClass, "if": d.If} {
		if len(text) > maxText {
			return fault.New(fault.Exceeded, "%s has %d bytes, and may have %d", name, len(text), maxText)
		}
	}
	if _, err := parseTemplate(d.URL); err != nil {
		return err
	}
	_, err := compileCondition(d.If)
	return err
}

// Evaluate returns the links whose condition holds for the data, and why others
// cannot be evaluated. Only addresses of the schemes http and https are links.
func Evaluate(all []Declared, data map[string]any) (links []Link, problems []string) {
	for _, d := range all {
		link, holds, err := d.evaluate(data)
		switch {
		case err != nil:
			problems = append(problems, fmt.Sprintf("the link %q: %s", shorten(d.Title), fault.Sentence(err)))
		case holds:
			links = append(links, link)
		}
	}
	return links, problems
}

func (d Declared) evaluate(data map[string]any) (link Link, holds bool, err error) {
	condition, err := compileCondition(d.If)
	if err != nil {
		return link, false, err
	}
	if holds, err = condition.holds(data); err != nil || !holds {
		return link, false, err
	}
	template, err := parseTemplate(d.URL)
	if err != nil {
		return link, false, err
	}
	address, err := fill(template, data)
	if err != nil {
		return link, false, err
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return link, false, fault.New(fault.Invalid, "its address is none of the web: %q", shorten(address))
	}
	return Link{Title: d.Title, URL: u.String(), Description: d.Description, IconClass: d.IconClass}, true, nil
}

// shorten cuts a text for a message.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
