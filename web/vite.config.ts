import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

// The hub serves what is built here; in development it is proxied instead.
const hub = process.env['CAPSTAN_HUB'] ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [react()],
  server: { host: '127.0.0.1', proxy: { '/api': hub, '/openapi.yaml': hub } },
  build: { outDir: 'dist', sourcemap: false, chunkSizeWarningLimit: 900 },
});
