// What a type of panel is to the rest of the page.

import type {
  DataFrame,
  FieldConfigSource,
  GrafanaTheme2,
  InterpolateFunction,
  TimeRange,
} from '@grafana/data';
import type { ReactNode } from 'react';

import type { Annotation, Panel } from './document';
import type { FieldDefaults } from './fieldconfig';

/** All that there is to draw of a panel. */
export interface Content {
  panel: Panel;
  frames: DataFrame[];
  options: Record<string, any>;
  fieldConfig: FieldConfigSource;
  theme: GrafanaTheme2;
  timeRange: TimeRange;
  timeZone: string;
  replaceVariables: InterpolateFunction;
  annotations: Annotation[];
}

export interface Sized extends Content {
  width: number;
  height: number;
}

/** How much data a panel shows. */
export interface Shown {
  /** Of what has data: lines, values, bars, rows of states or columns. */
  names: string[];
  /** Of a table. */
  rows: number;
  /** Values that are numbers, or words that stand for one. */
  points: number;
  /** Points beyond a fixed end of the axis, which nobody sees. */
  beyond: number;
}

export interface PanelType {
  /** Turns a panel as older versions of Grafana saved it into what this version draws. */
  migrated?: (panel: Panel) => Panel;
  field: FieldDefaults;
  options: Record<string, any>;
  shown: (content: Content) => Shown;
  Body: (props: Sized) => ReactNode;
  /** Whether Body is written here, because Grafana's own is in no package. The panel says so. */
  standIn?: boolean;
}

export const NOTHING: Shown = { names: [], rows: 0, points: 0, beyond: 0 };

export function noValue({ fieldConfig }: Content): string {
  return fieldConfig.defaults.noValue ?? 'No data';
}
