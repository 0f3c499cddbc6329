package saml

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/beevik/etree"
	dsig "github.com/russellhaering/goxmldsig"

	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/shared/fault"
)

// begin is when all messages of these tests are made.
var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A signer is a provider's key with its certificate.
type signer struct {
	key  *rsa.PrivateKey
	cert []byte
}

func (s signer) GetKeyPair() (*rsa.PrivateKey, []byte, error) { return s.key, s.cert, nil }

func newSigner() signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "provider"}, NotBefore: begin.Add(-time.Hour), NotAfter: begin.Add(24 * time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return signer{key, cert}
}

var (
	provider = sync.OnceValue(newSigner)
	attacker = sync.OnceValue(newSigner)
)

// A message has the values that tests change.
type message struct {
	responseAttrs, status                            string
	issuer, nameID, confirmation, conditions, extras string
}

func good(r connector.Request) message {
	return message{
		responseAttrs: fmt.Sprintf(`Version="2.0" Destination="%s" InResponseTo="%s"`, callback, requestID(r)),
		status:        `<samlp:Status><samlp:StatusCode Value="` + success + `"/></samlp:Status>`,
		issuer:        "<saml:Issuer>https://idp.example.com</saml:Issuer>",
		nameID:        "<saml:NameID>jane-id</saml:NameID>",
		confirmation:  confirm(r, bearer, begin.Add(5*time.Minute), callback),
		conditions: fmt.Sprintf(`<saml:Conditions NotBefore="%s" NotOnOrAfter="%s"><saml:AudienceRestriction><saml:Audience>https://hub.example.com</saml:Audience></saml:AudienceRestriction></saml:Conditions>`,
			begin.Format(time.RFC3339), begin.Add(5*time.Minute).Format(time.RFC3339)),
		extras: `<saml:AttributeStatement>
<saml:Attribute Name="name"><saml:AttributeValue>jane</saml:AttributeValue></saml:Attribute>
<saml:Attribute Name="mail"><saml:AttributeValue>jane@example.com</saml:AttributeValue></saml:Attribute>
<saml:Attribute Name="groups"><saml:AttributeValue>sre</saml:AttributeValue></saml:Attribute>
</saml:AttributeStatement>`,
	}
}

func confirm(r connector.Request, method string, until time.Time, recipient string) string {
	return fmt.Sprintf(`<saml:SubjectConfirmation Method="%s"><saml:SubjectConfirmationData NotOnOrAfter="%s" Recipient="%s" InResponseTo="%s"/></saml:SubjectConfirmation>`,
		method, until.Format(time.RFC3339), recipient, requestID(r))
}

// element is the message, unsigned.
func (m message) element() *etree.Element {
	text := `<samlp:Response xmlns:samlp="` + protocolNS + `" xmlns:saml="` + assertionNS + `" ID="_response" ` + m.responseAttrs + `>` + m.issuer + m.status +
		`<saml:Assertion xmlns:saml="` + assertionNS + `" ID="_assertion" Version="2.0">` + m.issuer + `<saml:Subject>` + m.nameID + m.confirmation + `</saml:Subject>` + m.conditions + m.extras + `</saml:Assertion></samlp:Response>`
	doc := etree.NewDocument()
	if err := doc.ReadFromString(text); err != nil {
		panic(err)
	}
	return doc.Root()
}

// sign signs an element in place: its signature is its second child.
func sign(e *etree.Element, by signer, method string) *etree.Element {
	context := dsig.NewDefaultSigningContext(by)
	context.Canonicalizer = dsig.MakeC14N10ExclusiveCanonicalizerWithPrefixList("")
	if method == dsig.RSASHA1SignatureMethod {
		context.Hash = crypto.SHA1
	}
	signature, err := context.ConstructSignature(e, true)
	if err != nil {
		panic(err)
	}
	e.InsertChildAt(1, signature)
	return e
}

func assertionOf(e *etree.Element) *etree.Element { return child(e, assertionNS, "Assertion") }

// signed is a good message whose assertion is signed, after a change.
func signed(m message) *etree.Element {
	e := m.element()
	sign(assertionOf(e), provider(), "")
	return e
}

