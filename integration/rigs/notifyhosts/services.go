package notifyhosts

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// chats are services that people read.
func (s *Server) chats(mux *http.ServeMux) {
	mux.HandleFunc("POST /teams/{recipient}", func(w http.ResponseWriter, r *http.Request) {
		body, fields, ok := read(w, r)
		if !ok {
			return
		}
		if fields["@type"] != "MessageCard" || text(fields["text"]) == "" && text(fields["title"]) == "" {
			http.Error(w, "Summary or Text is required.", http.StatusBadRequest)
			return
		}
		s.accept(Received{Service: "teams", Recipient: r.PathValue("recipient"), Text: text(fields["text"])}, r, body)
		_, _ = io.WriteString(w, "1") // the client may be gone
	})
	mux.HandleFunc("POST /workflows/{recipient}", func(w http.ResponseWriter, r *http.Request) {
		body, fields, ok := read(w, r)
		if !ok {
			return
		}
		attachments, _ := fields["attachments"].([]any)
		if fields["type"] != "message" || len(attachments) == 0 || !bytes.Contains(body, []byte(`"AdaptiveCard"`)) {
			http.Error(w, "no adaptive card", http.StatusBadRequest)
			return
		}
		s.accept(Received{Service: "teams-workflows", Recipient: r.PathValue("recipient")}, r, body)
		w.WriteHeader(http.StatusAccepted)
	})
	mux.HandleFunc("POST /googlechat/{recipient}", func(w http.ResponseWriter, r *http.Request) {
		body, fields, ok := read(w, r)
		if !ok {
			return
		}
		if text(fields["text"]) == "" && fields["cards"] == nil && fields["cardsV2"] == nil {
			answer(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"code": 400, "status": "INVALID_ARGUMENT"}})
			return
		}
		s.accept(Received{Service: "googlechat", Recipient: r.PathValue("recipient"), Text: text(fields["text"])}, r, body)
		answer(w, http.StatusOK, map[string]any{"name": "spaces/x"})
	})
	mux.HandleFunc("POST /api/v4/posts", func(w http.ResponseWriter, r *http.Request) {
		if body, fields, ok := read(w, r); ok && bearer(w, r) {
			s.accept(Received{Service: "mattermost", Recipient: text(fields["channel_id"]), Text: text(fields["message"])}, r, body)
			answer(w, http.StatusCreated, map[string]string{"id": fmt.Sprint(s.next())})
		}
	})
	s.rocketChat(mux)
	mux.HandleFunc("POST /bot"+Token+"/sendMessage", func(w http.ResponseWriter, r *http.Request) {
		if body, fields, ok := read(w, r); ok {
			s.accept(Received{Service: "telegram", Recipient: text(fields["chat_id"]), Text: text(fields["text"])}, r, body)
			answer(w, http.StatusOK, map[string]any{"ok": true})
		}
	})
	mux.HandleFunc("POST /v1/messages", func(w http.ResponseWriter, r *http.Request) {
		if body, fields, ok := read(w, r); ok && bearer(w, r) {
			s.accept(Received{Service: "webex", Recipient: text(fields["roomId"]) + text(fields["toPersonEmail"]), Text: text(fields["markdown"])}, r, body)
			answer(w, http.StatusOK, map[string]any{"id": "1"})
		}
	})
	mux.HandleFunc("POST /1/messages.json", func(w http.ResponseWriter, r *http.Request) {
		if r.ParseForm() != nil || r.PostForm.Get("token") != Token || r.PostForm.Get("message") == "" {
			answer(w, http.StatusBadRequest, map[string]any{"status": 0, "errors": []string{"application token is invalid"}})
			return
		}
		s.accept(Received{Service: "pushover", Recipient: r.PostForm.Get("user"), Text: r.PostForm.Get("message")}, r, nil)
		answer(w, http.StatusOK, map[string]any{"status": 1})
	})
}

