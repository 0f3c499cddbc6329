package saml

import (
	"bytes"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/beevik/etree"
	xrv "github.com/mattermost/xml-roundtrip-validator"
	dsig "github.com/russellhaering/goxmldsig"
	"github.com/russellhaering/goxmldsig/etreeutils"
)

const (
	// maxDepth and maxElements bound what is parsed.
	maxDepth    = 50
	maxElements = 20_000
)

// The algorithms that are accepted. SHA-1 is none of them.
var (
	signatureMethods = []string{
		dsig.RSASHA256SignatureMethod, dsig.RSASHA384SignatureMethod, dsig.RSASHA512SignatureMethod,
		dsig.ECDSASHA256SignatureMethod, dsig.ECDSASHA384SignatureMethod, dsig.ECDSASHA512SignatureMethod,
	}
	digestMethods = []string{
		"http://www.w3.org/2001/04/xmlenc#sha256", "http://www.w3.org/2001/04/xmldsig-more#sha384", "http://www.w3.org/2001/04/xmlenc#sha512",
	}
	// transforms are those that SAML allows (saml-core, 5.4.4).
	transforms = []string{
		dsig.EnvelopedSignatureAltorithmId.String(), dsig.CanonicalXML10ExclusiveAlgorithmId.String(), dsig.CanonicalXML10ExclusiveWithCommentsAlgorithmId.String(),
	}
)

// A verified message holds what the provider has signed, and nothing else but
// the response around a signed assertion, which decides nothing.
type verified struct {
	response  response
	assertion assertion
}

var (
	errEncrypted = errors.New("the assertion is encrypted")
	errWeak      = errors.New("the signature uses an algorithm that is not accepted")
	errUnsigned  = errors.New("neither response nor assertion is signed")
)

// verify reads a message. Only elements whose bytes were covered by a valid
// signature are read as the assertion; they are parsed again from these bytes.
func verify(text []byte, certificates []*x509.Certificate, now time.Time) (verified, error) {
	if err := harmless(text); err != nil {
		return verified{}, err
	}
	doc := etree.NewDocument()
	if err := doc.ReadFromBytes(text); err != nil {
		return verified{}, fmt.Errorf("parse: %w", err)
	}
	root := doc.Root()
	if root == nil || !is(root, protocolNS, "Response") {
		return verified{}, errors.New("it is no response of SAML 2.0")
	}
	found, err := inspect(root)
	if err != nil {
		return verified{}, err
	}
	whole, signed, err := found.validate(root, &dsig.ValidationContext{
		CertificateStore: &dsig.MemoryX509CertificateStore{Roots: certificates}, IdAttribute: dsig.DefaultIdAttr, Clock: dsig.NewFakeClockAt(now),
	})
	if err != nil {
		return verified{}, err
	}
	var out verified
	if err := unmarshal(whole, &out.response); err != nil || signed == nil {
		return out, err
	}
	return out, unmarshal(signed, &out.assertion)
}

// validate returns the response, as it was signed if it was, and the assertion
// as it was signed. There is none if the provider signs nobody in.
func (f found) validate(root *etree.Element, context *dsig.ValidationContext) (whole, signed *etree.Element, err error) {
	whole, signed = root, f.assertion
	if f.responseSigned {
		if whole, err = validate(context, root); err != nil {
			return nil, nil, err
		}
		if signed = child(whole, assertionNS, "Assertion"); signed == nil {
			return nil, nil, errors.New("what is signed has no assertion")
		}
	}
	// An assertion with a signature of its own has to be valid by itself.
	if f.assertionSigned {
		if signed, err = validate(context, f.assertion); err != nil {
			return nil, nil, err
		}
	}
	return whole, signed, nil
}

// harmless refuses what no provider sends and what parsers disagree about:
// document types with their entities, comments, instructions, and text that is
// read differently the second time.
func harmless(text []byte) error {
	d := xml.NewDecoder(bytes.NewReader(text))
	shape := shape{}
	for first := true; ; first = false {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		if p, is := token.(xml.ProcInst); is && first && p.Target == "xml" {
			continue
		}
		if err := shape.add(token); err != nil {
			return err
		}
	}
	if err := xrv.Validate(bytes.NewReader(text)); err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	return nil
}

// A shape counts what a text has.
type shape struct{ depth, elements int }

// add refuses a token that no message has.
func (s *shape) add(token xml.Token) error {
	switch t := token.(type) {
	case xml.Directive:
		return errors.New("it has a document type")
	case xml.Comment:
		return errors.New("it has a comment")
	case xml.ProcInst:
		return errors.New("it has a processing instruction")
	case xml.CharData:
		if s.depth == 0 && len(bytes.TrimSpace(t)) > 0 {
			return errors.New("it has text around its element")
		}
	case xml.StartElement:
		if s.depth == 0 && s.elements > 0 {
			return errors.New("it has more than one element")
		}
		s.depth++
		s.elements++
	case xml.EndElement:
		s.depth--
	}
	if s.depth > maxDepth || s.elements > maxElements {
		return errors.New("it has too many elements")
	}
	return nil
}

