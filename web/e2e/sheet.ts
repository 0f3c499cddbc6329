// A sheet shows the pictures of one page beside each other: in both themes, on
// a wide and a narrow screen.
import { readFileSync, writeFileSync } from 'node:fs';
import type { Browser } from '@playwright/test';

/** Pictures are shrunk by this, so that a sheet fits on a screen and can still be read. */
const scale = 0.75;

/** Writes a sheet as WebP. Each row has the paths of pictures of the same height; the title names the page. */
export async function writeSheet(browser: Browser, path: string, title: string, rows: string[][]) {
  const context = await browser.newContext({ viewport: { width: 1290, height: 800 } });
  const page = await context.newPage();
  await page.setContent(
    `<style>
       body { margin: 0; padding: 8px; width: max-content; background: #8a8f98; font: 600 16px monospace; color: #fff }
       div { display: flex; gap: 8px; margin-top: 8px }
     </style><h1 style="font: inherit; margin: 0"></h1>
     ${rows.map((row) => `<div>${row.map(() => '<img alt="">').join('')}</div>`).join('')}`,
  );
  await page.locator('h1').evaluate((heading, text) => {
    heading.textContent = text;
  }, title);
  for (const [i, picture] of rows.flat().entries()) {
    const source = `data:image/png;base64,${readFileSync(picture).toString('base64')}`;
    await page.evaluate(
      `(async () => {
         const image = document.images[${i}];
         image.src = ${JSON.stringify(source)};
         await image.decode();
         image.width = image.naturalWidth * ${scale};
       })()`,
    );
  }
  const size = await page.evaluate<{ width: number; height: number }>(
    '(({ width, height }) => ({ width, height }))(document.body.getBoundingClientRect())',
  );
  const debug = await context.newCDPSession(page);
  const { data } = await debug.send('Page.captureScreenshot', {
    format: 'webp',
    quality: 75,
    captureBeyondViewport: true,
    clip: { x: 0, y: 0, width: Math.ceil(size.width), height: Math.ceil(size.height), scale: 1 },
  });
  writeFileSync(path, Buffer.from(data, 'base64'));
  await context.close();
}
