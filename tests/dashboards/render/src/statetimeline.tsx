// State timeline: a STAND-IN. Grafana's own is part of its core and in no npm package. This one reads the
// same options (value mappings and colours, merged values, values written into the bars, legend) and draws
// plain SVG rectangles; it has neither Grafana's pagination nor its tooltips.

import {
  FieldColorModeId,
  FieldType,
  applyNullInsertThreshold,
  formattedValueToString,
  getActiveThreshold,
  getFieldDisplayName,
  type DisplayValue,
  type Field,
} from '@grafana/data';
import { VizLayout, VizLegend, measureText } from '@grafana/ui';

import { Empty } from './empty';
import { NOTHING, type Content, type PanelType, type Shown, type Sized } from './paneltype';
import { AXIS_HEIGHT, TimeAxis } from './timeaxis';

interface State {
  from: number;
  to: number;
  display: DisplayValue;
}

interface Row {
  name: string;
  field: Field;
  states: State[];
}

/** What Grafana shows of a value that it merges by thresholds (`mergeThresholdValues`): no mapping, no word. */
function thresholdOf(field: Field, value: number): DisplayValue {
  const { value: from, color } = getActiveThreshold(value, field.config.thresholds?.steps);
  return { text: Number.isFinite(from) ? `${from}+` : '-Infinity+', numeric: value, color };
}

function statesOf(field: Field, times: number[], end: number, merge: boolean): State[] {
  const states: State[] = [];
  let last: State | undefined;
  const byThresholds = merge && field.config.color?.mode === FieldColorModeId.Thresholds;
  times.forEach((from, i) => {
    const value = field.values[i];
    const to = Math.min(times[i + 1] ?? end, end);
    if (value === null || value === undefined || Number.isNaN(value)) {
      last = undefined;
      return;
    }
    const display = byThresholds ? thresholdOf(field, value) : field.display!(value);
    if (merge && last && formattedValueToString(last.display) === formattedValueToString(display)) {
      last.to = to;
    } else {
      last = { from, to, display };
      states.push(last);
    }
  });
  return states.filter((state) => state.to > state.from);
}

function rowsOf({ frames, options, timeRange }: Content): Row[] {
  const [begin, end] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  return frames.flatMap((original) => {
    if (!original.fields.some(({ type }) => type === FieldType.time)) {
      return [];
    }
    const frame = applyNullInsertThreshold({
      frame: original,
      refFieldPseudoMin: begin,
      refFieldPseudoMax: end,
    });
    const times = frame.fields.find(({ type }) => type === FieldType.time)!.values;
    return frame.fields
      .filter(({ type, config }) => type !== FieldType.time && !config.custom?.hideFrom?.viz)
      .map((field) => ({
        name: getFieldDisplayName(field, original, frames),
        field,
        states: statesOf(field, times, end, options.mergeValues)
          .filter(({ to }) => to > begin)
          .map((state) => ({ ...state, from: Math.max(state.from, begin) })),
      }));
  });
}

function shown(content: Content): Shown {
  const rows = rowsOf(content).filter(({ states }) => states.length > 0);
  return {
    ...NOTHING,
    names: rows.map(({ name }) => name),
    rows: rows.length,
    points: rows.flatMap(({ states }) => states).length,
  };
}

function legendItems(rows: Row[]) {
  const items = new Map<string, string>();
  for (const { display } of rows.flatMap(({ states }) => states)) {
    items.set(formattedValueToString(display), display.color ?? 'gray');
  }
  return [...items].map(([label, color]) => ({ label, color, yAxis: 1 }));
}

function Body(props: Sized) {
  const { options, theme, timeRange, width, height } = props;
  const rows = rowsOf(props);
  if (rows.length === 0) {
    return <Empty {...props} />;
  }
  const legend = options.legend.showLegend && (
    <VizLayout.Legend placement={options.legend.placement}>
      <VizLegend
        placement={options.legend.placement}
        displayMode={options.legend.displayMode}
        items={legendItems(rows)}
      />
    </VizLayout.Legend>
  );
  const [begin, end] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  return (
    <VizLayout width={width} height={height} legend={legend || null}>
      {(w: number, h: number) => {
        const left = Math.min(Math.max(...rows.map(({ name }) => measureText(name, 12).width)) + 16, w * 0.5);
        const room = (h - AXIS_HEIGHT) / rows.length;
        const bar = room * options.rowHeight;
        const x = (time: number) => left + ((time - begin) / (end - begin)) * (w - left);
        return (
          <svg
            width={w}
            height={h}
            style={{ overflow: 'hidden', display: 'block' }}
            fontFamily={theme.typography.fontFamily}
          >
            {rows.map(({ name, states, field }, i) => {
              const middle = room * (i + 0.5);
              const opacity = (field.config.custom?.fillOpacity ?? 70) / 100;
              return (
                <g key={i}>
                  <text
                    x={left - 8}
                    y={middle}
                    textAnchor="end"
                    dominantBaseline="central"
                    fontSize={12}
                    fill={theme.colors.text.primary}
                  >
                    {name}
                  </text>
                  {states.map(({ from, to, display }) => (
                    <g key={from}>
                      <rect
                        x={x(from)}
                        y={middle - bar / 2}
                        width={x(to) - x(from)}
                        height={bar}
                        fill={display.color}
                        fillOpacity={opacity}
                        stroke={display.color}
                        strokeWidth={field.config.custom?.lineWidth ?? 0}
                      />
                      <Word
                        {...{ options, theme, display }}
                        from={x(from)}
                        to={x(to)}
                        y={middle}
                      />
                    </g>
                  ))}
                </g>
              );
            })}
            <TimeAxis
              {...{ timeRange, theme, left }}
              timeZone={props.timeZone}
              width={w - left}
              top={h - AXIS_HEIGHT}
            />
          </svg>
        );
      }}
    </VizLayout>
  );
}

/** Pixels for each letter, of which Grafana leaves out what does not fit (drawPoints of timeline.ts). */
const LETTER = 9.5;

/** What a bar says, as much as there is room for. */
function Word({ options, theme, display, from, to, y }: any) {
  const letters = Math.floor((to - from) / LETTER);
  const word = formattedValueToString(display).slice(0, letters);
  if (options.showValue === 'never' || (options.showValue === 'auto' && letters < 2)) {
    return null;
  }
  const place: Record<string, [number, string]> = {
    left: [from + 4, 'start'],
    center: [(from + to) / 2, 'middle'],
    right: [to - 4, 'end'],
  };
  const [x, anchor] = place[options.alignValue];
  return (
    <text
      x={x}
      y={y}
      textAnchor={anchor as any}
      dominantBaseline="central"
      fontSize={12}
      fill={theme.colors.getContrastText(display.color, 3)}
    >
      {word}
    </text>
  );
}

export const stateTimeline: PanelType = {
  field: {
    color: { mode: 'continuous-GrYlRd' },
    custom: { lineWidth: 0, fillOpacity: 70, spanNulls: false },
  },
  options: {
    mergeValues: true,
    showValue: 'auto',
    alignValue: 'left',
    rowHeight: 0.9,
    legend: { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] },
  },
  shown,
  Body,
  standIn: true,
};
