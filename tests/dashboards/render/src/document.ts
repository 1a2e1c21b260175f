// What the page is given: a dashboard as Grafana stores it, and what Prometheus answered to its queries.

import type { DataTransformerConfig, FieldConfigSource } from '@grafana/data';

export interface GridPos {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Target {
  refId: string;
  expr?: string;
  legendFormat?: string;
  format?: string;
  hide?: boolean;
}

export interface Panel {
  id: number;
  type: string;
  title?: string;
  description?: string;
  transparent?: boolean;
  gridPos: GridPos;
  targets?: Target[];
  transformations?: DataTransformerConfig[];
  fieldConfig?: FieldConfigSource;
  options?: Record<string, any>;
  links?: Array<{ title?: string; url?: string; targetBlank?: boolean }>;
  panels?: Panel[];
  collapsed?: boolean;
}

export interface Variable {
  name: string;
  label?: string;
  type?: string;
  hide?: number;
  includeAll?: boolean;
  allValue?: string | null;
  current?: { text?: string | string[]; value?: string | string[] };
}

export interface Link {
  title?: string;
  type?: string;
  url?: string;
  icon?: string;
}

export interface Dashboard {
  uid?: string;
  title: string;
  panels: Panel[];
  templating?: { list: Variable[] };
  links?: Link[];
  annotations?: { list: Array<{ name: string; iconColor?: string; hide?: boolean }> };
}

type Sample = [number, string];

/** The `data` of an answer of Prometheus's HTTP API. */
export type Answer =
  | { resultType: 'matrix'; result: Array<{ metric: Record<string, string>; values: Sample[] }> }
  | { resultType: 'vector'; result: Array<{ metric: Record<string, string>; value: Sample }> }
  | { resultType: 'scalar'; result: Sample };

export interface Annotation {
  name: string;
  iconColor?: string;
  /** Milliseconds between two samples. */
  step?: number;
  data: Answer;
}

export interface Document {
  dashboard: Dashboard;
  /** Of the window, in pixels. */
  width: number;
  theme: 'dark' | 'light';
  /** Unix times in seconds. */
  from: number;
  to: number;
  timeZone?: string;
  variables?: Record<string, string | string[]>;
  /** By the panel's id and the target's refId. */
  results: Record<string, Record<string, Answer>>;
  /** Milliseconds between two points, likewise; what the samples say where it is not given. */
  steps?: Record<string, Record<string, number>>;
  annotations?: Annotation[];
}

/** A dashboard or a document that cannot be drawn as it is. */
export class DrawingError extends Error {}
