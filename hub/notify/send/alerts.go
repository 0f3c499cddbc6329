package send

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// opsgenie creates an alert for a team.
func (c *call) opsgenie() error {
	var o struct {
		APIURL             string            `json:"apiUrl"`
		APIKeys            map[string]string `json:"apiKeys"`
		InsecureSkipVerify bool              `json:"insecureSkipVerify"`
	}
	part := map[string]any{}
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	key, err := choose("key", o.APIKeys, c.Recipient)
	if err != nil {
		return err
	}
	alert := map[string]any{"message": clip(c.text(), 130), "source": "Capstan", "responders": []any{map[string]string{"type": "team", "id": c.Recipient}}}
	for name, value := range part {
		if value != nil && value != "" {
			alert[name] = value
		}
	}
	if alert["alias"] == nil {
		alert["alias"] = string(c.ID) // another attempt is the same alert
	}
	address := base(o.APIURL, "api.opsgenie.com")
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	_, err = c.post(address+"/v2/alerts", map[string]string{"Authorization": "GenieKey " + key}, alert, o.InsecureSkipVerify)
	return err
}

// pagerDuty creates an incident of a service, which the recipient is.
func (c *call) pagerDuty() error {
	var o struct{ Token, From, APIURL string }
	var part struct{ Title, Body, Urgency, PriorityID string }
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	incident := map[string]any{
		"type": "incident", "title": or(part.Title, clip(c.text(), 1024)), "incident_key": string(c.ID),
		"service": map[string]string{"id": c.Recipient, "type": "service_reference"},
	}
	if part.PriorityID != "" {
		incident["priority"] = map[string]string{"id": part.PriorityID, "type": "priority_reference"}
	}
	if part.Urgency != "" {
		incident["urgency"] = part.Urgency
	}
	if text := or(part.Body, c.text()); text != "" {
		incident["body"] = map[string]string{"type": "incident_body", "details": text}
	}
	_, err := c.post(base(o.APIURL, "https://api.pagerduty.com")+"/incidents", map[string]string{
		"Authorization": "Token token=" + o.Token, "Accept": "application/vnd.pagerduty+json;version=2", "From": o.From,
	}, map[string]any{"incident": incident}, false)
	return err
}

// pagerDutyEvent triggers an event of version 2.
func (c *call) pagerDutyEvent() error {
	var o struct {
		ServiceKeys map[string]string `json:"serviceKeys"`
		APIURL      string            `json:"apiURL"`
	}
	var part struct{ Summary, Severity, Source, Component, Group, Class, URL, DedupKey string }
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	key, err := choose("key", o.ServiceKeys, c.Recipient)
	if err != nil {
		return err
	}
	payload := map[string]string{"summary": clip(or(part.Summary, c.text()), 1024), "severity": or(part.Severity, "error"), "source": or(part.Source, "Capstan")}
	for name, value := range map[string]string{"component": part.Component, "group": part.Group, "class": part.Class} {
		if value != "" {
			payload[name] = value
		}
	}
	event := map[string]any{"routing_key": key, "event_action": "trigger", "client": "Capstan", "payload": payload, "dedup_key": or(part.DedupKey, string(c.ID))}
	if part.URL != "" {
		event["client_url"] = part.URL
	}
	_, err = c.post(base(o.APIURL, "https://events.pagerduty.com")+"/v2/enqueue", nil, event, false)
	return err
}

// newRelic marks a deployment of an application.
func (c *call) newRelic() error {
	var o struct {
		APIKey             string `json:"apiKey"`
		APIURL             string `json:"apiURL"`
		InsecureSkipVerify bool   `json:"insecureSkipVerify"`
	}
	var part struct {
		Revision    string `json:"revision"`
		Changelog   string `json:"changelog,omitempty"`
		Description string `json:"description,omitempty"`
		User        string `json:"user,omitempty"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	if found, err := c.part(&part); err != nil || !found {
		return errors.Join(err, invalid("the template has no part newrelic"))
	}
	part.Description = or(part.Description, c.text())
	_, err := c.post(base(o.APIURL, "https://api.newrelic.com")+"/v2/applications/"+url.PathEscape(c.Recipient)+"/deployments.json",
		map[string]string{"X-Api-Key": o.APIKey}, map[string]any{"deployment": part}, o.InsecureSkipVerify)
	return err
}

// grafana makes an annotation; the recipient is its tags.
func (c *call) grafana() error {
	var o struct {
		APIURL             string `json:"apiUrl"`
		APIKey             string `json:"apiKey"`
		InsecureSkipVerify bool   `json:"insecureSkipVerify"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	u, err := url.Parse(o.APIURL)
	if err != nil {
		return invalid("apiUrl of the service is no address")
	}
	u.Path = path.Join("/", u.Path, "annotations")
	_, err = c.post(u.String(), bearer(o.APIKey), map[string]any{
		"time": c.At.UnixMilli(), "isRegion": false, "tags": strings.Split(c.Recipient, "|"), "text": c.text(),
	}, o.InsecureSkipVerify)
	return err
}

// alertmanager posts an alert. It is delivered when one of the targets has it.
func (c *call) alertmanager() error {
	var o struct {
		Targets            []string
		Scheme, APIPath    string
		BasicAuth          *basicAuth
		BearerToken        string
		InsecureSkipVerify bool
	}
	var part struct {
		Labels       map[string]string `json:"labels"`
		Annotations  map[string]string `json:"annotations"`
		GeneratorURL string            `json:"generatorURL"`
		StartsAt     time.Time         `json:"startsAt"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	found, err := c.part(&part)
	switch {
	case err != nil:
		return err
	case !found || len(part.Labels) == 0:
		return invalid("the template needs alertmanager.labels")
	case len(o.Targets) == 0:
		return invalid("the service has no targets")
	}
	if part.Labels["alertname"] == "" {
		part.Labels["alertname"] = c.Service.Name
	}
	part.StartsAt = c.At.UTC()
	if host, name, scp := strings.Cut(strings.TrimPrefix(part.GeneratorURL, "git@"), ":"); scp && strings.HasPrefix(part.GeneratorURL, "git@") {
		part.GeneratorURL = "https://" + host + "/" + name
	}
	header := map[string]string{}
	if o.BasicAuth == nil && o.BearerToken != "" {
		header = bearer(o.BearerToken)
	}
	var failed error
	delivered := false
	for _, target := range o.Targets {
		_, err := c.do(request{
			method: http.MethodPost, url: or(o.Scheme, "http") + "://" + target + or(o.APIPath, "/api/v2/alerts"), header: header, user: o.BasicAuth.user(),
			body: []any{part}, insecure: o.InsecureSkipVerify,
		})
		failed, delivered = errors.Join(failed, err), delivered || err == nil
	}
	if delivered {
		return nil
	}
	return failed
}
