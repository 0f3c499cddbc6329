import { expect, test } from 'vitest';
import { deviceName, tokenLook } from './model';

test('SEC-F5 a session is named by browser and system, or by the program', () => {
  expect(deviceName('Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36')).toBe(
    'Chrome on Linux',
  );
  expect(deviceName('Mozilla/5.0 (Macintosh; Intel Mac OS X 14_0) AppleWebKit/605 Version/17 Safari/605')).toBe(
    'Safari on macOS',
  );
  expect(deviceName('Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0')).toBe('Edge on Windows');
  expect(deviceName('capstan/1.2.3')).toBe('Command line 1.2.3');
  expect(deviceName('curl/8')).toBe('curl/8');
  expect(deviceName('')).toBe('Unknown program');
});

test('AUTH-04 a token shows that it expires soon, and that it has', () => {
  const now = Date.parse('2026-01-01T00:00:00Z');
  expect(tokenLook({ expiresAt: '2026-03-01T00:00:00Z' }, now).label).toBe('Valid');
  expect(tokenLook({ expiresAt: '2026-01-03T00:00:00Z' }, now).label).toBe('Expires soon');
  expect(tokenLook({ expiresAt: '2025-12-31T00:00:00Z' }, now).label).toBe('Expired');
});
