package send

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

type sqsOptions struct {
	Queue       string `json:"queue"`
	Account     string `json:"account"`
	Region      string `json:"region"`
	EndpointURL string `json:"endpointUrl"`
	Key         string `json:"key"`
	Secret      string `json:"secret"`
}

// sqs sends to a queue of Amazon SQS, with the key of the tenant. The identity of
// the hub's machine is never used.
func (c *call) sqs() error {
	var o sqsOptions
	var part struct {
		MessageAttributes map[string]string `json:"messageAttributes"`
		MessageGroupID    string            `json:"messageGroupId"`
	}
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	if o.Key == "" || o.Secret == "" || o.Region == "" {
		return fault.With(invalid("the service has no key, secret and region"), "", "the identity of the hub's own machine is not used for tenants: set key and secret of a user")
	}
	find := map[string]string{"QueueName": or(c.Recipient, o.Queue)}
	if o.Account != "" {
		find["QueueOwnerAWSAccountId"] = o.Account
	}
	var queue struct{ QueueURL string }
	if err := c.sqsCall(o, "GetQueueUrl", find, &queue); err != nil {
		return err
	}
	message := map[string]any{"QueueUrl": queue.QueueURL, "MessageBody": c.text()}
	attributes := map[string]any{}
	for name, value := range part.MessageAttributes {
		if value != "" {
			attributes[name] = map[string]string{"DataType": "String", "StringValue": value}
		}
	}
	if len(attributes) > 0 {
		message["MessageAttributes"] = attributes
	}
	if part.MessageGroupID != "" {
		message["MessageGroupId"] = part.MessageGroupID
	}
	if strings.HasSuffix(queue.QueueURL, ".fifo") {
		message["MessageDeduplicationId"] = string(c.ID)
	}
	return c.sqsCall(o, "SendMessage", message, nil)
}

func (c *call) sqsCall(o sqsOptions, action string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return invalid("the message cannot be written as JSON: %s", rootCause(err))
	}
	address := base(o.EndpointURL, "https://sqs."+o.Region+".amazonaws.com") + "/"
	u, err := url.Parse(address)
	if err != nil {
		return invalid("endpointUrl of the service is no address")
	}
	header := map[string]string{"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS." + action}
	signAWS(header, u, string(body), o, time.Now())
	res, err := c.do(request{method: http.MethodPost, url: address, header: header, body: string(body)})
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(res.body, out); err != nil {
		return fault.New(fault.Offline, "the answer is none of SQS")
	}
	return nil
}

// signAWS adds the headers of Signature Version 4.
func signAWS(header map[string]string, u *url.URL, body string, o sqsOptions, now time.Time) {
	stamp := now.UTC().Format("20060102T150405Z")
	header["X-Amz-Date"] = stamp
	const signed = "content-type;host;x-amz-date;x-amz-target"
	canonical := strings.Join([]string{
		http.MethodPost, u.EscapedPath(), "", "content-type:" + header["Content-Type"], "host:" + u.Host, "x-amz-date:" + stamp,
		"x-amz-target:" + header["X-Amz-Target"], "", signed, hash(body),
	}, "\n")
	scope := stamp[:8] + "/" + o.Region + "/sqs/aws4_request"
	key := []byte("AWS4" + o.Secret)
	for _, part := range []string{stamp[:8], o.Region, "sqs", "aws4_request"} {
		key = hmacSum(key, part)
	}
	signature := hex.EncodeToString(hmacSum(key, "AWS4-HMAC-SHA256\n"+stamp+"\n"+scope+"\n"+hash(canonical)))
	header["Authorization"] = "AWS4-HMAC-SHA256 Credential=" + o.Key + "/" + scope + ", SignedHeaders=" + signed + ", Signature=" + signature
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func hmacSum(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

// pubsub publishes to a topic of Google Pub/Sub, as a service account of the
// tenant, whose key is the value of keyFile.
func (c *call) pubsub() error {
	var o struct {
		Topic   string `json:"topic"`
		Project string `json:"project"`
		KeyFile string `json:"keyFile"`
		APIURL  string `json:"apiURL"`
	}
	var part struct{ Attributes map[string]string }
	if err := c.options(&o); err != nil {
		return err
	}
	if _, err := c.part(&part); err != nil {
		return err
	}
	token, err := googleToken(o.KeyFile)
	if err != nil {
		return err
	}
	attributes := map[string]string{"capstan-delivery": string(c.ID)}
	for name, value := range part.Attributes {
		attributes[name] = value
	}
	address := fmt.Sprintf("%s/v1/projects/%s/topics/%s:publish", base(o.APIURL, googleAudience), url.PathEscape(o.Project), url.PathEscape(or(c.Recipient, o.Topic)))
	_, err = c.post(address, bearer(token), map[string]any{
		"messages": []any{map[string]any{"data": base64.StdEncoding.EncodeToString([]byte(c.text())), "attributes": attributes}},
	}, false)
	return err
}

const googleAudience = "https://pubsub.googleapis.com"

// googleToken signs a token that Google's services accept of a service account
// without another request.
func googleToken(text string) (string, error) {
	var account struct {
		Email string `json:"client_email"`
		Key   string `json:"private_key"`
		KeyID string `json:"private_key_id"`
	}
	if json.Unmarshal([]byte(text), &account) != nil || account.Email == "" {
		return "", fault.With(invalid("keyFile of the service is no JSON key of a service account"), "", "store the content of the file in argocd-notifications-secret, and write keyFile: $NAME; files and the identity of the hub's machine are not used for tenants")
	}
	key, err := hub.ReadRSAKey("keyFile", account.Key)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", account.KeyID))
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	now := time.Now()
	token, err := jwt.Signed(signer).Claims(jwt.Claims{
		Issuer: account.Email, Subject: account.Email, Audience: jwt.Audience{googleAudience + "/"},
		IssuedAt: jwt.NewNumericDate(now.Add(-time.Minute)), Expiry: jwt.NewNumericDate(now.Add(10 * time.Minute)),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return token, nil
}
