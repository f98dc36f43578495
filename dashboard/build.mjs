// Bundles src into a folder: node build.mjs OUTPUT. Names contain the hash of their content.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";

const output = process.argv[2];
if (!output) throw new Error("usage: node build.mjs OUTPUT");
mkdirSync(output, { recursive: true });
for (const name of readdirSync(output)) rmSync(join(output, name));
const result = await build({
  entryPoints: { app: "src/main.tsx" },
  outdir: output,
  entryNames: "[name]-[hash]",
  chunkNames: "part-[hash]",
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  metafile: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
});
const names = Object.keys(result.metafile.outputs).map((path) => relative(output, path));
const entry = (suffix) => names.find((name) => name.startsWith("app-") && name.endsWith(suffix));
const page = readFileSync("src/index.html", "utf8")
  .replace("APP_JS", `/dashboard/${entry(".js")}`)
  .replace("APP_CSS", `/dashboard/${entry(".css")}`);
writeFileSync(join(output, "icon.svg"), readFileSync("src/icon.svg"));
writeFileSync(join(output, "index.html"), page);