// found is where a message has its assertion and signatures.
type found struct {
	assertion       *etree.Element
	assertionSigned bool
	responseSigned  bool
}

// inspect checks the shape of a message: one assertion, as a child of the
// response; signatures only as children of these two, and of their parent; no
// identifier twice. Everything else is an attempt to let the hub read another
// element than the one that was signed.
func inspect(root *etree.Element) (found, error) {
	elements := all(root)
	if twice(elements) {
		return found{}, errors.New("an identifier occurs twice")
	}
	out, err := findAssertion(root, elements)
	if err != nil || out.assertion == nil {
		return out, err
	}
	if err := out.findSignatures(root, elements); err != nil {
		return found{}, err
	}
	if !out.responseSigned && !out.assertionSigned {
		return found{}, errUnsigned
	}
	return out, nil
}

// findSignatures finds the signatures of response and assertion, at most one
// each.
func (f *found) findSignatures(root *etree.Element, elements []*etree.Element) error {
	for _, e := range elements {
		if !is(e, signatureNS, "Signature") {
			continue
		}
		of, signed := e.Parent(), &f.responseSigned
		if of == f.assertion {
			signed = &f.assertionSigned
		}
		if of != root && of != f.assertion || *signed {
			return errors.New("it has a signature at another place")
		}
		if err := inspectSignature(e, of); err != nil {
			return err
		}
		*signed = true
	}
	return nil
}

// twice reports whether an identifier occurs twice. Parsers differ in which
// attributes they take for one.
func twice(elements []*etree.Element) bool {
	seen := map[string]bool{}
	for _, e := range elements {
		for _, name := range []string{"ID", "Id", "id"} {
			id := e.SelectAttrValue(name, "")
			if id != "" && seen[id] {
				return true
			}
			seen[id] = true
		}
	}
	return false
}

// findAssertion finds the only assertion of a response.
func findAssertion(root *etree.Element, elements []*etree.Element) (found, error) {
	out := found{}
	for _, e := range elements {
		switch {
		case is(e, assertionNS, "EncryptedAssertion"):
			return found{}, errEncrypted
		case is(e, protocolNS, "Response") && e != root:
			return found{}, errors.New("it has a response in another")
		case !is(e, assertionNS, "Assertion"):
			continue
		case e.Parent() != root || out.assertion != nil:
			return found{}, errors.New("it has not one assertion")
		}
		out.assertion = e
	}
	return out, nil
}

func is(e *etree.Element, space, tag string) bool {
	return e.Tag == tag && e.NamespaceURI() == space
}

// inspectSignature checks that a signature is of one element, with accepted
// algorithms.
func inspectSignature(e, of *etree.Element) error {
	info := child(e, signatureNS, "SignedInfo")
	if info == nil {
		return errors.New("a signature says not what it signs")
	}
	accepted := map[string][]string{"SignatureMethod": signatureMethods, "DigestMethod": digestMethods, "Transform": transforms}
	references := 0
	for _, part := range all(info) {
		if algorithms, checked := accepted[part.Tag]; checked && !slices.Contains(algorithms, part.SelectAttrValue("Algorithm", "")) {
			return errWeak
		}
		if part.Tag != "Reference" {
			continue
		}
		references++
		if id := of.SelectAttrValue("ID", ""); id == "" || part.SelectAttrValue("URI", "") != "#"+id {
			return errors.New("a signature is of another element")
		}
	}
	if references != 1 {
		return errors.New("a signature is not of one element")
	}
	return nil
}

// validate returns the element as it was signed.
func validate(context *dsig.ValidationContext, e *etree.Element) (*etree.Element, error) {
	parents, err := etreeutils.NSBuildParentContext(e)
	if err != nil {
		return nil, err
	}
	alone, err := etreeutils.NSDetatch(parents, e)
	if err != nil {
		return nil, err
	}
	signed, err := context.Validate(alone)
	if err != nil {
		return nil, fmt.Errorf("verify the signature: %w", err)
	}
	if signed == nil || signed.Tag != e.Tag || signed.SelectAttrValue("ID", "") != e.SelectAttrValue("ID", "") {
		return nil, errors.New("what is signed is another element")
	}
	return signed, nil
}

// unmarshal reads an element with the namespaces around it.
func unmarshal(e *etree.Element, into any) error {
	parents, err := etreeutils.NSBuildParentContext(e)
	if err != nil {
		return err
	}
	alone, err := etreeutils.NSDetatch(parents, e)
	if err != nil {
		return err
	}
	doc := etree.NewDocument()
	doc.SetRoot(alone)
	text, err := doc.WriteToBytes()
	if err != nil {
		return err
	}
	if err := xml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("parse: %w", err)
	}
	return nil
}

func all(e *etree.Element) []*etree.Element {
	out := []*etree.Element{e}
	for i := 0; i < len(out); i++ {
		out = append(out, out[i].ChildElements()...)
	}
	return out
}

func child(e *etree.Element, space, tag string) *etree.Element {
	for _, c := range e.ChildElements() {
		if is(c, space, tag) {
			return c
		}
	}
	return nil
}
