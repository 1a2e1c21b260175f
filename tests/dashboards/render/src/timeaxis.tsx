// The time axis of the stand-ins, in SVG.

import { dateTimeFormat, type GrafanaTheme2, type TimeRange } from '@grafana/data';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR),
  ...[1, 2, 7, 14, 30].map((n) => n * DAY),
];

export const AXIS_HEIGHT = 24;

interface Props {
  timeRange: TimeRange;
  timeZone: string;
  theme: GrafanaTheme2;
  left: number;
  width: number;
  top: number;
}

export function TimeAxis({ timeRange, timeZone, theme, left, width, top }: Props) {
  const [from, to] = [timeRange.from.valueOf(), timeRange.to.valueOf()];
  const step = STEPS.find((one) => ((to - from) / one) * 80 <= width) ?? STEPS.at(-1)!;
  const format = step >= DAY ? 'MM/DD' : step >= MINUTE ? 'HH:mm' : 'HH:mm:ss';
  const ticks: number[] = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
    ticks.push(tick);
  }
  return (
    <g fill={theme.colors.text.primary} fontSize={12} textAnchor="middle">
      {ticks
        .map((tick) => ({ tick, x: left + ((tick - from) / (to - from)) * width }))
        .filter(({ x }) => x >= left + 16 && x <= left + width - 16)
        .map(({ tick, x }) => (
          <text key={tick} x={x} y={top + 16}>
            {dateTimeFormat(tick, { format, timeZone })}
          </text>
        ))}
    </g>
  );
}
