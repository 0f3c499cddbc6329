import { configure } from '@testing-library/react';

// What a test waits for comes in milliseconds, but not on every machine.
configure({ asyncUtilTimeout: 60_000 });
