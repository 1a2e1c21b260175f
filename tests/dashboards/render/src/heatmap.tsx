// Heatmap: a STAND-IN. Grafana's own is part of its core and in no npm package. This one draws given buckets
// (it does not calculate any) as SVG rectangles, with Grafana's colour schemes, axes and colour scale. All
// buckets are equally high, and there are no tooltips.

import {
  FieldType,
  getFieldDisplayName,
  getValueFormat,
  formattedValueToString,
  type DataFrame,
} from '@grafana/data';
import * as chromatic from 'd3-scale-chromatic';
import { measureText } from '@grafana/ui';

import { DrawingError } from './document';
import { Empty } from './empty';
import { parseSample } from './frames';
import { NOTHING, type Content, type PanelType, type Shown, type Sized } from './paneltype';
import { AXIS_HEIGHT, TimeAxis } from './timeaxis';

interface Bucket {
  name: string;
  /** Value by time. */
  values: Map<number, number>;
}

interface Cells {
  buckets: Bucket[];
  /** Whether a bucket's name stands at its upper edge, as Grafana writes a bound but for the layout `unknown`. */
  bounds: boolean;
  times: number[];
  step: number;
}

const LEGEND_HEIGHT = 38;

function cellsOf({ frames, options }: Content): Cells {
  if (options.calculate) {
    throw new DrawingError('a heatmap that calculates its buckets cannot be drawn here');
  }
  const fields = frames.flatMap((frame: DataFrame) => {
    const time = frame.fields.find(({ type }) => type === FieldType.time);
    return frame.fields
      .filter(({ type }) => type === FieldType.number)
      .map((field) => ({ field, frame, times: time?.values ?? [], interval: time?.config.interval }));
  });
  const filter = { le: options.filterValues?.le ?? -Infinity, ge: options.filterValues?.ge ?? Infinity };
  const buckets = fields.map(({ field, frame, times }) => ({
    name: getFieldDisplayName(field, frame, frames),
    values: new Map<number, number>(
      field.values
        .map((value, i): [number, number] => [times[i], value])
        .filter(([, v]) => Number.isFinite(v) && v > filter.le && v < filter.ge)
    ),
  }));
  // Series in a heatmap are in the order of their names where these are numbers.
  if (buckets.every(({ name }) => !Number.isNaN(parseSample(name)))) {
    buckets.sort((a, b) => parseSample(a.name) - parseSample(b.name));
  }
  if (options.yAxis?.reverse) {
    buckets.reverse();
  }
  const times = [...new Set(fields.flatMap((one) => one.times))].sort((a, b) => a - b);
  const gaps = times.slice(1).map((time, i) => time - times[i]);
  return {
    buckets,
    bounds: options.rowsFrame?.layout !== 'unknown' && fields.some(({ field }) => field.labels?.le !== undefined),
    times,
    step: Math.min(...fields.map(({ interval }) => interval ?? Infinity), ...gaps),
  };
}

function shown(content: Content): Shown {
  const { buckets } = cellsOf(content);
  const filled = buckets.filter(({ values }) => values.size > 0);
  return {
    ...NOTHING,
    names: filled.map(({ name }) => name),
    rows: filled.length,
    points: filled.reduce((sum, { values }) => sum + values.size, 0),
  };
}

/** A colour for a share of the scale. */
function colours({ options, theme }: Sized): (share: number) => string {
  const { mode, scheme, reverse, fill, exponent, steps } = options.color;
  const stepped = (share: number) => Math.round(share * (steps - 1)) / (steps - 1);
  if (mode === 'opacity') {
    const color = theme.visualization.getColorByName(fill);
    return (share) => `color-mix(in srgb, ${color} ${100 * stepped(share ** exponent)}%, transparent)`;
  }
  const interpolate = (chromatic as any)[
    `interpolate${scheme === 'Cubehelix' ? 'CubehelixDefault' : scheme}`
  ];
  if (!interpolate) {
    throw new DrawingError(`unknown colour scheme of a heatmap: ${scheme}`);
  }
  const turned = FROM_LIGHT.has(scheme) ? theme.isDark : FROM_DARK.has(scheme) ? theme.isLight : true;
  const inverted = Boolean(reverse) !== turned;
  return (share) => interpolate(inverted ? 1 - stepped(share) : stepped(share));
}

