import { defineConfig } from 'vitest/config';

// The limits are those of a failure; a busy machine must not come near them.
export default defineConfig({
  test: {
    environment: 'jsdom',
    include: ['src/**/*.test.{ts,tsx}', 'docs/*.test.ts'],
    setupFiles: ['vitest.setup.ts'],
    testTimeout: 300_000,
    hookTimeout: 300_000,
  },
});
