// The script by which a page's plots answer the mouse: hover shows values, dragging zooms into steps, a double click
// shows all again, and buttons make the axes logarithmic. Without it, or on paper, a page shows the drawings of
// line_plot(), whose axes it draws the same way. tests/launch/report/report_script.js runs it.
#pragma once

namespace longstride {

inline constexpr const char* report_script = R"JS(
"use strict";
const W = 640, H = 260, LEFT = 66, RIGHT = 12, TOP = 30, LOW = 30;
const escape_text = (s) => s.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
function number(v) {
  if (Math.abs(v) < 1e-12) return "0";
  for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(v) >= size) return String(Number((v / size).toPrecision(3))) + name;
  return Math.abs(v) < 1e-3 ? v.toExponential(2) : String(Number(v.toPrecision(4)));
}
function ticks(axis, count) {
  const out = [];
  if (axis.log) {
    for (let v = 10 ** Math.ceil(Math.log10(axis.begin) - 1e-9); v <= axis.end * 1.000001; v *= 10) out.push(v);
    return out.length >= 2 ? out : [axis.begin, Math.sqrt(axis.begin * axis.end), axis.end];
  }
  const raw = (axis.end - axis.begin) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5].find((f) => raw <= f * power) || 10);
  for (let v = Math.ceil(axis.begin / step - 1e-9) * step; v <= axis.end + step * 1e-6; v += step) out.push(v);
  return out;
}
const place = (axis, v) => axis.log
  ? (Math.log(v) - Math.log(axis.begin)) / (Math.log(axis.end) - Math.log(axis.begin))
  : (v - axis.begin) / (axis.end - axis.begin);
const unplace = (axis, p) => axis.log
  ? Math.exp(Math.log(axis.begin) + p * (Math.log(axis.end) - Math.log(axis.begin)))
  : axis.begin + p * (axis.end - axis.begin);

