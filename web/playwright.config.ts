import { readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from '@playwright/test';
import { patience } from './e2e/limits';

// The specs run against one product, which each leaves to the next one as it is.
// TestConsole of integration/tests/stories starts the product and runs them.
// Those of the sign-in need an identity provider instead, and that of the policy a
// tenant without one: integration/tests/signin names them in CAPSTAN_SPECS. Those of the page of an application, with little and with much in it, of terminals and
// of what operators and tenants set for the console need integration/tests/apppage.
// Journeys of people need integration/tests/journeys.
// That of many applications is a part of the benchmarks, those of all states of all pages and of a tab that is open for a day ones of soak runs.
// That of a hub under a path needs a proxy: integration/tests/rootpath.
const apart = [
  'sign-in',
  'sign-in-setup',
  'policy',
  'app-page',
  'large',
  'root-path',
  'objects',
  'appearance',
  'many',
  'forms',
  'create',
  'journeys',
  'states',
  'day',
];
const usual = [
  'account',
  'list',
  'application',
  'places',
  'sets',
  'notifications',
  'rights',
  'docs',
  'language',
  'accessibility',
  'hostile',
];
const order = process.env['CAPSTAN_SPECS']?.split(',') ?? usual;

const forgotten = readdirSync(join(import.meta.dirname, 'e2e')).filter(
  (file) => file.endsWith('.spec.ts') && ![...usual, ...apart].includes(file.slice(0, -'.spec.ts'.length)),
);
if (forgotten.length > 0) throw new Error(`these specs have no place in the order: ${forgotten.join(', ')}`);

const work = process.env['CAPSTAN_E2E_WORK'] ?? join(tmpdir(), 'capstan-e2e');

export default defineConfig({
  testDir: 'e2e',
  outputDir: join(work, 'results'),
  reporter: [['list'], ['json', { outputFile: join(work, 'report.json') }]],
  forbidOnly: true,
  maxFailures: 1,
  retries: 0,
  workers: 1,
  timeout: 5 * patience,
  expect: { timeout: patience },
  projects: order.map((name, i) => ({
    name,
    testMatch: `${name}.spec.ts`,
    dependencies: order.slice(Math.max(i - 1, 0), i),
  })),
  use: {
    browserName: 'chromium',
    launchOptions: {
      executablePath: process.env['CAPSTAN_CHROMIUM'] ?? '/usr/bin/chromium',
      args: [
        '--headless',
        '--no-sandbox',
        '--disable-gpu',
        '--disable-background-networking',
        '--disable-quic',
        '--no-first-run',
        '--disable-component-update',
        '--disable-sync',
      ],
      timeout: patience,
    },
  },
});
