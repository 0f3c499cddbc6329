// The OpenID provider of the tests: a certified implementation, with its own
// pages for sign-in and consent. Tests set its accounts over a second port.
import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

const settings = JSON.parse(process.env.RIG_SETTINGS);
const accounts = new Map(Object.entries(settings.accounts ?? {}));

const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
const key = { ...privateKey.export({ format: 'jwk' }), use: 'sig', alg: 'RS256', kid: 'rig' };

const provider = new Provider(settings.issuer, {
  clients: settings.clients,
  jwks: { keys: [key] },
  cookies: { keys: ['only for tests'] },
  scopes: ['openid', 'offline_access', 'profile', 'email', 'groups'],
  claims: {
    openid: ['sub'],
    profile: ['name', 'preferred_username'],
    email: ['email', 'email_verified'],
    // The second is what Entra ID says of somebody in too many groups for a token.
    groups: ['groups', 'hasgroups'],
  },
  // Identity providers of companies put these claims into the ID token.
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  features: {
    devInteractions: { enabled: true },
    rpInitiatedLogout: { enabled: true },
    claimsParameter: { enabled: true },
  },
  ttl: { IdToken: 600, AccessToken: 600, AuthorizationCode: 60, Interaction: 600, Session: 3600, Grant: 3600 },
  findAccount: (_ctx, id) => {
    const claims = accounts.get(id);
    if (claims === undefined) return undefined;
    return { accountId: id, claims: () => ({ sub: id, ...claims }) };
  },
});

provider.on('server_error', (_ctx, err) => console.error('server error', err));
provider.on('authorization.error', (_ctx, err) => console.error('authorization', err.message, err.error_description ?? ''));
provider.on('grant.error', (_ctx, err) => console.error('grant', err.message, err.error_description ?? ''));

const control = createServer((req, res) => {
  let body = '';
  req.on('data', (part) => {
    body += part;
  });
  req.on('end', () => {
    const { id, claims } = JSON.parse(body);
    if (claims === null) accounts.delete(id);
    else accounts.set(id, claims);
    res.writeHead(204).end();
  });
});

control.listen(settings.control, '127.0.0.1', () => {
  createServer(provider.callback()).listen(settings.port, '127.0.0.1', () => console.error('listening'));
});
