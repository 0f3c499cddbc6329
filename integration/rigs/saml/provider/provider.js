// A SAML identity provider on loopback, made of samlify. GET /sso takes a
// request by the binding HTTP-Redirect, asks who signs in, and answers by the
// binding HTTP-POST. The settings are in the environment as JSON.
import { createServer } from 'node:http';
import samlify from 'samlify';

const settings = JSON.parse(process.env.SETTINGS);
const base = `http://127.0.0.1:${settings.port}`;
// Requests come from the hub under test, whose own checks are not the subject.
samlify.setSchemaValidator({ validate: () => Promise.resolve('not validated') });

const provider = samlify.IdentityProvider({
  entityID: `${base}/metadata`,
  privateKey: settings.key,
  signingCert: settings.certificate,
  requestSignatureAlgorithm: 'http://www.w3.org/2001/04/xmldsig-more#rsa-sha256',
  nameIDFormat: ['urn:oasis:names:tc:SAML:2.0:nameid-format:persistent'],
  singleSignOnService: [
    { Binding: 'urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect', Location: `${base}/sso` },
  ],
});

const escape = (text) =>
  String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

// fill puts values into the template of samlify, which knows no attributes
// with several values.
const fill = (template, person, request, client) => {
  const now = new Date();
  const at = (seconds) => new Date(now.getTime() + seconds * 1000).toISOString();
  const attributes = Object.entries(person.attributes).map(([name, values]) =>
    `<saml:Attribute Name="${escape(name)}">${values.map((v) =>
      `<saml:AttributeValue>${escape(v)}</saml:AttributeValue>`).join('')}</saml:Attribute>`).join('');
  const values = {
    ID: `_${crypto.randomUUID()}`,
    AssertionID: `_${crypto.randomUUID()}`,
    Destination: client.acs,
    Issuer: `${base}/metadata`,
    IssueInstant: now.toISOString(),
    StatusCode: 'urn:oasis:names:tc:SAML:2.0:status:Success',
    NameIDFormat: 'urn:oasis:names:tc:SAML:2.0:nameid-format:persistent',
    NameID: person.name,
    SubjectConfirmationDataNotOnOrAfter: at(300),
    SubjectRecipient: client.acs,
    InResponseTo: request.extract.request.id,
    ConditionsNotBefore: at(-30),
    ConditionsNotOnOrAfter: at(300),
    Audience: request.extract.issuer ?? client.acs,
    AuthnStatement: `<saml:AuthnStatement AuthnInstant="${now.toISOString()}" SessionNotOnOrAfter="${at(3600)}"><saml:AuthnContext><saml:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef></saml:AuthnContext></saml:AuthnStatement>`,
    AttributeStatement: `<saml:AttributeStatement>${attributes}</saml:AttributeStatement>`,
  };
  const raw = new Set(['AuthnStatement', 'AttributeStatement']);
  return {
    id: values.ID,
    context: template.replace(/\{(\w+)\}/g, (_, key) => (raw.has(key) ? values[key] : escape(values[key]))),
  };
};

const client = (acs) => samlify.ServiceProvider({
  entityID: acs,
  wantAssertionsSigned: settings.signAssertion,
  wantMessageSigned: settings.signResponse,
  assertionConsumerService: [{ Binding: 'urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST', Location: acs }],
});

const page = (response, status, body) => {
  response.writeHead(status, { 'content-type': 'text/html; charset=utf-8' });
  response.end(`<!doctype html><html lang="en"><title>Identity provider</title><body>${body}</body></html>`);
};

const signIn = async (url, response) => {
  const query = Object.fromEntries(url.searchParams);
  // Who asks is read from the request itself: every hub of the tests may.
  const draft = await provider.parseLoginRequest(client('http://127.0.0.1/'), 'redirect', { query });
  const acs = draft.extract.request.assertionConsumerServiceUrl;
  const person = settings.people[query.user];
  if (!person) {
    const hidden = ['SAMLRequest', 'RelayState'].map((name) =>
      `<input type="hidden" name="${name}" value="${escape(query[name] ?? '')}">`).join('');
    page(response, 200, `<h1>Sign in</h1><form action="/sso">${hidden}<label>User <input name="user"></label><button>Sign in</button></form>`);
    return;
  }
  const answer = await provider.createLoginResponse(client(acs), draft, 'post', { email: person.name }, {
    customTagReplacement: (template) => fill(template, person, draft, { acs }),
  });
  page(response, 200, `<form method="post" action="${escape(acs)}"><input type="hidden" name="SAMLResponse" value="${escape(answer.context)}"><input type="hidden" name="RelayState" value="${escape(query.RelayState ?? '')}"><button>Continue</button></form><script>document.forms[0].submit()</script>`);
};

createServer((request, response) => {
  const url = new URL(request.url, base);
  if (url.pathname === '/ready') {
    response.end('ready');
  } else if (url.pathname === '/sso') {
    signIn(url, response).catch((error) => {
      console.error(error);
      page(response, 400, '<h1>The request is not accepted</h1>');
    });
  } else {
    response.writeHead(404).end();
  }
}).listen(settings.port, '127.0.0.1');
