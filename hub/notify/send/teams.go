package send

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

type teamsOptions struct {
	RecipientURLs      map[string]string `json:"recipientUrls"`
	InsecureSkipVerify bool              `json:"insecureSkipVerify"`
}

type teamsPart struct {
	Template, Title, Summary, Text, ThemeColor, Facts, Sections, PotentialAction, AdaptiveCard string
}

// teams posts a card to a connector of Microsoft Teams.
func (c *call) teams() error {
	var o teamsOptions
	var part teamsPart
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	address, err := choose("address", o.RecipientURLs, c.Recipient)
	if err != nil {
		return err
	}
	var body any = part.Template
	if part.Template == "" {
		if body, err = c.messageCard(part); err != nil {
			return err
		}
	}
	res, err := c.do(request{method: "POST", url: address, body: body, header: map[string]string{"Content-Type": "application/json"}, insecure: o.InsecureSkipVerify})
	if err != nil {
		return err
	}
	if answer := strings.TrimSpace(string(res.body)); answer != "1" && answer != "" {
		return fault.New(fault.Offline, "Microsoft Teams refused the message")
	}
	return nil
}

func (c *call) messageCard(part teamsPart) (map[string]any, error) {
	card := map[string]any{"@type": "MessageCard", "@context": "https://schema.org/extensions", "text": or(part.Text, c.text()), "title": part.Title, "summary": or(part.Summary, or(part.Title, c.text()))}
	if part.ThemeColor != "" {
		card["themeColor"] = part.ThemeColor
	}
	sections, err := objects("sections", part.Sections)
	if err != nil {
		return nil, err
	}
	facts, err := objects("facts", part.Facts)
	if err != nil {
		return nil, err
	}
	if facts != nil {
		sections = append(sections, map[string]any{"facts": facts})
	}
	if sections != nil {
		card["sections"] = sections
	}
	actions, err := objects("potentialAction", part.PotentialAction)
	if err != nil {
		return nil, err
	}
	if actions != nil {
		card["potentialAction"] = actions
	}
	return card, nil
}

func objects(what, text string) ([]map[string]any, error) {
	list, err := raw(what, text)
	if list == nil {
		return nil, err
	}
	var out []map[string]any
	if err := json.Unmarshal(list, &out); err != nil {
		return nil, invalid("%s of the template is no list of objects", what)
	}
	return out, nil
}

// teamsWorkflows posts an adaptive card to a workflow of Microsoft Teams.
func (c *call) teamsWorkflows() error {
	var o teamsOptions
	var part teamsPart
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	address, err := choose("address", o.RecipientURLs, c.Recipient)
	if err != nil {
		return err
	}
	if part.Template != "" {
		_, err = c.do(request{method: "POST", url: address, body: part.Template, header: map[string]string{"Content-Type": "application/json"}, insecure: o.InsecureSkipVerify})
		return err
	}
	content, err := raw("adaptiveCard", part.AdaptiveCard)
	if err != nil {
		return err
	}
	var card any = content
	if content == nil {
		if card, err = c.adaptiveCard(part); err != nil {
			return err
		}
	}
	_, err = c.post(address, nil, map[string]any{
		"type": "message", "attachments": []any{map[string]any{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}},
	}, o.InsecureSkipVerify)
	return err
}

func (c *call) adaptiveCard(part teamsPart) (map[string]any, error) {
	var body []any
	if part.Title != "" {
		title := map[string]any{"type": "TextBlock", "text": part.Title, "size": "Large", "weight": "Bolder", "wrap": true}
		if part.ThemeColor != "" && !strings.HasPrefix(part.ThemeColor, "#") {
			title["color"] = part.ThemeColor
		}
		body = append(body, title)
	}
	if text := or(part.Text, c.text()); text != "" {
		body = append(body, map[string]any{"type": "TextBlock", "text": text, "wrap": true})
	}
	facts, err := objects("facts", part.Facts)
	if err != nil {
		return nil, err
	}
	body = appendFacts(body, facts)
	sections, err := objects("sections", part.Sections)
	if err != nil {
		return nil, err
	}
	for _, s := range sections {
		list, _ := s["facts"].([]any)
		var own []map[string]any
		for _, f := range list {
			if fact, ok := f.(map[string]any); ok {
				own = append(own, fact)
			}
		}
		body = appendFacts(body, own)
	}
	card := map[string]any{"type": "AdaptiveCard", "version": "1.4", "body": body}
	actions, err := objects("potentialAction", part.PotentialAction)
	if err != nil {
		return nil, err
	}
	if list := openActions(actions); list != nil {
		card["actions"] = list
	}
	return card, nil
}

func appendFacts(body []any, facts []map[string]any) []any {
	var out []any
	for _, f := range facts {
		out = append(out, map[string]any{"title": fmt.Sprint(f["name"]), "value": fmt.Sprint(f["value"])})
	}
	if out == nil {
		return body
	}
	return append(body, map[string]any{"type": "FactSet", "facts": out})
}

// openActions are the buttons that open a page.
func openActions(actions []map[string]any) (out []any) {
	for _, a := range actions {
		targets, _ := a["targets"].([]any)
		if len(targets) == 0 {
			continue
		}
		target, _ := targets[0].(map[string]any)
		out = append(out, map[string]any{"type": "Action.OpenUrl", "title": fmt.Sprint(a["name"]), "url": fmt.Sprint(target["uri"])})
	}
	return out
}
