// What the specs know of the product that they run against. Its starter sets:
// CAPSTAN_URL, CAPSTAN_SETUP_LINK, CAPSTAN_USER, CAPSTAN_PASSWORD,
// CAPSTAN_APP (automated, with a Deployment), CAPSTAN_MANUAL (not automated),
// CAPSTAN_BAD (its repository cannot be fetched), CAPSTAN_SHOTS (a folder for
// pictures), CAPSTAN_KEPT (yes, if the folder is kept), CAPSTAN_E2E_WORK (a folder for everything else), CAPSTAN_ACTS and
// CAPSTAN_ACTS_TOKEN (see act); if it likes, CAPSTAN_CHROMIUM.

const env = (name: string): string => {
  const value = process.env[name];
  if (!value) throw new Error(`the environment variable ${name} is missing`);
  return value;
};

export const product = {
  get url() {
    return env('CAPSTAN_URL');
  },
  get setupLink() {
    return env('CAPSTAN_SETUP_LINK');
  },
  get user() {
    return env('CAPSTAN_USER');
  },
  get password() {
    return env('CAPSTAN_PASSWORD');
  },
  get app() {
    return env('CAPSTAN_APP');
  },
  get manual() {
    return env('CAPSTAN_MANUAL');
  },
  get bad() {
    return env('CAPSTAN_BAD');
  },
  get shots() {
    return env('CAPSTAN_SHOTS');
  },
  /** Whether somebody looks at the pictures: they take time. */
  get kept() {
    return process.env['CAPSTAN_KEPT'] === 'yes';
  },
  get work() {
    return env('CAPSTAN_E2E_WORK');
  },
};

/** Has the starter of the product do what a person does outside of the console: push a commit, stop the hub. */
export async function act(name: string, body = ''): Promise<string> {
  const answer = await fetch(`${env('CAPSTAN_ACTS')}/${name}`, {
    method: 'POST',
    body,
    headers: { Authorization: `Bearer ${env('CAPSTAN_ACTS_TOKEN')}` },
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`the act "${name}" failed: ${text}`);
  return text;
}