// rocketChat accepts messages of a session alone.
func (s *Server) rocketChat(mux *http.ServeMux) {
	const session = "session-of-rocket-chat"
	mux.HandleFunc("POST /api/v1/login", func(w http.ResponseWriter, r *http.Request) {
		if _, fields, ok := read(w, r); ok {
			if fields["user"] != "bot@example.com" || fields["password"] != Token {
				answer(w, http.StatusUnauthorized, map[string]any{"status": "error"})
				return
			}
			answer(w, http.StatusOK, map[string]any{"status": "success", "data": map[string]string{"userId": "u1", "authToken": session}})
		}
	})
	mux.HandleFunc("POST /api/v1/chat.postMessage", func(w http.ResponseWriter, r *http.Request) {
		if body, fields, ok := read(w, r); ok {
			if r.Header.Get("X-Auth-Token") != session || r.Header.Get("X-User-Id") != "u1" {
				answer(w, http.StatusUnauthorized, map[string]any{"success": false})
				return
			}
			s.accept(Received{Service: "rocketchat", Recipient: text(fields["channel"]) + text(fields["roomId"]), Text: text(fields["text"])}, r, body)
			answer(w, http.StatusOK, map[string]any{"success": true})
		}
	})
}

// alerts are services that wake somebody, and those that mark graphs.
func (s *Server) alerts(mux *http.ServeMux) {
	post := func(path, service, header, value string, status int, recipient func(r *http.Request, fields map[string]any) (string, string)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			body, fields, ok := read(w, r)
			if !ok {
				return
			}
			if header != "" && r.Header.Get(header) != value {
				answer(w, http.StatusUnauthorized, map[string]string{"message": "invalid key"})
				return
			}
			to, message := recipient(r, fields)
			if to == "" {
				answer(w, http.StatusBadRequest, map[string]string{"message": "a field is missing"})
				return
			}
			s.accept(Received{Service: service, Recipient: to, Text: message}, r, body)
			answer(w, status, map[string]string{"status": "success"})
		})
	}
	inner := func(fields map[string]any, key string) map[string]any {
		m, _ := fields[key].(map[string]any)
		return m
	}
	post("/v2/alerts", "opsgenie", "Authorization", "GenieKey "+Token, http.StatusAccepted, func(_ *http.Request, f map[string]any) (string, string) {
		list, _ := f["responders"].([]any)
		if len(list) == 0 {
			return "", ""
		}
		first, _ := list[0].(map[string]any)
		return text(first["id"]), text(f["message"])
	})
	post("/incidents", "pagerduty", "Authorization", "Token token="+Token, http.StatusCreated, func(_ *http.Request, f map[string]any) (string, string) {
		incident := inner(f, "incident")
		if incident["type"] != "incident" {
			return "", ""
		}
		return text(inner(incident, "service")["id"]), text(incident["title"])
	})
	post("/v2/enqueue", "pagerdutyv2", "", "", http.StatusAccepted, func(_ *http.Request, f map[string]any) (string, string) {
		payload := inner(f, "payload")
		if f["routing_key"] != Token || f["event_action"] != "trigger" || payload["summary"] == nil || payload["severity"] == nil || payload["source"] == nil {
			return "", ""
		}
		return "events", text(payload["summary"])
	})
	post("/v2/applications/{app}/deployments.json", "newrelic", "X-Api-Key", Token, http.StatusCreated, func(r *http.Request, f map[string]any) (string, string) {
		if text(inner(f, "deployment")["revision"]) == "" {
			return "", ""
		}
		return r.PathValue("app"), text(inner(f, "deployment")["description"])
	})
	post("/grafana/annotations", "grafana", "Authorization", "Bearer "+Token, http.StatusOK, func(_ *http.Request, f map[string]any) (string, string) {
		return strings.Trim(fmt.Sprint(f["tags"]), "[]"), text(f["text"])
	})
	mux.HandleFunc("POST /api/v2/alerts", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Contains(body, []byte(`"alertname"`)) || r.Header.Get("Authorization") != "Bearer "+Token {
			http.Error(w, "no alert", http.StatusBadRequest)
			return
		}
		s.accept(Received{Service: "alertmanager", Text: string(body)}, r, body)
		w.WriteHeader(http.StatusOK)
	})
}

