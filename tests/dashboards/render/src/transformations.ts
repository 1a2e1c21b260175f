// Transformations of frames, by @grafana/data's own transformers. The few that live in Grafana's core are
// not to be had here; Grafana ignores what it does not know, a test must not.

import {
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
  type DataFrame,
  type DataTransformerConfig,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

import { DrawingError } from './document';

export function registerTransformers() {
  const all = Object.values(standardTransformers).filter(
    (one, i, list) => list.findIndex(({ id }) => id === one.id) === i
  );
  standardTransformersRegistry.setInit(
    () =>
      all.map((transformation) => ({ ...transformation, transformation: async () => transformation })) as any
  );
}

export async function transform(
  frames: DataFrame[],
  transformations: DataTransformerConfig[] = [],
  interpolate: (text: string) => string
): Promise<DataFrame[]> {
  for (const { id } of transformations) {
    if (!standardTransformersRegistry.getIfExists(id)) {
      throw new DrawingError(`unknown transformation: ${id}`);
    }
  }
  return firstValueFrom(transformDataFrame(transformations, frames, { interpolate }));
}
