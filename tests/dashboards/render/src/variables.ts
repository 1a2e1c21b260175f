// Variables in titles, texts and links: the dashboard's own, and those of a value (`${__data.fields.x}`).

import {
  dateTime,
  formattedValueToString,
  getFieldDisplayName,
  type InterpolateFunction,
  type ScopedVars,
} from '@grafana/data';

import type { Document } from './document';

type Value = string | string[];

const PATTERN = /\$(\w+)|\[\[(\w+?)(?::(\w+))?\]\]|\$\{([\w.]+)((?:\[[^\]]+\]|\.[^:}]+)*)(?::([^}]+))?\}/g;

/** The values of all variables: of the viewing, or as the dashboard was saved. */
export function valuesOf({ dashboard, variables = {} }: Document): Map<string, Value> {
  const saved = (dashboard.templating?.list ?? []).map(({ name, current }): [string, Value] => [
    name,
    current?.value ?? '',
  ]);
  return new Map([...saved, ...Object.entries(variables)]);
}

/** How a value is shown to people. */
export function shownValue(value: Value): string {
  const all = [value].flat();
  return all.includes('$__all') ? 'All' : all.join(' + ');
}

function formatted(name: string, value: Value, format: unknown): string {
  const all = [value].flat();
  switch (format) {
    case 'queryparam':
      return all.map((one) => `var-${name}=${encodeURIComponent(one)}`).join('&');
    case 'percentencode':
    case 'uriencode':
      return encodeURIComponent(all.length > 1 ? `{${all.join(',')}}` : (all[0] ?? ''));
    case 'csv':
    case 'raw':
      return all.join(',');
    case 'pipe':
      return all.join('|');
    case 'text':
      return shownValue(value);
    default:
      return all.includes('$__all') ? 'All' : all.length > 1 ? `{${all.join(',')}}` : (all[0] ?? '');
  }
}

/** The last step of a path such as `fields["a b"]`, `labels.job` or `raw`. */
function key(path: string): string {
  return path.replace(/^\[|\]$/g, '').replace(/^["'.]+|["']$/g, '');
}

function ofData(name: string, path: string, scoped: ScopedVars | undefined): string | undefined {
  const context = scoped?.__dataContext?.value;
  if (!context) {
    return undefined;
  }
  const { data, frame, field, rowIndex, calculatedValue } = context;
  const row = rowIndex ?? 0;
  const [head, ...rest] = `${name}${path}`.split(/(?=[.[])/).map(key);
  const last = rest.at(-1) ?? '';
  const text = (value: unknown, of = field) =>
    of.display ? formattedValueToString(of.display(value)) : String(value ?? '');
  switch (head === '__data' ? `${head}.${rest[0]}` : head) {
    case '__data.fields': {
      const wanted = rest
        .slice(1)
        .filter((part) => !['text', 'numeric'].includes(part))
        .join('.');
      const found =
        frame.fields.find(
          (one: any) => one.name === wanted || getFieldDisplayName(one, frame, data) === wanted
        ) ?? frame.fields[Number(wanted)];
      return found && String(found.values[row] ?? '');
    }
    case '__field':
      return last === 'name' || last === 'displayName'
        ? getFieldDisplayName(field, frame, data)
        : (field.labels?.[last] ?? '');
    case '__series':
      return getFieldDisplayName(field, frame, data);
    case '__value': {
      const value = calculatedValue?.numeric ?? field.values[row];
      const time = frame.fields.find((one: any) => one.type === 'time');
      return last === 'text'
        ? text(value)
        : last === 'time'
          ? String(time?.values[row] ?? '')
          : String(value);
    }
    default:
      return undefined;
  }
}

/** A function that puts values in the place of variables, and tells which it does not know. */
export function interpolator(document: Document, unknown: (variable: string) => void): InterpolateFunction {
  const values = valuesOf(document);
  const from = document.from * 1000;
  const to = document.to * 1000;
  const all = [...values].map(([name, value]) => formatted(name, value, 'queryparam')).join('&');
  const builtIn: Record<string, string> = {
    __from: String(from),
    __to: String(to),
    __range: `${Math.round((to - from) / 1000)}s`,
    __range_s: String(Math.round((to - from) / 1000)),
    __url_time_range: `from=${from}&to=${to}`,
    __all_variables: all,
    __dashboard: document.dashboard.title,
  };
  return (text, scoped, format) =>
    (text ?? '').replace(PATTERN, (match, plain, old, oldFormat, name, path = '', ownFormat) => {
      const variable: string = plain ?? old ?? name.split('.')[0];
      const rest = name ? name.slice(variable.length) + path : '';
      const how = ownFormat ?? oldFormat ?? format;
      const own = scoped?.[`${variable}${rest}`] ?? scoped?.[variable];
      const data = ofData(variable, rest, scoped);
      const found = data ?? (own && variable !== '__dataContext' ? String(own.text ?? own.value) : undefined);
      if (found !== undefined) {
        return formatted(variable, found, how);
      }
      if (values.has(variable)) {
        return formatted(variable, values.get(variable)!, how);
      }
      if (variable in builtIn) {
        return String(how ?? '').startsWith('date')
          ? dateTime(Number(builtIn[variable])).toISOString()
          : builtIn[variable];
      }
      // `$1` is a group of a regular expression.
      if (!/^\d+$/.test(variable)) {
        unknown(match);
      }
      return match;
    });
}
