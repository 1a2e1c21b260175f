// Where panels stand: Grafana's grid of 24 columns.

import type { GridPos } from './document';

export const COLUMNS = 24;
export const PADDING = 16;
const CELL_HEIGHT = 30;
const GAP = 8;

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export function place({ x, y, w, h }: GridPos, width: number): Box {
  const column = (width - GAP * (COLUMNS - 1)) / COLUMNS;
  return {
    x: Math.round((column + GAP) * x),
    y: (CELL_HEIGHT + GAP) * y,
    width: Math.round(column * w + GAP * (w - 1)),
    height: CELL_HEIGHT * h + GAP * (h - 1),
  };
}