// signedWhole is a good message that is signed as a whole, after a change.
func signedWhole(m message) *etree.Element { return sign(m.element(), provider(), "") }

func text(e *etree.Element) string {
	doc := etree.NewDocument()
	doc.SetRoot(e)
	s, err := doc.WriteToString()
	if err != nil {
		panic(err)
	}
	return s
}

func config() Config {
	return Config{
		SSOURL: "https://idp.example.com/sso", EntityIssuer: "https://hub.example.com", SSOIssuer: "https://idp.example.com",
		CAData:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: provider().cert}),
		UsernameAttr: "name", EmailAttr: "mail", GroupsAttr: "groups",
	}
}

// finish brings a message to the connector.
func finish(cfg Config, at time.Time, text string) (connector.Identity, error) {
	c, err := New(cfg, func() time.Time { return at })
	if err != nil {
		return connector.Identity{}, err
	}
	r := request("state-1")
	return c.Finish(nil, r, url.Values{"RelayState": {r.State}, "SAMLResponse": {base64.StdEncoding.EncodeToString([]byte(text))}}) //nolint:staticcheck // the context is not used
}

func TestGoodMessages(t *testing.T) {
	t.Parallel()
	r := request("state-1")
	both := signed(good(r))
	sign(both, provider(), "")
	manyAudiences := good(r)
	manyAudiences.conditions = strings.Replace(manyAudiences.conditions, "<saml:Audience>", "<saml:Audience>https://other.example.com</saml:Audience><saml:Audience>", 1)
	withoutIssuer := config()
	withoutIssuer.SSOIssuer = ""
	for name, c := range map[string]struct {
		e   *etree.Element
		cfg Config
		at  time.Time
	}{
		"a signed assertion":                {signed(good(r)), config(), begin},
		"a signed response":                 {signedWhole(good(r)), config(), begin},
		"both signed":                       {both, config(), begin},
		"several audiences":                 {signed(manyAudiences), config(), begin},
		"any issuer with the certificate":   {signed(good(r)), withoutIssuer, begin},
		"a clock that is a minute behind":   {signed(good(r)), config(), begin.Add(-time.Minute)},
		"a clock that is nearly one before": {signed(good(r)), config(), begin.Add(6*time.Minute - time.Second)},
	} {
		t.Run("AUTH-08 SAML accepts "+name, func(t *testing.T) {
			t.Parallel()
			got, err := finish(c.cfg, c.at, text(c.e))
			if err != nil || got.Subject != "jane-id" || got.Username != "jane" || len(got.Groups) != 1 {
				t.Fatalf("%+v %v", got, err)
			}
		})
	}
}

// evil is an assertion as an attacker would like to have it.
func evil(r connector.Request) *etree.Element {
	m := good(r)
	m.nameID = "<saml:NameID>admin-id</saml:NameID>"
	e := assertionOf(m.element()).Copy()
	e.CreateAttr("ID", "_evil")
	return e
}

// object is an element of a signature that may hold anything.
func object(content *etree.Element) *etree.Element {
	e := etree.NewElement("ds:Object")
	e.CreateAttr("xmlns:ds", signatureNS)
	e.AddChild(content)
	return e
}

