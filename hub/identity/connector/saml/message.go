package saml

import (
	"encoding/xml"
	"time"
)

// The parts of messages that are read (saml-core-2.0-os). All are of the
// namespaces below, so that elements of other namespaces do not count.
const (
	protocolNS  = "urn:oasis:names:tc:SAML:2.0:protocol"
	assertionNS = "urn:oasis:names:tc:SAML:2.0:assertion"
	signatureNS = "http://www.w3.org/2000/09/xmldsig#"

	success = "urn:oasis:names:tc:SAML:2.0:status:Success"
	bearer  = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
)

// A response is what the provider answers with, without its assertion.
type response struct {
	XMLName      xml.Name `xml:"urn:oasis:names:tc:SAML:2.0:protocol Response"`
	Version      string   `xml:"Version,attr"`
	Destination  string   `xml:"Destination,attr"`
	InResponseTo string   `xml:"InResponseTo,attr"`
	Issuer       *string  `xml:"urn:oasis:names:tc:SAML:2.0:assertion Issuer"`
	Status       *struct {
		Code struct {
			Value string `xml:"Value,attr"`
			Code  *struct {
				Value string `xml:"Value,attr"`
			} `xml:"urn:oasis:names:tc:SAML:2.0:protocol StatusCode"`
		} `xml:"urn:oasis:names:tc:SAML:2.0:protocol StatusCode"`
	} `xml:"urn:oasis:names:tc:SAML:2.0:protocol Status"`
}

// An assertion says who the person is.
type assertion struct {
	XMLName    xml.Name    `xml:"urn:oasis:names:tc:SAML:2.0:assertion Assertion"`
	Version    string      `xml:"Version,attr"`
	Issuer     string      `xml:"urn:oasis:names:tc:SAML:2.0:assertion Issuer"`
	Subject    *subject    `xml:"urn:oasis:names:tc:SAML:2.0:assertion Subject"`
	Conditions *conditions `xml:"urn:oasis:names:tc:SAML:2.0:assertion Conditions"`
	Statements []struct {
		SessionNotOnOrAfter instant `xml:"SessionNotOnOrAfter,attr"`
	} `xml:"urn:oasis:names:tc:SAML:2.0:assertion AuthnStatement"`
	Attributes []attribute `xml:"urn:oasis:names:tc:SAML:2.0:assertion AttributeStatement>Attribute"`
}

type subject struct {
	NameIDs       []string       `xml:"urn:oasis:names:tc:SAML:2.0:assertion NameID"`
	Confirmations []confirmation `xml:"urn:oasis:names:tc:SAML:2.0:assertion SubjectConfirmation"`
}

type confirmation struct {
	Method string `xml:"Method,attr"`
	Data   *struct {
		NotBefore    instant `xml:"NotBefore,attr"`
		NotOnOrAfter instant `xml:"NotOnOrAfter,attr"`
		Recipient    string  `xml:"Recipient,attr"`
		InResponseTo string  `xml:"InResponseTo,attr"`
	} `xml:"urn:oasis:names:tc:SAML:2.0:assertion SubjectConfirmationData"`
}

type conditions struct {
	NotBefore    instant `xml:"NotBefore,attr"`
	NotOnOrAfter instant `xml:"NotOnOrAfter,attr"`
	Restrictions []struct {
		Audiences []string `xml:"urn:oasis:names:tc:SAML:2.0:assertion Audience"`
	} `xml:"urn:oasis:names:tc:SAML:2.0:assertion AudienceRestriction"`
}

type attribute struct {
	Name   string   `xml:"Name,attr"`
	Values []string `xml:"urn:oasis:names:tc:SAML:2.0:assertion AttributeValue"`
}

// values are the values of the attributes of a name.
func (a assertion) values(name string) []string {
	var out []string
	for _, attr := range a.Attributes {
		if attr.Name == name {
			out = append(out, attr.Values...)
		}
	}
	return out
}

// An instant is a time of XML (xs:dateTime); the zero one is absent.
type instant struct{ time.Time }

// UnmarshalXMLAttr reads a time. One without a zone is UTC (saml-core, 1.3.3).
func (i *instant) UnmarshalXMLAttr(a xml.Attr) error {
	t, err := time.Parse(time.RFC3339, a.Value)
	if err != nil {
		t, err = time.Parse("2006-01-02T15:04:05", a.Value)
	}
	i.Time = t
	return err
}
