// Puts the fonts where Grafana's own style sheet looks for them.

import { copyFileSync, mkdirSync } from 'node:fs';

const ROOT = 'build/fonts';
// The name that Grafana's style sheet knows Roboto Mono by.
const MONO = 'L0xTDF4xlVMF-BfR8bXMIhJHg45mwgGEFl0_3vrtSM1J-gEPT5Ese6hmHSh0mQ';

mkdirSync(`${ROOT}/inter`, { recursive: true });
mkdirSync(`${ROOT}/roboto`, { recursive: true });
for (const name of ['Inter-Regular', 'Inter-Medium', 'Inter-Italic', 'Inter-MediumItalic']) {
  copyFileSync(`node_modules/inter-ui/web/${name}.woff2`, `${ROOT}/inter/${name}.woff2`);
}
copyFileSync(
  'node_modules/@fontsource/roboto-mono/files/roboto-mono-latin-400-normal.woff2',
  `${ROOT}/roboto/${MONO}.woff2`
);