// wrappings are the attacks of "On Breaking SAML" (Somorovsky and others, 2012)
// and those that later libraries fell for: a signed element is moved to where
// the signature is found, and another one to where it is read.
func wrappings(r connector.Request) map[string]func() *etree.Element {
	signatureOf := func(e *etree.Element) *etree.Element { return child(e, signatureNS, "Signature") }
	return map[string]func() *etree.Element{
		"an evil response with the signed one in its signature": func() *etree.Element {
			original := signedWhole(good(r))
			out := original.Copy()
			out.CreateAttr("ID", "_evil")
			child(assertionOf(out), assertionNS, "Subject").ChildElements()[0].SetText("admin-id")
			original.RemoveChild(signatureOf(original))
			signatureOf(out).AddChild(object(original))
			return out
		},
		"an evil response with the signed one as a child": func() *etree.Element {
			original := signedWhole(good(r))
			out := original.Copy()
			out.CreateAttr("ID", "_evil")
			out.RemoveChild(signatureOf(out))
			child(assertionOf(out), assertionNS, "Subject").ChildElements()[0].SetText("admin-id")
			out.AddChild(original)
			return out
		},
		"an evil assertion before the signed one": func() *etree.Element {
			out := signed(good(r))
			out.InsertChildAt(0, evil(r))
			return out
		},
		"an evil assertion after the signed one": func() *etree.Element {
			out := signed(good(r))
			out.AddChild(evil(r))
			return out
		},
		"the signed assertion in an evil one": func() *etree.Element {
			out := signed(good(r))
			original := out.RemoveChild(assertionOf(out)).(*etree.Element)
			e := evil(r)
			e.AddChild(original)
			out.AddChild(e)
			return out
		},
		"an evil assertion with the signature, and the signed one behind": func() *etree.Element {
			out := signed(good(r))
			original := out.RemoveChild(assertionOf(out)).(*etree.Element)
			e := evil(r)
			e.AddChild(original.RemoveChild(signatureOf(original)).(*etree.Element))
			out.AddChild(e)
			out.AddChild(original)
			return out
		},
		"an evil assertion with the signature that holds the signed one": func() *etree.Element {
			out := signed(good(r))
			original := out.RemoveChild(assertionOf(out)).(*etree.Element)
			e := evil(r)
			signature := original.RemoveChild(signatureOf(original)).(*etree.Element)
			signature.AddChild(object(original))
			e.AddChild(signature)
			out.AddChild(e)
			return out
		},
		"an evil assertion in extensions": func() *etree.Element {
			out := signed(good(r))
			extensions := etree.NewElement("samlp:Extensions")
			extensions.AddChild(evil(r))
			out.InsertChildAt(0, extensions)
			return out
		},
		"the signed assertion in extensions": func() *etree.Element {
			out := signed(good(r))
			extensions := etree.NewElement("samlp:Extensions")
			extensions.AddChild(out.RemoveChild(assertionOf(out)))
			out.InsertChildAt(0, extensions)
			out.AddChild(evil(r))
			return out
		},
		"an evil assertion with the identifier of the signed one": func() *etree.Element {
			out := signed(good(r))
			e := evil(r)
			e.CreateAttr("ID", "_assertion")
			out.InsertChildAt(0, e)
			return out
		},
		"an evil assertion of the same identifier in another namespace of attributes": func() *etree.Element {
			out := signed(good(r))
			e := evil(r)
			e.RemoveAttr("ID")
			e.CreateAttr("Id", "_assertion")
			out.InsertChildAt(0, e)
			return out
		},
		"a signature of the response that is of the assertion": func() *etree.Element {
			out := signed(good(r))
			original := assertionOf(out)
			signature := original.RemoveChild(signatureOf(original)).(*etree.Element)
			child(original, assertionNS, "Subject").ChildElements()[0].SetText("admin-id")
			out.InsertChildAt(1, signature)
			return out
		},
		"a second signature info": func() *etree.Element {
			out := signed(good(r))
			signature := signatureOf(assertionOf(out))
			info := child(signature, signatureNS, "SignedInfo").Copy()
			signature.InsertChildAt(0, info)
			child(assertionOf(out), assertionNS, "Subject").ChildElements()[0].SetText("admin-id")
			return out
		},
	}
}

func TestSignatureWrapping(t *testing.T) {
	t.Parallel()
	for name, make := range wrappings(request("state-1")) {
		t.Run("does not accept "+name, func(t *testing.T) {
			t.Parallel()
			id, err := finish(config(), begin, text(make()))
			if fault.KindOf(err) != fault.Unknown {
				t.Fatalf("%+v %v", id, err)
			}
			if id.Subject != "" {
				t.Errorf("an identity comes with the error: %+v", id)
			}
		})
	}
}

