// Field configuration as Grafana applies it. `applyFieldOverrides` of @grafana/data does the work, but by a
// registry of properties which Grafana's core fills: here it is filled with the standard properties, and with
// the custom ones of a panel, as far as the panel mentions them.

import {
  FieldConfigOptionsRegistry,
  FieldType,
  ThresholdsMode,
  applyFieldOverrides,
  cacheFieldDisplayNames,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  fieldMatchers,
  identityOverrideProcessor,
  numberOverrideProcessor,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
  type DataFrame,
  type Field,
  type FieldConfig,
  type FieldConfigSource,
  type GrafanaTheme2,
  type InterpolateFunction,
} from '@grafana/data';
import { cloneDeep, merge } from 'lodash';

import { DrawingError } from './document';

type Process = (value: any, context: any, settings?: any) => any;

const always = () => true;
const numeric = (field: Field) => field.type === FieldType.number;

const STANDARD: Record<
  string,
  { process: Process; shouldApply?: (field: Field) => boolean; settings?: object }
> = {
  displayName: { process: displayNameOverrideProcessor, settings: { expandTemplateVars: true } },
  unit: { process: unitOverrideProcessor },
  min: { process: numberOverrideProcessor, shouldApply: numeric },
  max: { process: numberOverrideProcessor, shouldApply: numeric },
  fieldMinMax: { process: identityOverrideProcessor, shouldApply: numeric },
  decimals: { process: numberOverrideProcessor, shouldApply: numeric },
  color: { process: identityOverrideProcessor },
  noValue: { process: stringOverrideProcessor },
  links: { process: dataLinksOverrideProcessor },
  mappings: {
    process: valueMappingsOverrideProcessor,
    shouldApply: (field) => field.type !== FieldType.time,
  },
  thresholds: { process: thresholdsOverrideProcessor },
  filterable: { process: identityOverrideProcessor },
};

/** What a panel has where it says nothing. */
export interface FieldDefaults {
  color?: FieldConfig['color'];
  custom?: Record<string, unknown>;
}

function registryFor(source: FieldConfigSource<any>) {
  const overridden = source.overrides.flatMap(({ properties }) => properties.map(({ id }) => id));
  const custom = new Set([
    ...Object.keys(source.defaults.custom ?? {}),
    ...overridden.filter((id) => id.startsWith('custom.')).map((id) => id.slice('custom.'.length)),
  ]);
  for (const id of overridden) {
    if (!id.startsWith('custom.') && !(id in STANDARD)) {
      throw new DrawingError(`an override sets an unknown property: ${id}`);
    }
  }
  const registry = new FieldConfigOptionsRegistry();
  for (const [id, { process, shouldApply = always, settings = {} }] of Object.entries(STANDARD)) {
    registry.register({ id, path: id, name: id, process, shouldApply, settings } as any);
  }
  for (const path of custom) {
    registry.register({
      id: `custom.${path}`,
      path,
      name: path,
      isCustom: true,
      // A value of its own for each field: an override may set a part of it.
      process: (value: unknown) => cloneDeep(value),
      shouldApply: always,
      settings: {},
    } as any);
  }
  return registry;
}

/** A panel's own field configuration on top of what its type has by itself. */
export function completed(
  source: FieldConfigSource | undefined,
  type: FieldDefaults
): FieldConfigSource<any> {
  const standard = {
    mappings: [],
    thresholds: {
      mode: ThresholdsMode.Absolute,
      steps: [
        { value: -Infinity, color: 'green' },
        { value: 80, color: 'red' },
      ],
    },
    color: type.color,
    custom: type.custom ?? {},
  };
  const own: FieldConfig = cloneDeep(source?.defaults ?? {});
  const defaults = { ...standard, ...own, custom: merge({}, standard.custom, own.custom) };
  const overrides = cloneDeep(source?.overrides ?? []);
  for (const { matcher, properties } of overrides) {
    if (!fieldMatchers.getIfExists(matcher.id)) {
      throw new DrawingError(`an override has an unknown matcher: ${matcher.id}`);
    }
    properties.filter(({ id }) => id === 'thresholds').forEach(({ value }) => finite(value));
  }
  finite(defaults.thresholds);
  return { defaults, overrides };
}

/** JSON has no infinity: the lowest threshold is null there. */
function finite(thresholds: FieldConfig['thresholds']) {
  thresholds?.steps?.forEach((step, i) => {
    if (i === 0 && (step.value === null || step.value === undefined)) {
      step.value = -Infinity;
    }
  });
}

export function configured(
  frames: DataFrame[],
  fieldConfig: FieldConfigSource,
  theme: GrafanaTheme2,
  timeZone: string,
  replaceVariables: InterpolateFunction
): DataFrame[] {
  const data = applyFieldOverrides({
    data: frames,
    fieldConfig,
    fieldConfigRegistry: registryFor(fieldConfig),
    replaceVariables,
    theme,
    timeZone,
  });
  cacheFieldDisplayNames(data);
  return data;
}
