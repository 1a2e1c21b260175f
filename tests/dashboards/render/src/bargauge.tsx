// Bar gauge: BarGauge, once for each value.

import {
  VizOrientation,
  getDisplayProcessor,
  getDisplayValueAlignmentFactors,
  type FieldDisplay,
} from '@grafana/data';
import { BarGauge, DataLinksContextMenu, VizRepeater } from '@grafana/ui';

import type { PanelType, Sized } from './paneltype';
import { REDUCE, displayValues, shownValues } from './stat';

/** Sizes of a bar that Grafana chooses by itself. */
const AUTO = { minVizWidth: 8, minVizHeight: 16, maxVizHeight: 300 };

function Body(props: Sized) {
  const { options, theme, width, height } = props;
  const spacing = options.displayMode === 'lcd' ? 2 : 10;
  const bar = (value: FieldDisplay, props: any, menu: any = {}) => (
    <BarGauge
      value={value.display}
      width={props.width}
      height={props.height}
      orientation={props.orientation}
      field={value.field}
      text={options.text}
      display={value.view?.getFieldDisplayProcessor(value.colIndex!) ?? getDisplayProcessor()}
      theme={theme}
      itemSpacing={spacing}
      displayMode={options.displayMode}
      onClick={menu.openMenu}
      className={menu.targetClassName}
      alignmentFactors={props.count > 1 ? props.alignmentFactors : undefined}
      showUnfilled={options.showUnfilled}
      valueDisplayMode={options.valueMode}
      namePlacement={options.namePlacement}
    />
  );
  const sizes = options.sizing === 'manual' ? options : AUTO;
  return (
    <VizRepeater
      source={props.frames}
      getAlignmentFactors={getDisplayValueAlignmentFactors as any}
      getValues={() => displayValues(props, false)}
      renderValue={(one: any) =>
        one.value.hasLinks && one.value.getLinks ? (
          <DataLinksContextMenu links={one.value.getLinks} style={{ height: '100%' }}>
            {(menu) => bar(one.value, one, menu)}
          </DataLinksContextMenu>
        ) : (
          bar(one.value, one)
        )
      }
      renderCounter={0}
      width={width}
      height={height}
      minVizWidth={sizes.minVizWidth}
      minVizHeight={sizes.minVizHeight}
      maxVizHeight={sizes.maxVizHeight}
      itemSpacing={spacing}
      orientation={options.orientation ?? VizOrientation.Auto}
    />
  );
}

export const bargauge: PanelType = {
  field: { color: { mode: 'thresholds' } },
  options: {
    reduceOptions: REDUCE,
    orientation: VizOrientation.Auto,
    displayMode: 'gradient',
    valueMode: 'color',
    namePlacement: 'auto',
    showUnfilled: true,
    sizing: 'auto',
    ...AUTO,
  },
  shown: shownValues,
  Body,
};
