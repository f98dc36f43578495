// A plot of values over metric calls, drawn by uPlot. Its colors are those of the theme.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { LANGUAGE } from "./format";
import { theme } from "./state";

export interface PlotSeries {
  name: string;
  /** The name of a color of the theme. */
  color: string;
  isLine: boolean;
  values: readonly (number | null)[];
}

const HEIGHT = 220;

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function optionsOf(series: readonly PlotSeries[], width: number, xName: string): uPlot.Options {
  const axis = { stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line") } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: false }, y: { range: [0, 1] } },
    // uPlot's own number format throws where the browser's language is none
    axes: [
      { ...axis, label: xName, labelSize: 22, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10_000], values: (_, ticks) => ticks.map((tick) => tick.toLocaleString(LANGUAGE)) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => `${Math.round(tick * 100)} %`) },
    ],
    series: [
      {},
      ...series.map((item) => ({
        label: item.name,
        stroke: color(item.color),
        width: item.isLine ? 2 : 0,
        paths: (item.isLine ? uPlot.paths.stepped?.({ align: 1 }) : () => null) ?? null,
        points: { show: true, size: item.isLine ? 5 : 9, fill: color(item.color), stroke: color(item.color) },
        spanGaps: true,
      })),
    ] as uPlot.Series[],
  };
}

export function Plot(props: {
  xs: readonly number[];
  xName: string;
  series: readonly PlotSeries[];
  label: string;
}) {
  const box = useRef<HTMLDivElement>(null);
  const isDark = theme.value;
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    let plot: uPlot | null = null;
    const draw = (): void => {
      plot?.destroy();
      const data = [props.xs, ...props.series.map((item) => item.values)] as unknown as uPlot.AlignedData;
      plot = new uPlot(optionsOf(props.series, Math.max(240, element.clientWidth), props.xName), data, element);
    };
    draw();
    const observer = new ResizeObserver(() => plot?.setSize({ width: Math.max(240, element.clientWidth), height: HEIGHT }));
    observer.observe(element);
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => {
      observer.disconnect();
      scheme.removeEventListener("change", draw);
      plot?.destroy();
    };
  }, [props.xs, props.series, isDark]);
  return (
    <figure class="plot">
      <div ref={box} role="img" aria-label={props.label} />
      <ul class="legend">
        {props.series.map((item) => (
          <li class={`color-${item.color}`}>{item.name}</li>
        ))}
      </ul>
    </figure>
  );
}