/** Schemes that begin with the lightest colour, or with the darkest: Grafana turns them to fit the theme. */
const FROM_LIGHT = new Set(
  'Blues Greens Greys Oranges Purples Reds BuGn BuPu GnBu OrRd PuBuGn PuBu PuRd RdPu YlGnBu YlGn YlOrBr YlOrRd'.split(
    ' '
  )
);
const FROM_DARK = new Set('Turbo Cividis Viridis Magma Inferno Plasma Warm Cool Cubehelix'.split(' '));

function Body(props: Sized) {
  const { options, theme, timeRange, width, height } = props;
  const { buckets, bounds, times, step } = cellsOf(props);
  if (!buckets.some(({ values }) => values.size > 0)) {
    return <Empty {...props} />;
  }
  const unit = (id: string | undefined, decimals?: number) => (value: number) =>
    formattedValueToString(getValueFormat(id ?? 'short')(value, decimals));
  const label = ({ name }: Bucket) => {
    const bound = parseSample(name);
    return Number.isFinite(bound) && options.yAxis?.unit
      ? unit(options.yAxis.unit, options.yAxis.decimals)(bound)
      : name;
  };
  const values = buckets.flatMap((bucket) => [...bucket.values.values()]);
  const [low, high] = [options.color.min ?? Math.min(...values), options.color.max ?? Math.max(...values)];
  const share = (value: number) => Math.min(Math.max(high > low ? (value - low) / (high - low) : 1, 0), 1);
  const colour = colours(props);

  const axis =
    options.yAxis?.axisPlacement === 'hidden'
      ? 0
      : Math.max(...buckets.map((one) => measureText(label(one), 12).width)) + 12;
  const bottom = height - AXIS_HEIGHT - (options.legend.show ? LEGEND_HEIGHT : 0);
  // Room above, where the label of the uppermost bound stands.
  const top = bounds ? 8 : 0;
  const room = (bottom - top) / buckets.length;
  const every = Math.ceil(14 / room);
  const [begin, end] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const x = (time: number) =>
    axis + Math.min(Math.max((time - begin) / (end - begin), 0), 1) * (width - axis);
  const gap = options.cellGap / 2;
  return (
    <svg
      width={width}
      height={height}
      style={{ overflow: 'hidden', display: 'block' }}
      fontFamily={theme.typography.fontFamily}
    >
      {buckets.map((bucket, i) => {
        const y = bottom - room * (i + 1);
        return (
          <g key={bucket.name}>
            {axis > 0 && (buckets.length - 1 - i) % every === 0 && (
              <text
                x={axis - 6}
                y={bounds ? y : y + room / 2}
                textAnchor="end"
                dominantBaseline="central"
                fontSize={12}
                fill={theme.colors.text.primary}
              >
                {label(bucket)}
              </text>
            )}
            {[...bucket.values]
              .filter(([time]) => time >= begin && time - step <= end)
              .map(([time, value]) => (
                <rect
                  key={time}
                  x={x(time - step) + gap}
                  y={y + gap}
                  width={Math.max(x(time) - x(time - step) - 2 * gap, 0)}
                  height={Math.max(room - 2 * gap, 0.5)}
                  fill={colour(share(value))}
                />
              ))}
          </g>
        );
      })}
      <TimeAxis
        {...{ timeRange, theme }}
        timeZone={props.timeZone}
        left={axis}
        width={width - axis}
        top={bottom}
      />
      {options.legend.show && (
        <g
          transform={`translate(${axis}, ${height - LEGEND_HEIGHT + 6})`}
          fontSize={12}
          fill={theme.colors.text.primary}
        >
          {Array.from({ length: 64 }, (_, i) => (
            <rect key={i} x={i * 4} width={4} height={8} fill={colour(i / 63)} />
          ))}
          <text y={24}>{unit(options.cellValues?.unit, options.cellValues?.decimals)(low)}</text>
          <text x={256} y={24} textAnchor="end">
            {unit(options.cellValues?.unit, options.cellValues?.decimals)(high)}
          </text>
        </g>
      )}
    </svg>
  );
}

export const heatmap: PanelType = {
  field: { custom: {} },
  options: {
    calculate: false,
    color: {
      mode: 'scheme',
      scheme: 'Oranges',
      fill: 'dark-orange',
      scale: 'exponential',
      exponent: 0.5,
      reverse: false,
      steps: 64,
    },
    filterValues: { le: 1e-9 },
    rowsFrame: { layout: 'auto' },
    yAxis: { axisPlacement: 'left' },
    cellGap: 1,
    legend: { show: true },
  },
  shown,
  Body,
  standIn: true,
};
