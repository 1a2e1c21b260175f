// Validates objects of the Prometheus operator's APIs: one JSON array of objects a line in, one JSON array of
// lists of problems a line out.
//
// The package's validators let fields pass that they do not know. They read every field that they do know, so an
// object is handed to them behind a proxy that notes what was read: what was not is unknown.
import { createInterface } from "node:readline";

const SCHEMAS = "./node_modules/@kubernetes-models/prometheus-operator/_schemas/";
const PREFIX = "ComGithubPrometheusOperatorPrometheusOperatorPkgApisMonitoring";
const GROUP = "monitoring.coreos.com/";

async function validatorOf(apiVersion, kind) {
  if (!String(apiVersion).startsWith(GROUP)) return null;
  const version = apiVersion.slice(GROUP.length);
  const name = PREFIX + version.charAt(0).toUpperCase() + version.slice(1) + kind;
  try {
    return (await import(`${SCHEMAS}${name}.js`)).validate;
  } catch (error) {
    if (error.code === "ERR_MODULE_NOT_FOUND") return null;
    throw error;
  }
}

function watched(root) {
  const seen = [];
  const proxies = new Map();
  const wrap = (value, path) => {
    if (value === null || typeof value !== "object") return value;
    if (!proxies.has(path)) {
      const read = new Set();
      seen.push({ value, path, read });
      proxies.set(path, new Proxy(value, {
        get: (target, key) => {
          if (typeof key !== "string") return target[key];
          read.add(key);
          return Object.hasOwn(target, key) ? wrap(target[key], `${path}/${key}`) : target[key];
        },
      }));
    }
    return proxies.get(path);
  };
  const unknown = () => seen
    .filter(({ value }) => !Array.isArray(value))
    .flatMap(({ value, path, read }) => Object.keys(value)
      .filter((key) => !read.has(key))
      .map((key) => `${path || "/"}: the field ${key} does not exist`));
  return { proxy: wrap(root, ""), unknown };
}

async function problems(object) {
  const { apiVersion, kind } = object ?? {};
  const validate = await validatorOf(apiVersion, kind);
  if (validate === null) return [`the operator has no ${apiVersion} ${kind}`];
  const found = checked(validate, object, "");
  if (kind !== "AlertmanagerConfig") return found.sort();
  // The schema leaves routes below the first one open, for it cannot be recursive. The operator reads them as routes.
  const route = await validatorOf(apiVersion, "Route");
  const below = routesBelow(object.spec?.route, "/spec/route");
  const open = below.map(([path]) => `${path}: `);
  return [
    ...found.filter((problem) => !open.some((path) => problem.startsWith(path))),
    ...below.flatMap(([path, one]) => checked(route, one, path).filter((problem) => !/^.*\/routes\/\d+: the field /.test(problem.slice(path.length)))),
  ].sort();
}

function checked(validate, object, path) {
  const { proxy, unknown } = watched(object);
  validate(proxy);
  const errors = (validate.errors ?? []).map((error) =>
    `${error.instancePath || "/"}: ${error.keyword} ${JSON.stringify(error.params)}`);
  return [...errors, ...unknown()].map((problem) => path + problem.replace(path ? /^\/(?=:)/ : /^$/, ""));
}

function routesBelow(route, path) {
  return (route?.routes ?? []).flatMap((one, index) =>
    [[`${path}/routes/${index}`, one], ...routesBelow(one, `${path}/routes/${index}`)]);
}

for await (const line of createInterface({ input: process.stdin })) {
  const found = [];
  for (const object of JSON.parse(line)) found.push(await problems(object));
  process.stdout.write(JSON.stringify(found) + "\n");
}
