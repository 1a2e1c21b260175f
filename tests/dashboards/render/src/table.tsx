// Table: the table that Grafana's own panel draws since version 12. All columns are in the document, also
// those that one would have to scroll to, so that they can be looked at.

import { FieldType, getFieldDisplayName, getFrameDisplayName } from '@grafana/data';
import { Combobox } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { omit } from 'lodash';

import type { Panel } from './document';
import { Empty } from './empty';
import { NOTHING, type Content, type PanelType, type Shown, type Sized } from './paneltype';

/** Properties that Grafana 12.2 gave another name; it still reads the old ones. */
function migrated(panel: Panel): Panel {
  const overrides = (panel.fieldConfig?.overrides ?? []).map(({ matcher, properties }) => ({
    matcher,
    properties: properties.flatMap(({ id, value }) => {
      if (id === 'custom.hidden') {
        return [{ id: 'custom.hideFrom.viz', value }];
      }
      const wrapped = id === 'custom.cellOptions' && value?.wrapText !== undefined;
      return wrapped
        ? [
            { id, value: omit(value, 'wrapText') },
            { id: 'custom.wrapText', value: value.wrapText },
          ]
        : [{ id, value }];
    }),
  }));
  const { cellOptions, ...custom }: any = panel.fieldConfig?.defaults.custom ?? {};
  const footer = panel.options?.footer;
  const defaults = {
    ...panel.fieldConfig?.defaults,
    custom: {
      ...custom,
      ...(cellOptions && { cellOptions: omit(cellOptions, 'wrapText') }),
      ...(cellOptions?.wrapText !== undefined && { wrapText: cellOptions.wrapText }),
      ...(footer?.show &&
        !footer.fields?.length && { footer: { reducers: footer.countRows ? ['countAll'] : footer.reducer } }),
    },
  };
  if (footer?.show && footer.fields?.length) {
    const matcher = { id: 'byNames', options: { mode: 'include', names: [footer.fields].flat() } };
    overrides.push({ matcher, properties: [{ id: 'custom.footer.reducers', value: footer.reducer }] });
  }
  return { ...panel, fieldConfig: { defaults, overrides } };
}

function current({ frames, options }: Content) {
  return frames[options.frameIndex > 0 && options.frameIndex < frames.length ? options.frameIndex : 0];
}

function shown(content: Content): Shown {
  const frame = current(content);
  const fields = (frame?.fields ?? []).filter(({ config }) => !config.custom?.hideFrom?.viz);
  const values = fields.filter(({ type }) => type === FieldType.number).flatMap(({ values }) => values);
  return {
    ...NOTHING,
    names: fields.map((field) => getFieldDisplayName(field, frame, content.frames)),
    rows: frame?.length ?? 0,
    points: values.filter(Number.isFinite).length,
  };
}

function Body(props: Sized) {
  const { frames, options, width, height, theme } = props;
  const frame = current(props);
  if (!frame || frame.fields.length === 0) {
    return <Empty {...props} />;
  }
  const several = frames.length > 1;
  const tableHeight = several ? height - theme.spacing.gridSize * (theme.components.height.md + 1) : height;
  return (
    <>
      <TableNG
        data={frame}
        width={width}
        height={tableHeight}
        noHeader={!options.showHeader}
        showTypeIcons={options.showTypeIcons}
        resizable
        sortBy={options.sortBy}
        enablePagination={options.enablePagination ?? options.footer?.enablePagination}
        cellHeight={options.cellHeight}
        maxRowHeight={options.maxRowHeight}
        frozenColumns={options.frozenColumns?.left}
        fieldConfig={props.fieldConfig}
        timeRange={props.timeRange}
        noValue={props.fieldConfig.defaults.noValue}
        enableVirtualization={false}
        structureRev={1}
        transparent={false}
      />
      {several && (
        <div style={{ paddingTop: theme.spacing(1) }}>
          <Combobox
            options={frames.map((one, value) => ({ label: getFrameDisplayName(one), value }))}
            value={frames.indexOf(frame)}
            onChange={() => undefined}
          />
        </div>
      )}
    </>
  );
}

export const table: PanelType = {
  migrated,
  field: {
    color: { mode: 'thresholds' },
    custom: {
      align: 'auto',
      cellOptions: { type: 'auto' },
      inspect: false,
      filterable: false,
      footer: { reducers: [] },
    },
  },
  options: { frameIndex: 0, showHeader: true, showTypeIcons: false, sortBy: [], cellHeight: 'sm' },
  shown,
  Body,
};
