// The types of panels that can be drawn.

import { heatmap } from './heatmap';
import type { PanelType } from './paneltype';
import { stat } from './stat';
import { stateTimeline } from './statetimeline';
import { table } from './table';
import { text } from './text';
import { timeseries } from './timeseries';

export const PANEL_TYPES: Record<string, PanelType> = {
  heatmap,
  stat,
  'state-timeline': stateTimeline,
  table,
  text,
  timeseries,
};