// gitHub has what the app with id 7 may do, which is installed as 8.
func (s *Server) gitHub(mux *http.ServeMux) {
	const session = "ghs_session-of-an-installation"
	mux.HandleFunc("POST /api/v3/app/installations/8/access_tokens", func(w http.ResponseWriter, r *http.Request) {
		if strings.Count(r.Header.Get("Authorization"), ".") != 2 {
			answer(w, http.StatusUnauthorized, map[string]string{"message": "A JSON web token could not be decoded"})
			return
		}
		answer(w, http.StatusCreated, map[string]string{"token": session})
	})
	signedIn := func(do http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+session {
				answer(w, http.StatusUnauthorized, map[string]string{"message": "Bad credentials"})
				return
			}
			do(w, r)
		}
	}
	const repo = "/api/v3/repos/{owner}/{repo}"
	note := func(service string) http.HandlerFunc {
		return signedIn(func(w http.ResponseWriter, r *http.Request) {
			if body, fields, ok := read(w, r); ok {
				s.accept(Received{Service: service, Recipient: r.PathValue("owner") + "/" + r.PathValue("repo"), Text: text(fields["description"]) + text(fields["body"])}, r, body)
				answer(w, http.StatusCreated, map[string]any{"id": s.next()})
			}
		})
	}
	mux.HandleFunc("POST "+repo+"/statuses/{sha}", note("github-status"))
	mux.HandleFunc("POST "+repo+"/check-runs", note("github-check"))
	mux.HandleFunc("POST "+repo+"/deployments", note("github-deployment"))
	mux.HandleFunc("POST "+repo+"/deployments/{id}/statuses", note("github-deployment-status"))
	mux.HandleFunc("POST "+repo+"/dispatches", note("github-dispatch"))
	mux.HandleFunc("GET "+repo+"/deployments", signedIn(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, []any{}) }))
	mux.HandleFunc("GET "+repo+"/commits/{sha}/pulls", signedIn(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, []any{map[string]int{"number": 12}})
	}))
	mux.HandleFunc("GET "+repo+"/issues/12/comments", signedIn(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		list := []any{}
		for body, id := range s.tags {
			list = append(list, map[string]any{"id": id, "body": body})
		}
		answer(w, http.StatusOK, list)
	}))
	comment := func(service string) http.HandlerFunc {
		return signedIn(func(w http.ResponseWriter, r *http.Request) {
			if body, fields, ok := read(w, r); ok {
				id := s.next()
				s.mu.Lock()
				s.tags[text(fields["body"])] = int64(id)
				s.mu.Unlock()
				s.accept(Received{Service: service, Recipient: r.PathValue("owner") + "/" + r.PathValue("repo"), Text: text(fields["body"])}, r, body)
				answer(w, http.StatusCreated, map[string]any{"id": id})
			}
		})
	}
	mux.HandleFunc("POST "+repo+"/issues/12/comments", comment("github-comment"))
	mux.HandleFunc("PATCH "+repo+"/issues/comments/{id}", comment("github-comment-edit"))
}

// queues are services that programs read.
func (s *Server) queues(mux *http.ServeMux) {
	mux.HandleFunc("POST /sqs/", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		auth := r.Header.Get("Authorization")
		if err != nil || !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") || !signedByAWS(r, body) {
			answer(w, http.StatusForbidden, map[string]string{"__type": "SignatureDoesNotMatch"})
			return
		}
		switch r.Header.Get("X-Amz-Target") {
		case "AmazonSQS.GetQueueUrl":
			answer(w, http.StatusOK, map[string]string{"QueueUrl": s.URL + "/sqs/1/events.fifo"})
		case "AmazonSQS.SendMessage":
			s.accept(Received{Service: "awssqs"}, r, body)
			answer(w, http.StatusOK, map[string]string{"MessageId": "1"})
		default:
			answer(w, http.StatusBadRequest, map[string]string{"__type": "InvalidAction"})
		}
	})
	mux.HandleFunc("POST /v1/projects/{project}/topics/{topic}", func(w http.ResponseWriter, r *http.Request) {
		body, fields, ok := read(w, r)
		if !ok {
			return
		}
		list, _ := fields["messages"].([]any)
		if strings.Count(r.Header.Get("Authorization"), ".") != 2 || len(list) != 1 {
			answer(w, http.StatusUnauthorized, map[string]string{"status": "UNAUTHENTICATED"})
			return
		}
		first, _ := list[0].(map[string]any)
		data, err := base64.StdEncoding.DecodeString(text(first["data"]))
		if err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"status": "INVALID_ARGUMENT"})
			return
		}
		s.accept(Received{Service: "gcppubsub", Recipient: strings.TrimSuffix(r.PathValue("topic"), ":publish"), Text: string(data)}, r, body)
		answer(w, http.StatusOK, map[string]any{"messageIds": []string{"1"}})
	})
}
