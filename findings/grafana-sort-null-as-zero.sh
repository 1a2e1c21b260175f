#!/usr/bin/env bash
# Grafana sorts a missing number as 0, between the negative and the positive ones.
#
# Version:   @grafana/data 13.2.3 (npm), transformations convertFieldType and sortBy.
# Expected:  Rows without a value stand together at one end, ascending and descending.
# Behaviour: convertFieldType makes null of what is no number; sortBy compares null as 0.
# Seen:      0.3, empty, -0.2, 1.5 ascending: -0.2 null 0.3 1.5
# Matters:   In a table of gains (speedup minus one, change of K) the models that have not
#            been measured stand in the middle, as if speculation gave them nothing.
set -euo pipefail
. "$(dirname "$0")/shared/install.sh"

npm_packages @grafana/data@13.2.3
cat >"$work/sort.js" <<'END'
const grafana = require('@grafana/data');
const { lastValueFrom } = require('rxjs');

// A transformation reads a flag of the page it runs in.
globalThis.window = {};

const { convertFieldTypeTransformer, sortByTransformer } = grafana.standardTransformers;
grafana.standardTransformersRegistry.setInit(() =>
  [convertFieldTypeTransformer, sortByTransformer].map((transformer) => ({
    id: transformer.id,
    name: transformer.name,
    transformation: async () => transformer,
  })));

const values = ['0.3', '', '-0.2', '1.5'];
const frame = grafana.toDataFrame({ fields: [{ name: 'gain', type: 'string', values }] });
const conversions = [{ targetField: 'gain', destinationType: 'number' }];
const convert = { id: 'convertFieldType', options: { conversions } };
const sort = (desc) => ({ id: 'sortBy', options: { sort: [{ field: 'gain', desc }] } });
(async () => {
  for (const desc of [false, true]) {
    const [sorted] = await lastValueFrom(grafana.transformDataFrame([convert, sort(desc)], [frame]));
    const order = Array.from(sorted.fields[0].values, String).join(' ');
    console.log(desc ? 'descending' : 'ascending', order);
  }
})();
END
seen "$(cd "$work" && node sort.js)" <<'END'
ascending -0.2 null 0.3 1.5
descending 1.5 0.3 null -0.2
END
