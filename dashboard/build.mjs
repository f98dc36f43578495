// Bundles src into a folder: node build.mjs OUTPUT. The page names each file with its hash.
import { build } from "esbuild";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createHash } from "node:crypto";
import { join } from "node:path";

const output = process.argv[2];
if (!output) throw new Error("usage: node build.mjs OUTPUT");
mkdirSync(output, { recursive: true });
for (const name of readdirSync(output)) rmSync(join(output, name));
/** uPlot formats numbers in the browser's language when it is loaded, and throws if that is none. */
const plotWithoutLanguage = {
  name: "plot-without-language",
  setup({ onLoad }) {
    onLoad({ filter: /uPlot\.esm\.js$/ }, ({ path }) => {
      const before = readFileSync(path, "utf8");
      const contents = before.replace("domEnv ? nav.language : 'en-US'", "undefined");
      if (contents === before) throw new Error("uPlot has changed: look at how it finds a language");
      return { contents, loader: "js" };
    });
  },
};
await build({
  plugins: [plotWithoutLanguage],
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
