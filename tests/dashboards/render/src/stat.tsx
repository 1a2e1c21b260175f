// Stat: BigValue, once for each value.

import {
  FieldType,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  type FieldDisplay,
} from '@grafana/data';
import {
  BigValue,
  BigValueColorMode,
  BigValueGraphMode,
  BigValueJustifyMode,
  BigValueTextMode,
  DataLinksContextMenu,
  VizRepeater,
} from '@grafana/ui';

import { NOTHING, type Content, type PanelType, type Shown, type Sized } from './paneltype';

export const REDUCE = { values: false, calcs: ['lastNotNull'], fields: '' };

export function displayValues(content: Content, sparkline: boolean): FieldDisplay[] {
  return getFieldDisplayValues({
    fieldConfig: content.fieldConfig,
    reduceOptions: content.options.reduceOptions,
    replaceVariables: content.replaceVariables,
    theme: content.theme,
    data: content.frames,
    sparkline,
    timeZone: content.timeZone,
  });
}

/** Values that say something: numbers, and texts of a column of texts; no word for a missing number. */
export function shownValues(content: Content): Shown {
  const found = displayValues(content, false).filter(({ display, view, colIndex = -1 }) => {
    const type = view?.dataFrame.fields[colIndex]?.type;
    return type === FieldType.number
      ? Number.isFinite(display.numeric)
      : type !== undefined && display.text !== '';
  });
  return { ...NOTHING, names: found.map(({ display }) => display.title ?? ''), points: found.length };
}

function Body(props: Sized) {
  const { options, theme, width, height, panel, fieldConfig } = props;
  const auto =
    options.textMode === BigValueTextMode.Auto && (fieldConfig.defaults.displayName || !panel.title);
  const value = (
    one: FieldDisplay,
    size: { width: number; height: number },
    count: number,
    factors: any,
    menu: any = {}
  ) => (
    <BigValue
      value={one.display}
      count={count}
      sparkline={one.sparkline}
      colorMode={options.colorMode}
      graphMode={options.graphMode}
      justifyMode={options.justifyMode}
      textMode={auto ? BigValueTextMode.ValueAndName : options.textMode}
      text={options.text}
      alignmentFactors={factors}
      percentChangeColorMode={options.percentChangeColorMode}
      disableWideLayout={!options.wideLayout}
      width={size.width}
      height={size.height}
      theme={theme}
      onClick={menu.openMenu}
      className={menu.targetClassName}
      hasLinks={one.hasLinks}
    />
  );
  return (
    <VizRepeater
      getValues={() => displayValues(props, options.graphMode !== BigValueGraphMode.None)}
      getAlignmentFactors={getDisplayValueAlignmentFactors as any}
      renderValue={({ value: one, alignmentFactors, count, width: w, height: h }: any) =>
        one.hasLinks && one.getLinks ? (
          <DataLinksContextMenu links={one.getLinks}>
            {(menu) => value(one, { width: w, height: h }, count, alignmentFactors, menu)}
          </DataLinksContextMenu>
        ) : (
          value(one, { width: w, height: h }, count, alignmentFactors)
        )
      }
      width={width}
      height={height}
      source={props.frames}
      itemSpacing={3}
      renderCounter={0}
      autoGrid
      orientation={options.orientation}
    />
  );
}

export const stat: PanelType = {
  field: { color: { mode: 'thresholds' } },
  options: {
    reduceOptions: REDUCE,
    orientation: 'auto',
    textMode: BigValueTextMode.Auto,
    wideLayout: true,
    colorMode: BigValueColorMode.Value,
    graphMode: BigValueGraphMode.Area,
    justifyMode: BigValueJustifyMode.Auto,
    showPercentChange: false,
    percentChangeColorMode: 'standard',
  },
  shown: shownValues,
  Body,
};
