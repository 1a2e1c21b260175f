// Annotations of a dashboard over time series, as Grafana draws them: a dashed line where one begins, and
// where it lasts a veil up to another line. Samples that follow each other within a step are one, as in its
// Prometheus data source.

import { colorManipulator, type GrafanaTheme2 } from '@grafana/data';
import { useLayoutEffect } from 'react';

import type { Annotation } from './document';
import { parseSample } from './frames';

interface Span {
  from: number;
  to: number;
}

/** Milliseconds; Grafana's default of an annotation's query. */
const STEP = 60_000;
/** Of the mark at the time axis, in pixels. */
const MARK = 5;

function spans({ data, step = STEP }: Annotation): Span[] {
  if (data.resultType !== 'matrix') {
    return [];
  }
  const found: Span[] = [];
  for (const { values } of data.result) {
    let span: Span | undefined;
    for (const [seconds] of values.filter(([, value]) => parseSample(value) > 0)) {
      const time = seconds * 1000;
      if (span && time - span.to <= step) {
        span.to = time;
      } else {
        span = { from: time, to: time };
        found.push(span);
      }
    }
  }
  return found;
}

interface Props {
  config: any;
  annotations: Annotation[];
  theme: GrafanaTheme2;
}

export function Annotations({ config, annotations, theme }: Props) {
  useLayoutEffect(() => {
    config.addHook('draw', (plot: any) => {
      const { ctx, bbox } = plot;
      const mark = MARK * devicePixelRatio;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height + mark);
      ctx.clip();
      ctx.lineWidth = 2;
      ctx.setLineDash([5, 5]);
      for (const annotation of annotations) {
        const color = theme.visualization.getColorByName(annotation.iconColor ?? 'red');
        ctx.strokeStyle = color;
        for (const { from, to } of spans(annotation)) {
          const [left, right] = [from, to].map((time) => plot.valToPos(time, 'x', true));
          for (const x of to > from ? [left, right] : [left]) {
            ctx.beginPath();
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
          }
          ctx.fillStyle = colorManipulator.alpha(color, 0.1);
          ctx.fillRect(left, bbox.top, right - left, bbox.height);
          ctx.fillStyle = color;
          ctx.fillRect(
            left - (to > from ? 0 : mark / 2),
            bbox.top + bbox.height,
            Math.max(right - left, mark),
            mark
          );
        }
      }
      ctx.restore();
    });
  }, [config, annotations]);
  return null;
}
