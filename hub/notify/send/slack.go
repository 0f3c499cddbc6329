package send

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

type slackOptions struct {
	Token              string `json:"token"`
	Username           string `json:"username"`
	Icon               string `json:"icon"`
	APIURL             string `json:"apiURL"`
	DisableUnfurl      bool   `json:"disableUnfurl"`
	InsecureSkipVerify bool   `json:"insecureSkipVerify"`
}

type slackPart struct {
	Username        string `json:"username"`
	Icon            string `json:"icon"`
	Attachments     string `json:"attachments"`
	Blocks          string `json:"blocks"`
	GroupingKey     string `json:"groupingKey"`
	NotifyBroadcast bool   `json:"notifyBroadcast"`
	DeliveryPolicy  string `json:"deliveryPolicy"`
}

var emoji = regexp.MustCompile(`^:.+:$`)

// slack posts to a channel. Messages of one grouping key are one thread, whose
// first message may be updated.
func (c *call) slack() error {
	var o slackOptions
	if err := c.options(&o); err != nil {
		return err
	}
	var part slackPart
	if _, err := c.part(&part); err != nil {
		return err
	}
	message, err := c.slackMessage(o, part)
	if err != nil {
		return err
	}
	thread := hub.Thread{Service: c.Service.Name, Recipient: c.Recipient, Key: part.GroupingKey}
	if part.GroupingKey != "" {
		if thread, err = c.Thread(c.ctx, c.Tenant, thread); err != nil {
			return err
		}
	}
	if thread.Message == "" || part.DeliveryPolicy != "Update" {
		if thread.Message != "" {
			message["thread_ts"] = thread.Message
			message["reply_broadcast"] = part.NotifyBroadcast
		}
		posted, err := c.slackCall(o, "chat.postMessage", message)
		if err != nil {
			return err
		}
		if part.GroupingKey == "" || thread.Message != "" && part.DeliveryPolicy != "PostAndUpdate" {
			return nil
		}
		if thread.Message == "" {
			thread.Message, thread.Place = posted.TS, posted.Channel
			return c.PutThread(c.ctx, c.Tenant, thread)
		}
	}
	delete(message, "thread_ts")
	delete(message, "reply_broadcast")
	message["channel"], message["ts"] = or(thread.Place, c.Recipient), thread.Message
	_, err = c.slackCall(o, "chat.update", message)
	return err
}

func (c *call) slackMessage(o slackOptions, part slackPart) (map[string]any, error) {
	message := map[string]any{"channel": c.Recipient, "text": c.text()}
	if name := or(part.Username, o.Username); name != "" {
		message["username"] = name
	}
	switch icon := or(part.Icon, o.Icon); {
	case emoji.MatchString(icon):
		message["icon_emoji"] = icon
	case strings.HasPrefix(icon, "https://") || strings.HasPrefix(icon, "http://"):
		message["icon_url"] = icon
	}
	for name, text := range map[string]string{"attachments": part.Attachments, "blocks": part.Blocks} {
		list, err := raw(name, text)
		if err != nil {
			return nil, err
		}
		if list != nil {
			message[name] = list
		}
	}
	if o.DisableUnfurl {
		message["unfurl_links"], message["unfurl_media"] = false, false
	}
	return message, nil
}

type slackAnswer struct {
	OK      bool   `json:"ok"`
	Error   string `json:"error"`
	Channel string `json:"channel"`
	TS      string `json:"ts"`
}

func (c *call) slackCall(o slackOptions, method string, body any) (slackAnswer, error) {
	var out slackAnswer
	res, err := c.do(request{
		method: http.MethodPost, url: base(o.APIURL, "https://slack.com/api") + "/" + method, header: bearer(o.Token), body: body, insecure: o.InsecureSkipVerify,
	})
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(res.body, &out); err != nil {
		return out, fault.New(fault.Offline, "the answer is none of Slack")
	}
	if !out.OK {
		passing := slices.Contains([]string{"ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout"}, out.Error)
		return out, &Failure{Permanent: !passing, Err: fault.New(fault.Offline, "Slack refused the message: %s", out.Error)}
	}
	return out, nil
}
