// Data frames from Prometheus's answers, as Grafana's Prometheus data source makes them: names from
// `legendFormat`, one table for each query with `format: table`, buckets for `format: heatmap`.

import {
  DataFrameType,
  FieldType,
  sortDataFrame,
  type DataFrame,
  type Field,
  type Labels,
} from '@grafana/data';

import { DrawingError, type Answer, type Target } from './document';

interface Series {
  labels: Labels;
  times: number[];
  values: number[];
}

const INFINITY = /^[+-]?inf(inity)?$/i;

export function parseSample(text: string): number {
  if (INFINITY.test(text)) {
    return text.startsWith('-') ? -Infinity : Infinity;
  }
  return parseFloat(text);
}

function seriesOf(answer: Answer): Series[] {
  switch (answer.resultType) {
    case 'matrix':
      return answer.result.map(({ metric, values }) => ({
        labels: metric,
        times: values.map(([time]) => Math.round(time * 1000)),
        values: values.map(([, value]) => parseSample(value)),
      }));
    case 'vector':
      return answer.result.map(({ metric, value: [time, value] }) => ({
        labels: metric,
        times: [Math.round(time * 1000)],
        values: [parseSample(value)],
      }));
    case 'scalar':
      return [
        { labels: {}, times: [Math.round(answer.result[0] * 1000)], values: [parseSample(answer.result[1])] },
      ];
    default:
      throw new DrawingError(`unknown type of result: ${(answer as { resultType?: string })?.resultType}`);
  }
}

/** The smallest distance between two samples: the step, unless no two neighbours have a value. */
function stepOf(all: Series[]): number | undefined {
  let step = Infinity;
  for (const { times } of all) {
    for (let i = 1; i < times.length; i++) {
      step = Math.min(step, times[i] - times[i - 1]);
    }
  }
  return Number.isFinite(step) ? step : undefined;
}

/** What Grafana calls a series without a legend: the metric as PromQL writes it. */
function metricName({ __name__: name = '', ...labels }: Labels): string {
  const inside = Object.keys(labels)
    .sort()
    .map((label) => `${label}="${labels[label]}"`)
    .join(', ');
  return inside ? `${name}{${inside}}` : name;
}

/** The legend of a series; undefined where Grafana derives it from what differs between the series. */
export function legend(target: Target, labels: Labels): string | undefined {
  const { legendFormat: format = '', expr = '' } = target;
  if (format === '__auto') {
    return Object.keys(labels).length > 0 ? undefined : expr;
  }
  if (format) {
    return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? '');
  }
  return metricName(labels) || expr;
}

function timeField(values: number[], interval?: number): Field {
  return { name: 'Time', type: FieldType.time, config: interval ? { interval } : {}, values };
}

function timeSeries(target: Target, answer: Answer, step?: number): DataFrame[] {
  const all = seriesOf(answer);
  const interval = answer.resultType === 'matrix' ? (step ?? stepOf(all)) : undefined;
  return all.map(({ labels, times, values }) => {
    const name = legend(target, labels);
    return {
      refId: target.refId,
      name,
      length: times.length,
      fields: [
        timeField(times, interval),
        { name: 'Value', type: FieldType.number, labels, config: { displayNameFromDS: name }, values },
      ],
    };
  });
}

function table(target: Target, answer: Answer, several: boolean, step?: number): DataFrame {
  const all = seriesOf(answer);
  if (all.length === 0 && !several) {
    return { refId: target.refId, length: 0, fields: [] };
  }
  const names: string[] = [];
  for (const { labels } of all) {
    names.push(
      ...Object.keys(labels)
        .sort()
        .filter((label) => !names.includes(label))
    );
  }
  const rows = all.flatMap(({ labels, times, values }) =>
    times.map((time, i) => ({ labels, time, value: values[i] }))
  );
  const frame: DataFrame = {
    refId: target.refId,
    length: rows.length,
    fields: [
      timeField(
        rows.map(({ time }) => time),
        answer.resultType === 'matrix' ? (step ?? stepOf(all)) : undefined
      ),
      ...names.map((name) => ({
        name,
        type: FieldType.string,
        config: { filterable: true },
        values: rows.map(({ labels }) => labels[name] ?? ''),
      })),
      {
        name: several ? `Value #${target.refId}` : 'Value',
        type: FieldType.number,
        config: {},
        values: rows.map(({ value }) => value),
      },
    ],
  };
  return rows.some(({ time }, i) => i > 0 && time < rows[i - 1].time) ? sortDataFrame(frame, 0) : frame;
}

/** Buckets by their upper bound, no longer cumulative; one frame for each set of other labels. */
function heatmap(target: Target, answer: Answer, step?: number): DataFrame[] {
  const all = seriesOf(answer);
  const interval = step ?? stepOf(all);
  const groups = new Map<string, Series[]>();
  for (const one of all) {
    const { le, ...others } = one.labels;
    if (le === undefined) {
      throw new DrawingError(`${target.refId}: a heatmap needs the label le`);
    }
    const key = JSON.stringify(Object.entries(others).sort());
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups.values()].map((group) => {
    const buckets = group.toSorted((a, b) => parseSample(a.labels.le) - parseSample(b.labels.le));
    const times = [...new Set(buckets.flatMap((bucket) => bucket.times))].sort((a, b) => a - b);
    const cumulative = buckets.map((bucket) => {
      const byTime = new Map(bucket.times.map((time, i) => [time, bucket.values[i]]));
      return times.map((time) => byTime.get(time));
    });
    return {
      refId: target.refId,
      length: times.length,
      meta: { type: DataFrameType.HeatmapRows },
      fields: [
        timeField(times, interval),
        ...buckets.map(({ labels }, i) => ({
          name: labels.le,
          type: FieldType.number,
          labels,
          config: { displayNameFromDS: labels.le },
          values: cumulative[i].map((value, j) => {
            const below = i > 0 ? (cumulative[i - 1][j] ?? 0) : 0;
            return value === undefined ? null : value - below < 1e-9 ? 0 : value - below;
          }),
        })),
      ],
    };
  });
}

/** The frames of a panel, in the order in which Grafana has them: series, then tables, then heatmaps. */
export function framesOf(
  targets: Target[],
  answers: Record<string, Answer>,
  steps: Record<string, number> = {}
): DataFrame[] {
  const asked = targets.filter(({ hide }) => !hide);
  for (const { refId } of asked) {
    if (!answers[refId]) {
      throw new DrawingError(`there is no result for ${refId}`);
    }
  }
  const tables = asked.filter(({ format }) => format === 'table');
  const heatmaps = asked.filter(({ format }) => format === 'heatmap');
  return [
    ...asked
      .filter(({ format = 'time_series' }) => format === 'time_series')
      .flatMap((target) => {
        const frames = timeSeries(target, answers[target.refId], steps[target.refId]);
        // Grafana keeps an empty frame for a query without a result.
        return frames.length > 0 ? frames : [{ refId: target.refId, length: 0, fields: [] }];
      }),
    ...tables.map((target) => table(target, answers[target.refId], tables.length > 1, steps[target.refId])),
    ...heatmaps.flatMap((target) => heatmap(target, answers[target.refId], steps[target.refId])),
    ...asked
      .filter(({ format = 'time_series' }) => !['time_series', 'table', 'heatmap'].includes(format))
      .map(({ refId, format }): DataFrame => {
        throw new DrawingError(`${refId}: unknown format of a query: ${format}`);
      }),
  ];
}