// What a view shows of a plot: the points between two steps, and axes that fit them.
function visible(plot, view) {
  const fits = ([x, y]) => (!view.logx || x > 0) && (!view.logy || y > 0) &&
    (view.from === undefined || (x >= view.from && x <= view.to));
  const series = plot.series.map((s) => ({ ...s, points: s.points.filter(fits) }));
  const all = series.flatMap((s) => s.points), xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  const min = (v) => v.reduce((a, b) => Math.min(a, b), Infinity);
  const max = (v) => v.reduce((a, b) => Math.max(a, b), -Infinity);
  const any = all.length > 0;
  const x = { begin: view.logx && any ? min(xs) : 0, end: any ? Math.max(1, max(xs)) : 1, log: view.logx && any };
  if (view.from !== undefined) { x.begin = view.from; x.end = view.to; }
  if (!(x.end > x.begin)) x.end = x.begin * 1.01;
  const least = any ? min(ys) : 0, most = any ? max(ys) : 1;
  // Never so narrow that rounding would keep ticks() from advancing.
  const margin = Math.max(1e-9, (most > least ? 1e-6 : 0.05) * Math.abs(most), 0.05 * (most - least));
  const y = view.logy && any
    ? { begin: least * 0.9, end: most * 1.1, log: true }
    : { begin: least >= 0 ? Math.max(0, least - margin) : least - margin, end: most + margin, log: false };
  const at = (p) => [LEFT + (W - LEFT - RIGHT) * place(x, p[0]), H - LOW - (H - LOW - TOP) * place(y, p[1])];
  return { series, x, y, at };
}
function drawing(plot, view) {
  const { series, x, y, at } = visible(plot, view);
  let out = `<text x="${LEFT}" y="18" class="title">${escape_text(plot.title)}</text>`;
  for (const v of ticks(y, 5)) {
    const h = (H - LOW - (H - LOW - TOP) * place(y, v)).toFixed(1);
    out += `<path class="grid" d="M${LEFT} ${h}H${W - RIGHT}"/>` +
      `<text x="${LEFT - 6}" y="${Number(h) + 4}" text-anchor="end">${number(v)}</text>`;
  }
  for (const v of ticks(x, 5)) {
    const p = place(x, v);
    out += `<text x="${(LEFT + (W - LEFT - RIGHT) * p).toFixed(1)}" y="${H - 10}" ` +
      `text-anchor="${p > 0.95 ? "end" : "middle"}">${number(v)}</text>`;
  }
  for (const s of series) {
    const points = s.points.map((p) => at(p).map((c) => c.toFixed(1)));
    out += `<polyline class="${s.css}" points="${points.map((p) => p.join(",")).join(" ")}"/>`;
    if (s.dots) for (const [cx, cy] of points) out += `<circle class="${s.css}" cx="${cx}" cy="${cy}" r="3.5"/>`;
  }
  if (series.length > 1 && series.length < 3)
    series.slice().reverse().forEach((s, i) => {
      out += `<text x="${W - RIGHT - 80 * i}" y="18" text-anchor="end" class="name ${s.css}">${escape_text(s.name)}</text>`;
    });
  return out;
}
// The point of every curve that is nearest to a step, one line each.
function nearest(plot, view, step) {
  return visible(plot, view).series.filter((s) => s.points.length).map((s) => {
    const p = s.points.reduce((a, b) => (Math.abs(b[0] - step) < Math.abs(a[0] - step) ? b : a));
    return { name: s.name, css: s.css, x: p[0], y: p[1] };
  });
}
// As many of these points as have room for their values: those nearest to the pointer, in the order of the curves.
function closest(points, at, down, most = 13) {
  const far = (p) => Math.abs(at([p.x, p.y])[1] - down);
  const kept = new Set(points.slice().sort((p, q) => far(p) - far(q)).slice(0, most));
  return points.filter((p) => kept.has(p));
}
function attach(figure) {
  const svg = figure.querySelector("svg"), plot = JSON.parse(figure.querySelector("script").textContent);
  const view = { logx: false, logy: plot.log, from: undefined, to: undefined };
  let pressed;
  const step_at = (event) => {
    const box = svg.getBoundingClientRect(), across = (event.clientX - box.left) / box.width * W;
    return unplace(visible(plot, view).x, Math.min(1, Math.max(0, (across - LEFT) / (W - LEFT - RIGHT))));
  };
  const draw = (extra = "") => { svg.innerHTML = drawing(plot, view) + extra; };
  const redraw = () => { window.zoomed = window.zoomed || view.from !== undefined; draw(); };
  const hover = (event) => {
    const box = svg.getBoundingClientRect(), down = (event.clientY - box.top) / box.height * H;
    const found = closest(nearest(plot, view, step_at(event)), visible(plot, view).at, down);
    if (!found.length) return;
    const { x } = visible(plot, view), across = (v) => (LEFT + (W - LEFT - RIGHT) * place(x, v)).toFixed(1);
    const line = across(found[0].x), right = Number(line) > W / 2;
    let extra = `<path class="cursor" d="M${line} ${TOP}V${H - LOW}"/>`;
    if (pressed !== undefined) {
      const a = Number(across(pressed)), b = Number(across(step_at(event)));
      extra += `<rect class="zoom" x="${Math.min(a, b)}" y="${TOP}" width="${Math.abs(a - b)}" height="${H - LOW - TOP}"/>`;
    }
    found.forEach((f, i) => {
      const name = plot.series.length > 1 ? escape_text(f.name) + ", " : "";
      extra += `<text class="value name ${f.css}" x="${Number(line) + (right ? -6 : 6)}" y="${TOP + 12 + 15 * i}" ` +
        `text-anchor="${right ? "end" : "start"}">${name}${plot.by} ${Math.round(f.x)}: ${Number(f.y.toPrecision(5))}</text>`;
    });
    draw(extra);
  };
  svg.addEventListener("pointermove", hover);
  svg.addEventListener("pointerleave", () => { pressed = undefined; draw(); });
  svg.addEventListener("pointerdown", (event) => { pressed = step_at(event); event.preventDefault(); });
  svg.addEventListener("pointerup", (event) => {
    const [a, b] = [pressed, step_at(event)].sort((m, n) => m - n), { x } = visible(plot, view);
    pressed = undefined;
    if (a === undefined || b - a < 0.5 || place(x, b) - place(x, a) < 0.02) return;
    if (!plot.series.some((s) => s.points.some((p) => p[0] >= a && p[0] <= b))) return draw();
    [view.from, view.to] = [a, b];
    redraw();
  });
  svg.addEventListener("dblclick", () => { view.from = view.to = undefined; window.zoomed = false; redraw(); });
  const buttons = document.createElement("figcaption");
  for (const [key, name] of [["logx", plot.by === "step" ? "log steps" : `log ${plot.by}`], ["logy", "log values"]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    button.setAttribute("aria-pressed", String(view[key]));
    button.addEventListener("click", () => {
      view[key] = !view[key];
      if (key === "logx") view.from = view.to = undefined;
      button.setAttribute("aria-pressed", String(view[key]));
      redraw();
    });
    buttons.append(button);
  }
  buttons.append(" drag to zoom, double click for all");
  figure.append(buttons);
}
if (typeof document !== "undefined") document.querySelectorAll("figure.plot").forEach(attach);
)JS";

}  // namespace longstride
