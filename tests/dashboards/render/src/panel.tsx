// One panel: its content is prepared first, so that what is wrong with it is known before anything is drawn.

import { LoadingState, dateTime, type GrafanaTheme2, type TimeRange } from '@grafana/data';
import { PanelChrome } from '@grafana/ui';
import { merge } from 'lodash';
import { Component, type ReactNode } from 'react';

import { DrawingError, type Document, type Panel } from './document';
import { completed, configured } from './fieldconfig';
import { framesOf } from './frames';
import type { Box } from './grid';
import { NOTHING, type Content, type PanelType, type Shown } from './paneltype';
import { PANEL_TYPES } from './paneltypes';
import { transform } from './transformations';
import { interpolator } from './variables';

export interface Prepared {
  panel: Panel;
  title: string;
  description: string;
  type?: PanelType;
  content?: Content;
  shown: Shown;
  /** What is wrong. */
  errors: string[];
}

export function timeRangeOf({ from, to }: Document): TimeRange {
  const range = { from: dateTime(from * 1000), to: dateTime(to * 1000) };
  return { ...range, raw: range };
}

export async function prepare(panel: Panel, document: Document, theme: GrafanaTheme2): Promise<Prepared> {
  const unknown = new Set<string>();
  const replaceVariables = interpolator(document, (variable) => unknown.add(variable));
  const prepared: Prepared = {
    panel,
    title: replaceVariables(panel.title ?? ''),
    description: replaceVariables(panel.description ?? ''),
    shown: NOTHING,
    errors: [],
  };
  if (panel.type === 'row') {
    return prepared;
  }
  try {
    const type = PANEL_TYPES[panel.type];
    if (!type) {
      throw new DrawingError(`unknown type of panel: ${panel.type}`);
    }
    const own = type.migrated?.(panel) ?? panel;
    const timeZone = document.timeZone ?? 'utc';
    const fieldConfig = completed(own.fieldConfig, type.field);
    const answers = document.results[panel.id] ?? {};
    const raw = framesOf(panel.targets ?? [], answers, document.steps?.[panel.id]);
    const frames = await transform(raw, panel.transformations, replaceVariables);
    const content: Content = {
      panel,
      frames: configured(frames, fieldConfig, theme, timeZone, replaceVariables),
      options: merge({}, type.options, own.options),
      fieldConfig,
      theme,
      timeRange: timeRangeOf(document),
      timeZone,
      replaceVariables,
      annotations: document.annotations ?? [],
    };
    for (const frame of content.frames) {
      // Links are made when somebody looks; here somebody does, at the first row of each column.
      frame.length > 0 && frame.fields.forEach((field) => field.getLinks?.({ valueRowIndex: 0 }));
    }
    Object.assign(prepared, { type, content, shown: type.shown(content) });
  } catch (error) {
    prepared.errors.push(messageOf(error));
  }
  prepared.errors.push(...[...unknown].map((variable) => `unknown variable: ${variable}`));
  return prepared;
}

export function messageOf(error: unknown): string {
  return error instanceof DrawingError
    ? error.message
    : error instanceof Error
      ? (error.stack ?? error.message)
      : String(error);
}

/** Keeps an error inside its panel, and tells of it. */
class Fence extends Component<
  { children: ReactNode; tell: (message: string) => void },
  { message?: string }
> {
  state: { message?: string } = {};

  static getDerivedStateFromError(error: unknown) {
    return { message: messageOf(error) };
  }

  componentDidCatch(error: unknown) {
    this.props.tell(messageOf(error));
  }

  render() {
    return this.state.message ? <pre className="panel-error">{this.state.message}</pre> : this.props.children;
  }
}

export function PanelFrame({ prepared, box }: { prepared: Prepared; box: Box }) {
  const { panel, title, description, type, content, shown, errors } = prepared;
  if (panel.type === 'row') {
    return <h3 className="dashboard-row">{title}</h3>;
  }
  return (
    <PanelChrome
      title={title}
      description={description || undefined}
      width={box.width}
      height={box.height}
      // As Grafana does it: a panel without a title gives its header's room to the body.
      hoverHeader={!title}
      displayMode={panel.transparent ? 'transparent' : 'default'}
      loadingState={LoadingState.Done}
      titleItems={
        type?.standIn && shown.points > 0 && <span className="panel-stand-in">drawn by a stand-in</span>
      }
    >
      {(width: number, height: number) => (
        <Fence tell={(message) => errors.push(message)}>
          {type && content ? (
            <type.Body {...content} width={width} height={height} />
          ) : (
            <pre className="panel-error">{errors.join('\n')}</pre>
          )}
        </Fence>
      )}
    </PanelChrome>
  );
}
