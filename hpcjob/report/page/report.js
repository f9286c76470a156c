"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NS = "http://www.w3.org/2000/svg";
  const LEFT = 64, RIGHT = 26, TOP = 12, BOTTOM = 30;
  const DASHES = ["", "6 3", "2 3", "9 3 2 3"];
  const byId = (id) => document.getElementById(id);
  const shown = data.runs.map(() => true);
  const whole = extent();
  let view = [...whole];

  function extent() {
    let low = Infinity, high = -Infinity;
    for (const chart of data.charts) for (const one of chart.series) {
      if (!one.x.length) continue;
      low = Math.min(low, one.x[0]);
      high = Math.max(high, one.x[one.x.length - 1]);
    }
    if (low > high) return [0, 1];
    return low === high ? [low - 1, high + 1] : [low, high];
  }

  function add(parent, name, attributes, text) {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.appendChild(element);
    return element;
  }

  function html(parent, name, text, attributes) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    parent.appendChild(element);
    return element;
  }

  const colour = (run) => `var(--c${run % 8})`;
  const dash = (run) => DASHES[Math.floor(run / 8) % DASHES.length];
  const number = (value) => value === null ? "not finite" : String(Number(value.toPrecision(9)));
  const short = (value) => {
    const size = Math.abs(value);
    if (size === 0) return "0";
    if (size < 1e-3 || size >= 1e9) return value.toExponential(2).replace(/\.?0+e/, "e");
    return value.toLocaleString("en", { maximumSignificantDigits: 7 });
  };

  function swatch(parent, run) {
    const svg = add(parent, "svg", { class: "swatch", viewBox: "0 0 28 10", "aria-hidden": "true" });
    const line = add(svg, "line", { x1: 0, y1: 5, x2: 28, y2: 5, "stroke-width": 3, "stroke-dasharray": dash(run) });
    line.style.stroke = colour(run);
  }

  /* Round values between low and high, about `count` of them. */
  function ticks(low, high, count) {
    const rough = (high - low) / Math.max(count, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough) || rough;
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(Number((at * step).toPrecision(12)));
    return found;
  }

  function logTicks(low, high) {
    const powers = [], finer = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) powers.push(10 ** power);
    for (const power of powers) finer.push(power, 2 * power, 5 * power);
    for (const choice of [finer, powers]) {
      const found = choice.filter((one) => one >= low && one <= high);
      if (found.length > 1 && found.length <= 12) return found;
    }
    return powers.length > 12 ? powers.filter((_, at) => at % Math.ceil(powers.length / 12) === 0) : ticks(low, high, 4);
  }

  /* First place whose x is at least `value`. */
  function place(xs, value) {
    let low = 0, high = xs.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[middle] < value) low = middle + 1; else high = middle;
    }
    return low;
  }

  function nearest(xs, value) {
    const at = place(xs, value);
    if (at === 0) return xs.length ? 0 : -1;
    return at === xs.length || value - xs[at - 1] <= xs[at] - value ? at - 1 : at;
  }

  /* Exponential mean without the bias of its start; gaps stay. */
  function smooth(ys, weight) {
    let mean = 0, total = 0;
    return ys.map((y) => {
      if (y === null) return null;
      mean = weight * mean + (1 - weight) * y;
      total = weight * total + (1 - weight);
      return mean / total;
    });
  }

  class Chart {
    constructor(spec, parent) {
      this.spec = spec;
      this.figure = html(parent, "figure", undefined, { "data-name": spec.name });
      const caption = html(this.figure, "figcaption", spec.label + " ", { id: `caption-${spec.name}` });
      html(caption, "small", spec.unit ? `(${spec.unit})` : "");
      this.svg = add(this.figure, "svg", {
        class: "chart", tabindex: 0, role: "img", "aria-labelledby": `caption-${spec.name}`, "aria-describedby": "help",
      });
      const note = spec.series.filter((one) => one.total > one.x.length);
      if (note.length) {
        const told = note.map((one) => `${data.runs[one.run].name}: ${one.x.length} of ${one.total}`).join("; ");
        html(this.figure, "small", `Points drawn: ${told}. Of each stretch the first, last, lowest and highest stay.`, { class: "notes" });
      }
      this.tip = html(this.figure, "div", undefined, { class: "tip", hidden: "" });
      this.listen();
    }

    series() {
      return this.spec.series.filter((one) => shown[one.run]);
    }

    draw() {
      const box = this.svg.getBoundingClientRect();
      this.width = Math.max(box.width, 160);
      this.height = Math.max(box.height, 120);
      this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
      this.svg.replaceChildren();
      this.cursor = null;
      this.scale();
      this.axes();
      const clip = `clip-${this.spec.name}`;
      const defs = add(this.svg, "defs");
      add(add(defs, "clipPath", { id: clip }), "rect", { x: LEFT, y: TOP - 8, width: this.width - LEFT - RIGHT, height: this.height - TOP - BOTTOM + 14 });
      const inside = add(this.svg, "g", { "clip-path": `url(#${clip})` });
      this.marks(inside);
      for (const one of this.series()) this.curve(inside, one);
      for (const one of this.series()) this.spikes(inside, one);
    }

    /* Rows of a series in the view, and one more at either side. */
    range(one) {
      return [Math.max(0, place(one.x, view[0]) - 1), Math.min(one.x.length, place(one.x, view[1]) + 1)];
    }

    scale() {
      let low = Infinity, high = -Infinity;
      this.logarithmic = byId("log").checked;
      for (const one of this.series()) {
        const [from, to] = [place(one.x, view[0]), Math.min(one.x.length, place(one.x, view[1]) + 1)];
        for (let at = from; at < to; at++) {
          const y = one.y[at];
          if (y === null || one.x[at] > view[1] || (this.logarithmic && y <= 0)) continue;
          if (y < low) low = y;
          if (y > high) high = y;
        }
      }
      if (low > high) [low, high] = this.logarithmic ? [1, 10] : [0, 1];
      if (low === high) [low, high] = this.logarithmic ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1];
      const margin = this.logarithmic ? 0 : (high - low) * 0.05;
      [this.low, this.high] = [low - margin, high + margin];
      Object.assign(this.svg.dataset, { xLow: view[0], xHigh: view[1], yLow: this.low, yHigh: this.high });
    }

    px(x) { return LEFT + (x - view[0]) / (view[1] - view[0]) * (this.width - LEFT - RIGHT); }
    at(px) { return view[0] + (px - LEFT) / (this.width - LEFT - RIGHT) * (view[1] - view[0]); }
    py(y) {
      const part = this.logarithmic
        ? (Math.log(Math.max(y, this.low / 1e3)) - Math.log(this.low)) / (Math.log(this.high) - Math.log(this.low))
        : (y - this.low) / (this.high - this.low);
      return this.height - BOTTOM - part * (this.height - TOP - BOTTOM);
    }

    axes() {
      const right = this.width - RIGHT, bottom = this.height - BOTTOM;
      const values = this.logarithmic ? logTicks(this.low, this.high) : ticks(this.low, this.high, (bottom - TOP) / 45);
      for (const value of values) {
        const y = this.py(value);
        add(this.svg, "line", { class: "grid", x1: LEFT, x2: right, y1: y, y2: y });
        add(this.svg, "text", { class: "y-tick", x: LEFT - 6, y: y + 4, "text-anchor": "end", "data-value": value }, short(value));
      }
      for (const value of ticks(view[0], view[1], (right - LEFT) / 90)) {
        const x = this.px(value);
        add(this.svg, "line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 });
        add(this.svg, "text", { class: "x-tick", x, y: bottom + 15, "text-anchor": "middle", "data-value": value }, short(value));
      }
      add(this.svg, "line", { class: "axis", x1: LEFT, x2: right, y1: bottom, y2: bottom });
      add(this.svg, "text", { x: right, y: this.height - 3, "text-anchor": "end" }, data.xName);
    }

    curve(parent, one) {
      if (one.kind === "validation") return this.validation(parent, one);
      const weight = Number(byId("smoothing").value);
      if (weight > 0) {
        this.line(parent, one, one.y, "curve faint");
        this.line(parent, one, smooth(one.y, weight), "curve smooth");
      } else this.line(parent, one, one.y, "curve");
    }

    line(parent, one, ys, kind) {
      const [from, to] = this.range(one);
      let path = "", open = false;
      for (let at = from; at < to; at++) {
        if (ys[at] === null || (this.logarithmic && ys[at] <= 0)) { open = false; continue; }
        const x = this.px(one.x[at]).toFixed(2), y = this.py(ys[at]).toFixed(2);
        const alone = !open && (at + 1 >= to || ys[at + 1] === null);
        path += alone ? `M${x} ${y}h0.01` : `${open ? "L" : "M"}${x} ${y}`;
        open = true;
      }
      const line = add(parent, "path", { class: kind, d: path, "data-run": one.run, "stroke-dasharray": dash(one.run), "stroke-linecap": "round" });
      line.style.stroke = colour(one.run);
    }

    validation(parent, one) {
      for (let at = 0; at < one.x.length; at++) {
        if (one.x[at] < view[0] || one.x[at] > view[1] || one.y[at] === null) continue;
        const x = this.px(one.x[at]), y = this.py(one.y[at]);
        const mark = add(parent, "rect", { class: "validation", "data-run": one.run, x: x - 3.5, y: y - 3.5, width: 7, height: 7 });
        mark.style.stroke = colour(one.run);
        add(mark, "title", {}, `${data.runs[one.run].name}: validation ${number(one.y[at])} at ${data.xName} ${one.x[at]}`);
      }
    }

    spikes(parent, one) {
      if (!byId("spikes").checked) return;
      const name = data.runs[one.run].name;
      for (const spike of one.spikes || []) {
        if (spike.at < view[0] || spike.at > view[1]) continue;
        const x = this.px(spike.at);
        if (spike.value === null) {
          const cross = add(parent, "path", { class: "bad", "data-run": one.run, "data-x": spike.at, d: `M${x - 4} ${TOP - 4}l8 8m0 -8l-8 8` });
          add(cross, "title", {}, `${name}: not finite at ${data.xName} ${spike.at}, ${spike.count} logged`);
        } else {
          const ring = add(parent, "circle", { class: "spike", "data-run": one.run, "data-x": spike.at, cx: x, cy: this.py(spike.value), r: 5 });
          add(ring, "title", {}, `${name}: spike at ${data.xName} ${spike.at}: ${number(spike.value)}, usual ${spike.usual === null ? "unknown" : number(spike.usual)}`);
        }
      }
    }

    marks(parent) {
      const bottom = this.height - BOTTOM;
      data.runs.forEach((run, index) => {
        if (!shown[index]) return;
        if (byId("restarts").checked) for (const restart of run.restarts) {
          if (restart.at < view[0] || restart.at > view[1]) continue;
          const x = this.px(restart.at);
          const line = add(parent, "line", { class: "restart", "data-run": index, "data-x": restart.at, x1: x, x2: x, y1: TOP, y2: bottom });
          line.style.stroke = colour(index);
          add(line, "title", {}, `${run.name}: restart after ${data.xName} ${restart.at}, ${restart.repeated} repeated`);
        }
        if (!byId("checkpoints").checked) return;
        let last = -Infinity;
        for (const at of run.checkpoints) {
          const x = this.px(at);
          if (at < view[0] || at > view[1] || x - last < 7) continue;
          last = x;
          const mark = add(parent, "path", { class: "checkpoint", "data-run": index, "data-x": at, d: `M${x} ${bottom - 6}l3.5 6h-7z` });
          mark.style.fill = colour(index);
          add(mark, "title", {}, `${run.name}: checkpoint at ${data.xName} ${at}`);
        }
      });
    }

    /* The drawn point of each run nearest to x, as [series, place]. */
    points(x) {
      return this.series().map((one) => [one, nearest(one.x, x)]).filter(([, at]) => at >= 0);
    }

    showAt(x, spoken) {
      const found = this.points(x);
      const near = found.filter(([one]) => one.kind === "train").map(([one, at]) => one.x[at]);
      if (!near.length) return this.hide();
      const best = near.reduce((left, right) => Math.abs(right - x) < Math.abs(left - x) ? right : left);
      for (const chart of charts) chart.showCursor(best);
      this.tip.replaceChildren();
      html(this.tip, "div", `${data.xName} ${best}`);
      for (const [one, at] of found) {
        if (one.kind !== "train" && one.x[at] !== best) continue;
        const row = html(this.tip, "div");
        swatch(row, one.run);
        const away = one.x[at] === best ? "" : ` (at ${one.x[at]})`;
        html(row, "span", data.runs[one.run].name + (one.kind === "train" ? "" : ", validation") + away);
        html(row, "b", number(one.y[at]));
      }
      this.tip.hidden = false;
      const left = this.px(best) + 14;
      this.tip.style.left = left + 230 > this.width ? "" : `${left}px`;
      this.tip.style.right = left + 230 > this.width ? `${this.width - this.px(best) + 14}px` : "";
      this.tip.style.top = "2.2rem";
      this.focusX = best;
      if (spoken) byId("said").textContent = [...this.tip.children].map((row) => [...row.childNodes].map((one) => one.textContent).join(" ").trim()).join(", ");
    }

    showCursor(x) {
      if (this.cursor) this.cursor.remove();
      const px = this.px(x);
      this.cursor = add(this.svg, "line", { class: "cursor", x1: px, x2: px, y1: TOP, y2: this.height - BOTTOM });
    }

    hide() {
      this.tip.hidden = true;
      for (const chart of charts) if (chart.cursor) { chart.cursor.remove(); chart.cursor = null; }
    }

    step(by) {
      const first = this.series().find((one) => one.kind === "train" && one.x.length);
      if (!first) return;
      const at = nearest(first.x, this.focusX === undefined ? view[0] : this.focusX);
      const next = this.focusX === undefined ? at : Math.min(first.x.length - 1, Math.max(0, at + by));
      if (first.x[next] < view[0] || first.x[next] > view[1]) pan(first.x[next]);
      this.showAt(first.x[next], true);
    }

    listen() {
      const svg = this.svg;
      const x = (event) => this.at((event.clientX - svg.getBoundingClientRect().left) * this.width / svg.getBoundingClientRect().width);
      let start = null, band = null;
      svg.addEventListener("pointermove", (event) => {
        if (start === null) return this.showAt(x(event));
        const [left, right] = [this.px(start), this.px(x(event))].sort((one, two) => one - two);
        if (!band) band = add(svg, "rect", { class: "select", y: TOP, height: this.height - TOP - BOTTOM });
        band.setAttribute("x", left);
        band.setAttribute("width", right - left);
      });
      svg.addEventListener("pointerleave", () => { if (start === null) this.hide(); });
      svg.addEventListener("pointerdown", (event) => {
        if (event.button || event.pointerType === "touch") return;
        start = x(event);
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointerup", (event) => {
        const ends = start === null ? null : [start, x(event)].sort((one, two) => one - two);
        start = null;
        if (band) { band.remove(); band = null; }
        if (ends && this.px(ends[1]) - this.px(ends[0]) > 4) zoom(...ends);
      });
      svg.addEventListener("pointercancel", () => { start = null; if (band) { band.remove(); band = null; } });
      svg.addEventListener("dblclick", () => zoom(...whole));
      svg.addEventListener("wheel", (event) => {
        if (!event.ctrlKey) return;
        event.preventDefault();
        scaleBy(event.deltaY > 0 ? 1.25 : 0.8, x(event));
      }, { passive: false });
      svg.addEventListener("blur", () => this.hide());
      svg.addEventListener("keydown", (event) => {
        const centre = this.focusX === undefined ? undefined : this.focusX;
        const actions = {
          ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), "+": () => scaleBy(0.5, centre), "=": () => scaleBy(0.5, centre),
          "-": () => scaleBy(2, centre), 0: () => zoom(...whole), Escape: () => this.hide(),
          Home: () => { this.focusX = whole[0]; this.step(0); }, End: () => { this.focusX = whole[1]; this.step(0); },
        };
        if (!(event.key in actions) || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        actions[event.key]();
      });
    }
  }

  function zoom(low, high) {
    low = Math.max(low, whole[0]);
    high = Math.min(high, whole[1]);
    if (high - low < (whole[1] - whole[0]) * 1e-7) return;
    view = [low, high];
    byId("reset").disabled = byId("out").disabled = low === whole[0] && high === whole[1];
    drawAll();
  }

  function scaleBy(factor, centre) {
    const middle = centre === undefined || centre < view[0] || centre > view[1] ? (view[0] + view[1]) / 2 : centre;
    zoom(middle - (middle - view[0]) * factor, middle + (view[1] - middle) * factor);
  }

  function pan(x) {
    const half = (view[1] - view[0]) / 2;
    const middle = Math.min(Math.max(x, whole[0] + half), whole[1] - half);
    zoom(middle - half, middle + half);
  }

  function drawAll() {
    for (const chart of charts) { chart.tip.hidden = true; chart.draw(); }
  }

  data.runs.forEach((run, index) => {
    const label = html(byId("runs"), "label");
    const box = html(label, "input", undefined, { type: "checkbox", "data-run": index });
    box.checked = true;
    swatch(label, index);
    html(label, "span", run.name);
    box.addEventListener("change", () => { shown[index] = box.checked; drawAll(); });
  });
  for (const id of ["spikes", "restarts", "checkpoints", "log"]) byId(id).addEventListener("change", drawAll);
  byId("smoothing").addEventListener("input", () => { byId("smoothed").textContent = byId("smoothing").value; drawAll(); });
  byId("in").addEventListener("click", () => scaleBy(0.5));
  byId("out").addEventListener("click", () => scaleBy(2));
  byId("reset").addEventListener("click", () => zoom(...whole));
  byId("theme").addEventListener("click", () => {
    const themes = ["system", "light", "dark"];
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "system") + 1) % 3];
    document.documentElement.dataset.theme = next;
    byId("theme").textContent = `Theme: ${next}`;
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").hidden = false;
  byId("reset").disabled = byId("out").disabled = true;
  const charts = data.charts.map((spec) => new Chart(spec, byId("charts")));
  drawAll();
  let waiting = false;
  new ResizeObserver(() => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawAll(); });
  }).observe(byId("charts"));
})();
