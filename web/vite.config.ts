import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// The hub serves what is built here; in development it is proxied instead.
const hub = process.env['CAPSTAN_HUB'] ?? 'http://127.0.0.1:8080';

export default defineConfig({
  // The hub may have a path in front of all addresses, which it writes into the first page.
  base: './',
  plugins: [react()],
  server: { host: '127.0.0.1', proxy: { '/api': hub, '/openapi.yaml': hub } },
  build: { outDir: 'dist', sourcemap: false, assetsInlineLimit: 0, chunkSizeWarningLimit: 900 },
});
