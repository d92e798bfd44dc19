// The script of a report's page, with stand-ins for the browser: hover, zoom and logarithmic axes of a plot.
//   node report_script.js launch/report/report_script.h
"use strict";
const assert = require("assert");
const fs = require("fs");
const vm = require("vm");

const header = fs.readFileSync(process.argv[2], "utf8");
const script = header.slice(header.indexOf('R"JS(') + 5, header.indexOf(')JS"'));

class Element {
  constructor() { this.listeners = {}; this.attributes = {}; this.children = []; this.innerHTML = ""; }
  addEventListener(name, listener) { this.listeners[name] = listener; }
  setAttribute(name, value) { this.attributes[name] = value; }
  append(child) { this.children.push(child); }
  getBoundingClientRect() { return { left: 0, top: 0, width: 640, height: 260 }; }
  fire(name, x, y = 0) { this.listeners[name]({ clientX: x, clientY: y, preventDefault() {} }); }
}
function page(plot) {
  const svg = new Element(), figure = new Element();
  figure.querySelector = (what) => (what === "svg" ? svg : { textContent: JSON.stringify(plot) });
  const window = {};
  const document = { querySelectorAll: () => [figure], createElement: () => new Element() };
  vm.runInNewContext(script, { document, window });
  const [logx, logy] = figure.children[0].children;
  return { svg, window, logx, logy };
}

const points = [];
for (let step = 0; step <= 100; step++) points.push([step, 1 + 100 / (step + 1)]);
const plot = {
  title: "a <plot>", log: false, by: "step",
  series: [{ name: "one", css: "a", dots: false, points }, { name: "two", css: "b", dots: true, points: [[50, 7]] }],
};
const at_step = (step) => 66 + (640 - 66 - 12) * step / 100;  // where the axis from 0 to 100 has it
const curve = (svg) => svg.innerHTML.match(/class="a" points="([^"]*)"/)[1].split(" ").length;

{ // Hovering shows the nearest point of every curve, and leaving hides it.
  const { svg } = page(plot);
  svg.fire("pointermove", at_step(49.2));
  assert(svg.innerHTML.includes("one, step 49: 3<"), svg.innerHTML);
  assert(svg.innerHTML.includes("two, step 50: 7<"));
  assert(svg.innerHTML.includes("a &lt;plot&gt;") && !svg.innerHTML.includes("<plot>"));
  svg.fire("pointerleave", 0);
  assert(!svg.innerHTML.includes("step 49"));
  assert.strictEqual(curve(svg), 101);
}
{ // Thirty curves: as many values as have room, those nearest to the pointer, over the axis that the plot names.
  const curves = [];
  for (let i = 0; i < 30; i++) curves.push({ name: `run ${i}`, css: "a", dots: false, points: [[0, i], [100, i]] });
  const { svg, logx } = page({ title: "many", log: false, by: "seconds", series: curves });
  assert.strictEqual(logx.textContent, "log seconds");
  for (const [y, first, last] of [[230, 0, 12], [30, 17, 29]]) {
    svg.fire("pointermove", at_step(10), y);
    const shown = [...svg.innerHTML.matchAll(/run (\d+), seconds 0: /g)].map((m) => Number(m[1]));
    assert.strictEqual(shown.length, 13);
    assert.deepStrictEqual([shown[0], shown[12]], [first, last]);
  }
}
{ // Dragging zooms into the steps between, in either direction, and a double click shows all again.
  for (const [from, to] of [[19.5, 40.5], [40.5, 19.5]]) {
    const { svg, window } = page(plot);
    svg.fire("pointerdown", at_step(from));
    svg.fire("pointermove", at_step(to));
    assert(svg.innerHTML.includes('<rect class="zoom"'));
    svg.fire("pointerup", at_step(to));
    assert.strictEqual(curve(svg), 21);
    assert.strictEqual(window.zoomed, true);
    svg.fire("pointermove", at_step(50));  // the middle of the plot is now step 30
    assert(svg.innerHTML.includes("one, step 30: "), svg.innerHTML);
    svg.fire("dblclick", 0);
    assert.strictEqual(curve(svg), 101);
    assert.strictEqual(window.zoomed, false);
  }
}
{ // A click, or a range without a point, changes nothing.
  const { svg } = page({ ...plot, series: [{ name: "two", css: "a", dots: true, points: [[0, 1], [100, 7]] }] });
  for (const [from, to] of [[50, 50.1], [40, 60]]) {
    svg.fire("pointerdown", at_step(from));
    svg.fire("pointerup", at_step(to));
    if (svg.innerHTML) assert.strictEqual(curve(svg), 2);
  }
}
{ // The buttons make axes logarithmic; points without a logarithm are left out.
  const { svg, logx, logy } = page(plot);
  assert.strictEqual(logy.attributes["aria-pressed"], "false");
  logy.listeners.click();
  assert.strictEqual(logy.attributes["aria-pressed"], "true");
  assert(svg.innerHTML.includes(">10</text>") && svg.innerHTML.includes(">100</text>"), svg.innerHTML);
  assert.strictEqual(curve(svg), 101);
  logx.listeners.click();
  assert.strictEqual(curve(svg), 100);
  const [first, last] = svg.innerHTML.match(/class="a" points="([^ "]*) [^"]* ([^ "]*)"/).slice(1);
  assert.strictEqual(first.split(",")[0], "66.0");
  assert.strictEqual(last.split(",")[0], "628.0");
  logx.listeners.click();
  logy.listeners.click();
  assert.strictEqual(curve(svg), 101);
}
{ // One point, equal values, zeros and nothing at all are drawn without a number that is none.
  for (const some of [[[0, 0]], [[5, 3]], [[1, 0.3], [2, 0.1 + 0.2]], [[1, 2], [2, 2]], [[0, -1], [9, -1]], []])
    for (const presses of [[], ["logx"], ["logy"], ["logx", "logy"]]) {
      const made = page({ ...plot, series: [{ name: "x", css: "a", dots: true, points: some }] });
      for (const press of presses) made[press].listeners.click();
      made.svg.fire("pointermove", 300);
      assert(!/NaN|Infinity/.test(made.svg.innerHTML), JSON.stringify([some, presses]) + made.svg.innerHTML);
    }
}
