// Time series: TimeSeries, with annotations on top.

import {
  FieldType,
  applyNullInsertThreshold,
  getDisplayProcessor,
  getFieldDisplayName,
  nullToValue,
  type DataFrame,
} from '@grafana/data';
import { TimeSeries } from '@grafana/ui';

import { Annotations } from './annotations';
import { Empty } from './empty';
import { NOTHING, type Content, type PanelType, type Shown, type Sized } from './paneltype';

/** What can be drawn: frames with a time and a number; what is missing or not finite becomes a gap. */
function graphable({ frames, theme, timeRange }: Content): DataFrame[] {
  let index = 0;
  return frames
    .filter(({ fields }) =>
      [FieldType.time, FieldType.number].every((type) => fields.some((field) => field.type === type))
    )
    .map((frame) =>
      nullToValue(
        applyNullInsertThreshold({
          frame,
          refFieldPseudoMin: timeRange.from.valueOf(),
          refFieldPseudoMax: timeRange.to.valueOf(),
        })
      )
    )
    .map((frame) => ({
      ...frame,
      fields: frame.fields.map((field) => {
        if (field.type !== FieldType.number) {
          return field;
        }
        const values = field.values.map((value) => (Number.isFinite(value) ? value : null));
        const numbered = { ...field, values, state: { ...field.state, seriesIndex: index++ } };
        return { ...numbered, display: getDisplayProcessor({ field: numbered, theme }) };
      }),
    }));
}

export function shownPoints(content: Content): Shown {
  const shown: Shown = { ...NOTHING, names: [] };
  const frames = graphable(content);
  for (const frame of frames) {
    const times = frame.fields.find(({ type }) => type === FieldType.time)!.values;
    for (const field of frame.fields) {
      const { type, values, config } = field;
      const within = (_: unknown, i: number) =>
        times[i] >= content.timeRange.from.valueOf() && times[i] <= content.timeRange.to.valueOf();
      const points =
        type === FieldType.number && !config.custom?.hideFrom?.viz
          ? values.filter(within).filter((v) => v !== null)
          : [];
      if (points.length > 0) {
        shown.names.push(getFieldDisplayName(field, frame, frames));
      }
      shown.points += points.length;
      shown.beyond += points.filter(
        (v) => v > (config.max ?? Infinity) || v < (config.min ?? -Infinity)
      ).length;
    }
  }
  return shown;
}

function Body(props: Sized) {
  const frames = graphable(props);
  if (frames.length === 0) {
    return <Empty {...props} />;
  }
  return (
    <TimeSeries
      frames={frames}
      structureRev={1}
      timeRange={props.timeRange}
      timeZone={[props.timeZone]}
      width={props.width}
      height={props.height}
      legend={props.options.legend}
      options={props.options}
      {...({} as any)}
    >
      {(config: any) => <Annotations config={config} annotations={props.annotations} theme={props.theme} />}
    </TimeSeries>
  );
}

export const timeseries: PanelType = {
  field: {
    color: { mode: 'palette-classic' },
    custom: {
      drawStyle: 'line',
      lineInterpolation: 'linear',
      lineWidth: 1,
      fillOpacity: 0,
      gradientMode: 'none',
      barAlignment: 0,
      barWidthFactor: 0.6,
      stacking: { mode: 'none', group: 'A' },
      axisPlacement: 'auto',
      axisLabel: '',
      axisColorMode: 'text',
      axisBorderShow: false,
      axisCenteredZero: false,
      scaleDistribution: { type: 'linear' },
      spanNulls: false,
      insertNulls: false,
      showPoints: 'auto',
      pointSize: 5,
      hideFrom: { tooltip: false, viz: false, legend: false },
      thresholdsStyle: { mode: 'off' },
    },
  },
  options: {
    legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
    tooltip: { mode: 'single', sort: 'none' },
  },
  shown: shownPoints,
  Body,
};
