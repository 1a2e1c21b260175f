// The whole dashboard: a bar with its title, its variables and its links, and below it the grid of panels.

import { dateTimeFormat, type GrafanaTheme2 } from '@grafana/data';
import { Icon, LinkButton } from '@grafana/ui';

import type { Document, Variable } from './document';
import { PADDING, place } from './grid';
import { PanelFrame, type Prepared } from './panel';
import { shownValue, valuesOf } from './variables';

/** Values of `hide` of a variable. */
const HIDDEN_LABEL = 1;
const HIDDEN = 2;

function Control({ variable, value }: { variable: Variable; value: string }) {
  return (
    <span className="dashboard-variable" data-variable={variable.name}>
      {variable.hide !== HIDDEN_LABEL && <label>{variable.label || variable.name}</label>}
      <span>{value}</span>
    </span>
  );
}

function Heading({ document }: { document: Document }) {
  const { dashboard, from, to, timeZone = 'utc' } = document;
  const values = valuesOf(document);
  const time = (seconds: number) => dateTimeFormat(seconds * 1000, { timeZone });
  return (
    <header className="dashboard-heading">
      <div>
        <h1>{dashboard.title}</h1>
        <span className="dashboard-time">
          <Icon name="clock-nine" /> {time(from)} to {time(to)}
        </span>
      </div>
      <div>
        {(dashboard.templating?.list ?? [])
          .filter(({ hide }) => hide !== HIDDEN)
          .map((variable) => (
            <Control
              key={variable.name}
              variable={variable}
              value={shownValue(values.get(variable.name) ?? '')}
            />
          ))}
        {(document.annotations ?? []).map(({ name, iconColor }) => (
          <span key={name} className="dashboard-annotation" style={{ borderColor: iconColor }}>
            {name}
          </span>
        ))}
        <span className="dashboard-links">
          {(dashboard.links ?? []).map(({ title, url }, i) => (
            <LinkButton key={i} size="sm" variant="secondary" fill="outline" href={url || '#'}>
              {title || url}
            </LinkButton>
          ))}
        </span>
      </div>
    </header>
  );
}

export function DashboardPage({
  document,
  all,
  theme,
}: {
  document: Document;
  all: Prepared[];
  theme: GrafanaTheme2;
}) {
  const boxes = all.map(({ panel }) => place(panel.gridPos, document.width - 2 * PADDING));
  const height = Math.max(0, ...boxes.map((box) => box.y + box.height));
  return (
    <main style={{ background: theme.colors.background.canvas, padding: PADDING, minHeight: '100vh' }}>
      <Heading document={document} />
      <div className="dashboard-grid" style={{ position: 'relative', height }}>
        {all.map((prepared, i) => (
          <div
            key={i}
            className="dashboard-item"
            data-panel={i}
            style={{
              position: 'absolute',
              left: boxes[i].x,
              top: boxes[i].y,
              width: boxes[i].width,
              height: boxes[i].height,
            }}
          >
            <PanelFrame prepared={prepared} box={boxes[i]} />
          </div>
        ))}
      </div>
    </main>
  );
}
