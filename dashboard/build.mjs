// Bundles src into a folder: node build.mjs OUTPUT. The page names each file with its hash.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { join } from "node:path";

const output = process.argv[2];
if (!output) throw new Error("usage: node build.mjs OUTPUT");
mkdirSync(output, { recursive: true });
for (const name of readdirSync(output)) rmSync(join(output, name));
await build({
  entryPoints: { app: "src/main.tsx" },
  outdir: output,
  bundle: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
});
writeFileSync(join(output, "icon.svg"), readFileSync("src/icon.svg"));
const address = (name) => {
  const hash = createHash("sha256").update(readFileSync(join(output, name))).digest("hex");
  return `/dashboard/${name}?v=${hash.slice(0, 16)}`;
};
const page = readFileSync("src/index.html", "utf8").replace(/FILE:([\w.]+)/g, (_, name) => address(name));
writeFileSync(join(output, "index.html"), page);
