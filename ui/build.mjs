// Builds the browser page: `node build.mjs FOLDER`. Each file has a hash of its content in its name, and a copy compressed by gzip.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { constants, gzipSync } from "node:zlib";
import { build } from "esbuild";

const folder = process.argv[2];
if (!folder) throw new Error("name the folder to build into: node build.mjs FOLDER");
const here = import.meta.dirname;
const assets = join(folder, "assets");
rmSync(folder, { recursive: true, force: true });
mkdirSync(assets, { recursive: true });

const common = { bundle: true, minify: true, target: "es2022", legalComments: "none", metafile: true, outdir: assets, entryNames: "[name]-[hash]", logLevel: "warning" };

function written(result, kind) {
  return basename(Object.keys(result.metafile.outputs).find((name) => name.endsWith(kind)));
}

const worker = written(await build({ ...common, entryPoints: [join(here, "src/drawing/layout.worker.ts")], format: "iife" }), ".js");
const page = await build({
  ...common,
  entryPoints: [join(here, "src/app.tsx")],
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { LAYOUT_WORKER: JSON.stringify(worker) },
});
const docs = await build({ ...common, entryPoints: [join(here, "src/docs.ts")], format: "esm", loader: { ".svg": "dataurl" } });
const picture = readFileSync(join(here, "icon.svg"));
const icon = `icon-${createHash("sha256").update(picture).digest("hex").slice(0, 8)}.svg`;
writeFileSync(join(assets, icon), picture);
const names = { icon, style: written(page, ".css"), script: written(page, ".js"), docsStyle: written(docs, ".css"), docsScript: written(docs, ".js") };
const pages = ["index.html", "docs.html"];
for (const name of pages) {
  const html = readFileSync(join(here, name), "utf8");
  writeFileSync(join(folder, name), html.replace(/\{(\w+)\}/g, (_, part) => names[part]));
}
for (const name of [...pages, ...readdirSync(assets).map((each) => join("assets", each))]) {
  const path = join(folder, name);
  writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: constants.Z_BEST_COMPRESSION }));
}