func TestForgedMessages(t *testing.T) {
	t.Parallel()
	r := request("state-1")
	replace := func(s, old, with string) string {
		if !strings.Contains(s, old) {
			panic("there is no " + old)
		}
		return strings.Replace(s, old, with, 1)
	}
	unsigned := good(r).element()
	byAttacker := good(r).element()
	sign(assertionOf(byAttacker), attacker(), "")
	oneOfTwo := signed(good(r))
	sign(oneOfTwo, attacker(), "")
	weak := good(r).element()
	sign(assertionOf(weak), provider(), dsig.RSASHA1SignatureMethod)
	ok := text(signed(good(r)))
	for name, forged := range map[string]string{
		"no signature":                        text(unsigned),
		"a signature of somebody else":        text(byAttacker),
		"one valid and one foreign one":       text(oneOfTwo),
		"a signature with SHA-1":              text(weak),
		"another name":                        replace(ok, ">jane-id<", ">admin-id<"),
		"another group":                       replace(ok, ">sre<", ">admins<"),
		"another recipient":                   replace(ok, `Recipient="`+callback, `Recipient="https://evil.example`),
		"a removed condition":                 ok[:strings.Index(ok, "<saml:Conditions")] + ok[strings.Index(ok, "</saml:Conditions>")+len("</saml:Conditions>"):],
		"a comment in the name":               replace(ok, ">jane-id<", ">jane<!-- -->-id<"),
		"a comment elsewhere":                 replace(ok, "<saml:Subject>", "<!-- --><saml:Subject>"),
		"an instruction in the name":          replace(ok, ">jane-id<", ">jane<?x y?>-id<"),
		"an external entity":                  `<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>` + replace(ok, ">jane-id<", ">&x;<"),
		"a bomb of entities":                  `<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>` + ok,
		"a document type alone":               `<!DOCTYPE r>` + ok,
		"an entity that is not declared":      replace(ok, ">jane-id<", ">&x;<"),
		"a second document":                   ok + ok,
		"text behind the document":            ok + "<x/>",
		"half a document":                     ok[:len(ok)/2],
		"another encoding":                    `<?xml version="1.0" encoding="UTF-7"?>` + ok,
		"nothing":                             " ",
		"deep nesting":                        strings.Repeat("<a>", 5000),
		"many elements":                       "<a>" + strings.Repeat("<b/>", 30000) + "</a>",
		"an assertion without response":       text(assertionOf(signed(good(r))).Copy()),
		"a response of SAML 1":                strings.ReplaceAll(ok, protocolNS, "urn:oasis:names:tc:SAML:1.0:protocol"),
		"a signature of everything":           replace(ok, `URI="#_assertion"`, `URI=""`),
		"a signature of something else":       replace(ok, `URI="#_assertion"`, `URI="#_response"`),
		"a signature without a value":         ok[:strings.Index(ok, "<ds:SignatureValue>")] + ok[strings.Index(ok, "</ds:SignatureValue>")+len("</ds:SignatureValue>"):],
		"a message authentication code":       replace(ok, dsig.RSASHA256SignatureMethod, "http://www.w3.org/2001/04/xmldsig-more#hmac-sha256"),
		"a transformation by a program":       replace(ok, "http://www.w3.org/2000/09/xmldsig#enveloped-signature", "http://www.w3.org/TR/1999/REC-xslt-19991116"),
		"a transformation by a path":          replace(ok, "http://www.w3.org/2000/09/xmldsig#enveloped-signature", "http://www.w3.org/TR/1999/REC-xpath-19991116"),
		"an encrypted assertion":              replace(replace(ok, "<saml:Assertion ", "<saml:EncryptedAssertion "), "</saml:Assertion>", "</saml:EncryptedAssertion>"),
		"a name with a space that is a colon": replace(ok, "<saml:NameID>", "<:NameID>"),
	} {
		t.Run("does not accept "+name, func(t *testing.T) {
			t.Parallel()
			id, err := finish(config(), begin, forged)
			if fault.KindOf(err) != fault.Unknown || id.Subject != "" {
				t.Fatalf("%+v %v", id, err)
			}
		})
	}
}

