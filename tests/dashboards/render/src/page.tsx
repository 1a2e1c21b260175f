// `window.draw(document)` draws a dashboard and resolves to what there is to see of it, also `window.report`.

import './page.css';

import { EventBusSrv, ThemeContext, createTheme, type GrafanaTheme2 } from '@grafana/data';
import { GlobalStyles, PanelContextProvider, PortalContainer } from '@grafana/ui';
import type { ReactNode } from 'react';
import { flushSync } from 'react-dom';
import { createRoot, type Root } from 'react-dom/client';

import { DashboardPage } from './dashboard';
import type { Document, Panel } from './document';
import { prepare } from './panel';
import { inspect, type Report } from './report';
import { registerTransformers } from './transformations';

declare global {
  interface Window {
    draw: (given: Document) => Promise<Report>;
    settled: () => Promise<void>;
    report?: Report;
    grafanaBootData?: unknown;
  }
}

const errors: string[] = [];
window.addEventListener('error', ({ message, error }) => errors.push(error?.stack ?? message));
window.addEventListener('unhandledrejection', ({ reason }) => errors.push(reason?.stack ?? String(reason)));

registerTransformers();

/** The panels of folded rows are not drawn, as in Grafana. */
function drawn(panels: Panel[]): Panel[] {
  return panels.flatMap((panel) => [
    panel,
    ...(panel.type === 'row' && !panel.collapsed ? (panel.panels ?? []) : []),
  ]);
}

/** Frames without a change after which a page is taken to be done. */
const QUIET = 8;
/** Frames within which it must do so: counted, for a busy machine draws fewer of them in a second. */
const FRAMES = 600;

/** Waits until the page looks the same for a while. */
async function settled(): Promise<void> {
  await document.fonts.ready;
  let last = '';
  for (let frame = 0, quiet = 0; quiet < QUIET; frame++) {
    await new Promise(requestAnimationFrame);
    const now = document.body.innerHTML;
    quiet = now === last ? quiet + 1 : 0;
    last = now;
    if (frame === FRAMES) {
      errors.push('the page does not come to rest');
      return;
    }
  }
}

window.settled = settled;

const FONTS = ['400 12px Inter', '500 12px Inter', 'italic 400 12px Inter', '400 12px "Roboto Mono"'];

function Themed({ theme, children }: { theme: GrafanaTheme2; children: ReactNode }) {
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {children}
    </ThemeContext.Provider>
  );
}

let root: Root | undefined;

window.draw = async (given) => {
  errors.length = 0;
  const theme = createTheme({ colors: { mode: given.theme } });
  document.title = given.dashboard.title;
  document.documentElement.lang = 'en';
  document.documentElement.style.colorScheme = given.theme;
  const all = await Promise.all(drawn(given.dashboard.panels).map((panel) => prepare(panel, given, theme)));
  root?.unmount();
  root = createRoot(document.getElementById('page')!, {
    onUncaughtError: (error) => errors.push(String((error as Error).stack ?? error)),
  });
  // Grafana measures texts before it draws them: the fonts, which its style sheet names, must be there first.
  flushSync(() => root!.render(<Themed theme={theme}>{null}</Themed>));
  await Promise.all(FONTS.map((font) => document.fonts.load(font)));
  root.render(
    <Themed theme={theme}>
      <PanelContextProvider value={{ eventsScope: 'dashboard', eventBus: new EventBusSrv() }}>
        <DashboardPage document={given} all={all} theme={theme} />
      </PanelContextProvider>
      <PortalContainer />
    </Themed>
  );
  await settled();
  window.report = inspect(all, errors);
  return window.report;
};
