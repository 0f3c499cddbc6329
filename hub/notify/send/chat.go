package send

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/shared/fault"
)

// googleChat posts to a space of Google Chat by its webhook.
func (c *call) googleChat() error {
	var o struct {
		Webhooks           map[string]string `json:"webhooks"`
		InsecureSkipVerify bool              `json:"insecureSkipVerify"`
	}
	var part struct{ Cards, CardsV2, ThreadKey string }
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	address, err := choose("webhook", o.Webhooks, c.Recipient)
	if err != nil {
		return err
	}
	message := map[string]any{}
	if part.Cards == "" && part.CardsV2 == "" {
		message["text"] = c.text()
	}
	var cards []any
	if part.Cards != "" {
		if err := yaml.Unmarshal([]byte(part.Cards), &cards); err != nil {
			return invalid("cards of the template are no list")
		}
		message["cards"] = cards
	}
	if part.CardsV2 != "" {
		var newer, named []any
		if err := yaml.Unmarshal([]byte(part.CardsV2), &newer); err != nil {
			return invalid("cardsV2 of the template are no list")
		}
		for i, card := range newer {
			named = append(named, map[string]any{"cardId": string(c.ID) + "-" + strconv.Itoa(i), "card": card})
		}
		message["cardsV2"] = named
	}
	u, err := url.Parse(address)
	if err != nil {
		return invalid("the webhook of the recipient is no address")
	}
	if part.ThreadKey != "" {
		q := u.Query()
		q.Set("threadKey", part.ThreadKey)
		q.Set("messageReplyOption", "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD")
		u.RawQuery = q.Encode()
	}
	_, err = c.post(u.String(), nil, message, o.InsecureSkipVerify)
	return err
}

// mattermost posts to a channel, whose id the recipient is.
func (c *call) mattermost() error {
	var o struct {
		APIURL             string `json:"apiURL"`
		Token              string `json:"token"`
		InsecureSkipVerify bool   `json:"insecureSkipVerify"`
	}
	var part struct{ Attachments string }
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	attachments, err := raw("attachments", or(part.Attachments, "[]"))
	if err != nil {
		return err
	}
	_, err = c.post(base(o.APIURL, "")+"/api/v4/posts", bearer(o.Token), map[string]any{
		"channel_id": c.Recipient, "message": c.text(), "props": map[string]any{"attachments": attachments},
	}, o.InsecureSkipVerify)
	return err
}

// rocketChat signs in, and posts to a channel, a person or a room.
func (c *call) rocketChat() error {
	var o struct {
		Email, Password, Alias, Icon, Avatar string
		ServerURL                            string `json:"serverUrl"`
	}
	var part struct{ Attachments string }
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	attachments, err := raw("attachments", part.Attachments)
	if err != nil {
		return err
	}
	server := base(o.ServerURL, "")
	var session struct {
		Data struct {
			UserID    string `json:"userId"`
			AuthToken string `json:"authToken"`
		} `json:"data"`
	}
	res, err := c.post(server+"/api/v1/login", nil, map[string]string{"user": o.Email, "password": o.Password}, false)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(res.body, &session); err != nil || session.Data.AuthToken == "" {
		return fault.New(fault.Offline, "the answer is none of Rocket.Chat")
	}
	c.attempt.Answer = "" // it had the token of the session
	message := map[string]any{"text": c.text()}
	if strings.HasPrefix(c.Recipient, "#") || strings.HasPrefix(c.Recipient, "@") {
		message["channel"] = c.Recipient
	} else {
		message["roomId"] = c.Recipient
	}
	for name, value := range map[string]string{"alias": o.Alias, "emoji": o.Icon, "avatar": o.Avatar} {
		if value != "" {
			message[name] = value
		}
	}
	if attachments != nil {
		message["attachments"] = attachments
	}
	_, err = c.post(server+"/api/v1/chat.postMessage", map[string]string{"X-Auth-Token": session.Data.AuthToken, "X-User-Id": session.Data.UserID}, message, false)
	return err
}

// telegram posts to a chat or a public channel; a number behind | is a topic.
func (c *call) telegram() error {
	var o struct {
		Token  string `json:"token"`
		APIURL string `json:"apiURL"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	message := map[string]any{"text": c.text(), "parse_mode": "Markdown", "chat_id": "@" + c.Recipient}
	if strings.HasPrefix(c.Recipient, "-") {
		chat, topic, topical := strings.Cut(c.Recipient, "|")
		message["chat_id"] = chat
		if topical {
			n, err := strconv.Atoi(topic)
			if err != nil {
				return invalid("the topic %q of the recipient is no number", topic)
			}
			message["message_thread_id"] = n
		}
	}
	_, err := c.post(base(o.APIURL, "https://api.telegram.org")+"/bot"+o.Token+"/sendMessage", nil, message, false)
	return err
}

// webex posts to a person, by their address, or to a room.
func (c *call) webex() error {
	var o struct {
		Token              string `json:"token"`
		APIURL             string `json:"apiURL"`
		InsecureSkipVerify bool   `json:"insecureSkipVerify"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	message := map[string]string{"markdown": c.text(), "roomId": c.Recipient}
	if strings.Contains(c.Recipient, "@") {
		delete(message, "roomId")
		message["toPersonEmail"] = c.Recipient
	}
	_, err := c.post(base(o.APIURL, "https://webexapis.com")+"/v1/messages", bearer(o.Token), message, o.InsecureSkipVerify)
	return err
}

// pushover sends to a person or a group.
func (c *call) pushover() error {
	var o struct {
		Token  string `json:"token"`
		APIURL string `json:"apiURL"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	_, err := c.do(request{
		method: http.MethodPost, url: base(o.APIURL, "https://api.pushover.net") + "/1/messages.json",
		body: url.Values{"token": {o.Token}, "user": {c.Recipient}, "message": {clip(c.text(), 1024)}},
	})
	return err
}