// Messages that the provider has signed, but not for here, now or this request.
func TestMessagesForOthers(t *testing.T) {
	t.Parallel()
	r, other := request("state-1"), request("state-2")
	for name, c := range map[string]struct {
		change func(*message)
		at     time.Duration
		says   string
	}{
		"for another sign-in":           {change: func(m *message) { *m = good(other) }, says: "another sign-in"},
		"for no sign-in of the hub":     {change: func(m *message) { m.responseAttrs = `Version="2.0"` }, says: "another sign-in"},
		"confirmed for another sign-in": {change: func(m *message) { m.confirmation = good(other).confirmation }, says: "not for this sign-in"},
		"for another address": {change: func(m *message) {
			m.responseAttrs = strings.Replace(m.responseAttrs, callback, "https://evil.example", 1)
		}, says: "another address"},
		"for another recipient": {change: func(m *message) { m.confirmation = confirm(r, bearer, begin.Add(time.Minute), "https://evil.example") }, says: "not for this sign-in"},
		"for holders of a key": {change: func(m *message) {
			m.confirmation = confirm(r, "urn:oasis:names:tc:SAML:2.0:cm:holder-of-key", begin.Add(time.Minute), callback)
		}, says: "not for this sign-in"},
		"without confirmation": {change: func(m *message) { m.confirmation = "" }, says: "not for this sign-in"},
		"confirmed without an end": {change: func(m *message) {
			m.confirmation = strings.Replace(m.confirmation, "NotOnOrAfter", "NotOnOrAfterwards", 1)
		}, says: "not for this sign-in"},
		"confirmed until before": {change: func(m *message) { m.confirmation = confirm(r, bearer, begin.Add(-time.Minute), callback) }, says: "not for this sign-in"},
		"for another audience": {change: func(m *message) {
			m.conditions = strings.Replace(m.conditions, "hub.example.com", "hub.example.com.evil.example", 1)
		}, says: "another audience"},
		"for two restrictions": {change: func(m *message) {
			m.conditions = strings.Replace(m.conditions, "</saml:Conditions>", "<saml:AudienceRestriction><saml:Audience>x</saml:Audience></saml:AudienceRestriction></saml:Conditions>", 1)
		}, says: "another audience"},
		"for no audience":           {change: func(m *message) { m.conditions = "<saml:Conditions/>" }, says: "no audience"},
		"without conditions":        {change: func(m *message) { m.conditions = "" }, says: "no audience"},
		"that have expired":         {at: 6 * time.Minute, says: "expired"},
		"of the future":             {at: -time.Minute - time.Second, says: "not valid yet"},
		"of a session that is over": {change: func(m *message) { m.extras += `<saml:AuthnStatement SessionNotOnOrAfter="2026-03-01T11:00:00Z"/>` }, says: "expired"},
		"of another provider":       {change: func(m *message) { m.issuer = "<saml:Issuer>https://evil.example</saml:Issuer>" }, says: "ssoIssuer"},
		"of no provider":            {change: func(m *message) { m.issuer = "" }, says: "ssoIssuer"},
		"of nobody":                 {change: func(m *message) { m.nameID = "" }, says: "names no person"},
		"of an empty name":          {change: func(m *message) { m.nameID = "<saml:NameID> </saml:NameID>" }, says: "names no person"},
		"of two names":              {change: func(m *message) { m.nameID += "<saml:NameID>admin-id</saml:NameID>" }, says: "names no person"},
		"of a time that is none": {change: func(m *message) {
			m.conditions = strings.Replace(m.conditions, "NotOnOrAfter=\"2026", "NotOnOrAfter=\"x", 1)
		}, says: "not accepted"},
		"of a refusal": {change: func(m *message) {
			m.status = `<samlp:Status><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:Responder"><samlp:StatusCode Value="urn:oasis:names:tc:SAML:2.0:status:AuthnFailed"/></samlp:StatusCode></samlp:Status>`
		}, says: "AuthnFailed"},
		"without a status":              {change: func(m *message) { m.status = "" }, says: "no status"},
		"of a certificate that is over": {at: 30 * time.Hour, says: "signature"},
	} {
		t.Run("does not accept messages "+name, func(t *testing.T) {
			t.Parallel()
			m := good(r)
			if c.change != nil {
				c.change(&m)
			}
			for _, e := range []*etree.Element{signed(m), signedWhole(m)} {
				id, err := finish(config(), begin.Add(c.at), text(e))
				if fault.KindOf(err) != fault.Unknown || id.Subject != "" {
					t.Fatalf("%+v %v", id, err)
				}
				if !strings.Contains(fault.Sentence(err), c.says) {
					t.Errorf("%q does not say %q", fault.Sentence(err), c.says)
				}
			}
		})
	}
}

