// Build the page: source/ -> ../built/, with the hashes that a test compares.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const source = dirname(fileURLToPath(import.meta.url));
const built = join(source, "..", "built");

rmSync(built, { recursive: true, force: true });
mkdirSync(built);
await build({
  entryPoints: { page: join(source, "page.js"), editor: join(source, "editor.js"), layout: join(source, "graph/layout.js") },
  outdir: built,
  bundle: true,
  format: "esm",
  splitting: false,
  minify: true,
  target: "es2022",
  legalComments: "none",
  external: ["/console/*"],
  loader: { ".css": "css" },
});
copyFileSync(join(source, "index.html"), join(built, "index.html"));

const files = folder =>
  readdirSync(folder, { withFileTypes: true })
    .filter(entry => entry.name !== "node_modules")
    .flatMap(entry => (entry.isDirectory() ? files(join(folder, entry.name)) : [join(folder, entry.name)]))
    .sort();
const hash = folder => {
  const sum = createHash("sha256");
  for (const file of files(folder).filter(f => !f.endsWith("made_from.json"))) {
    sum.update(relative(folder, file).replaceAll("\\", "/") + "\0");
    sum.update(readFileSync(file));
  }
  return sum.digest("hex");
};
writeFileSync(join(built, "made_from.json"), JSON.stringify({ source: hash(source), built: hash(built) }, null, 2) + "\n");