func TestAttributes(t *testing.T) {
	t.Parallel()
	r := request("state-1")
	for name, c := range map[string]struct {
		change func(*Config)
		kind   fault.Kind
		groups []string
	}{
		"divides groups":                {change: func(c *Config) { c.GroupsDelim = "r" }, groups: []string{"s", "e"}},
		"knows people without groups":   {change: func(c *Config) { c.GroupsAttr = "none" }, groups: []string{}},
		"passes on only allowed groups": {change: func(c *Config) { c.AllowedGroups, c.FilterGroups = []string{"sre", "x"}, true }, groups: []string{"sre"}},
		"refuses who is in no group":    {change: func(c *Config) { c.AllowedGroups = []string{"x"} }, kind: fault.Denied},
		"refuses who has no mail":       {change: func(c *Config) { c.EmailAttr = "none" }, kind: fault.Denied},
		"refuses who has no name":       {change: func(c *Config) { c.UsernameAttr = "none" }, kind: fault.Denied},
	} {
		t.Run("AUTH-08 SAML "+name, func(t *testing.T) {
			t.Parallel()
			cfg := config()
			c.change(&cfg)
			id, err := finish(cfg, begin, text(signed(good(r))))
			if fault.KindOf(err) != c.kind || strings.Join(id.Groups, " ") != strings.Join(c.groups, " ") {
				t.Errorf("%v %v", id.Groups, err)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	c, err := New(config(), func() time.Time { return begin })
	if err != nil {
		t.Fatal(err)
	}
	r := request("state-1")
	ok := base64.StdEncoding.EncodeToString([]byte(text(signed(good(r)))))
	for name, answer := range map[string]url.Values{
		"nothing":                       {},
		"no state":                      {"SAMLResponse": {ok}},
		"another state":                 {"SAMLResponse": {ok}, "RelayState": {"state-2"}},
		"no message":                    {"RelayState": {"state-1"}},
		"a message that is not encoded": {"SAMLResponse": {"<xml>"}, "RelayState": {"state-1"}},
		"a huge message":                {"SAMLResponse": {strings.Repeat("A", 2<<20)}, "RelayState": {"state-1"}},
	} {
		t.Run("does not accept "+name, func(t *testing.T) {
			if _, err := c.Finish(t.Context(), r, answer); fault.KindOf(err) != fault.Unknown {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := c.Finish(t.Context(), connector.Request{Callback: callback}, url.Values{"SAMLResponse": {ok}}); fault.KindOf(err) != fault.Unknown {
		t.Errorf("a request without state is finished: %v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"no address":                 func(c *Config) { c.SSOURL = "" },
		"an address that is none":    func(c *Config) { c.SSOURL = "javascript:alert(1)" },
		"no attribute of names":      func(c *Config) { c.UsernameAttr = "" },
		"groups nobody knows":        func(c *Config) { c.AllowedGroups, c.GroupsAttr = []string{"x"}, "" },
		"an unknown format":          func(c *Config) { c.NameIDPolicyFormat = "mail" },
		"no certificate":             func(c *Config) { c.CAData = nil },
		"a certificate that is none": func(c *Config) { c.CAData = []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----") },
		"text behind a certificate":  func(c *Config) { c.CAData = append(c.CAData, "x"...) },
	} {
		t.Run("refuses "+name, func(t *testing.T) {
			t.Parallel()
			cfg := config()
			change(&cfg)
			if _, err := New(cfg, time.Now); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%v", err)
			}
		})
	}
}

// FuzzFinish tries to break the reader: whatever is not the message itself
// proves nothing, and never panics.
func FuzzFinish(f *testing.F) {
	r := request("state-1")
	f.Add(text(signed(good(r))))
	f.Add(text(signedWhole(good(r))))
	for _, make := range wrappings(r) {
		f.Add(text(make()))
	}
	f.Fuzz(func(t *testing.T, message string) {
		id, err := finish(config(), begin, message)
		if err == nil && id.Subject != "jane-id" {
			t.Errorf("%q signs in %q", message, id.Subject)
		}
	})
}
