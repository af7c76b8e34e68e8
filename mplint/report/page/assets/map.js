"use strict";
// The precision map: laid out beforehand, drawn on a canvas with as much detail as the zoom leaves room for.
const drawMap = (() => {
  const NODE_W = 128, NODE_H = 34;
  const FAR = 26, NEAR = 74; // widths of a node on the screen, in pixels: below the one no rounding and no edges but casts, from the other on text
  const FOLDED = 34; // a box narrower than this on the screen is drawn as bars of its dtypes
  const SHORT = { float32: "f32", float16: "f16", bfloat16: "bf16", float64: "f64" };

  class Drawing {
    constructor(panel, data) {
      this.panel = panel;
      this.words = data.words;
      this.tensors = data.tensors;
      this.edges = data.edges;
      this.floats = new Set(data.floats);
      this.nodes = data.nodes.map((node, id) => ({ id, l: "", i: [], u: [], w: [], ...node, findings: node.x ?? [], left: node.b[0], top: node.b[1] }));
      this.scopes = data.scopes.map(([x, y, w, h, parent, name, counts], id) => ({ id, x, y, w, h, parent, name, counts, inner: [], nodes: [] }));
      this.scopes.forEach((scope) => { if (scope.parent >= 0) this.scopes[scope.parent].inner.push(scope); });
      this.nodes.forEach((node) => this.scopes[node.s].nodes.push(node));
      this.ins = this.nodes.map(() => []);
      this.outs = this.nodes.map(() => []);
      this.edges.forEach((edge, at) => { this.outs[edge[0]].push(at); this.ins[edge[1]].push(at); });
      this.total(this.scopes[0]);
      this.wide = this.nodes.some((node) => this.word(node.d) === "bfloat16"); // whose range is that of float32
      this.canvas = panel.querySelector("canvas");
      this.context = this.canvas.getContext("2d", { alpha: false });
      this.hint = panel.querySelector(".hint");
      this.detail = panel.querySelector(".detail");
      this.hidden = new Set();
      this.casts = true;
      this.selected = null;
      this.hovered = null;
      this.frames = [];
      this.view = { x: 0, y: 0, scale: 1 };
      this.pending = false;
      this.listen();
      this.recolor();
      this.resize();
    }
    word(number) { return number === undefined ? "" : this.words[number]; }
    isCast([, , given, taken]) { return given !== taken && this.floats.has(given) && this.floats.has(taken); }
    total(scope) {
      const sums = new Map(scope.counts);
      for (const inner of scope.inner) for (const [dtype, count] of this.total(inner)) sums.set(dtype, (sums.get(dtype) ?? 0) + count);
      scope.sums = [...sums].sort((a, b) => b[1] - a[1]);
      return scope.sums;
    }
    recolor() {
      const probe = document.createElement("i");
      probe.style.display = "none";
      this.panel.append(probe);
      const color = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
      this.colors = Object.fromEntries(["sunk", "card", "line", "line-strong", "ink", "soft", "accent", "cast", "bad", "float16", "bfloat16", "float32", "float64", "integer", "unknown"].map((name) => [name, color(name)]));
      this.fonts = getComputedStyle(document.body).fontFamily;
      probe.remove();
      this.ask();
    }
    color(dtype) {
      const name = this.word(dtype);
      return this.colors[name] ?? (/^(u?int|bool)/.test(name) ? this.colors.integer : this.colors.unknown);
    }
    resize() {
      const { width, height } = this.canvas.getBoundingClientRect();
      if (!width || !height) return;
      const ratio = devicePixelRatio || 1;
      const first = !this.width;
      this.width = width;
      this.height = height;
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.ratio = ratio;
      if (first) this.fit(); else this.ask();
    }
    ask() {
      if (this.pending) return;
      this.pending = true;
      requestAnimationFrame(() => { this.pending = false; this.draw(); });
    }

    // What is seen
    fit(box = this.scopes[0], most = 1.6) {
      const margin = 18;
      const scale = Math.min((this.width - 2 * margin) / box.w, (this.height - 2 * margin) / box.h, most);
      this.view = { scale, x: box.x + box.w / 2 - this.width / scale / 2, y: box.y + box.h / 2 - this.height / scale / 2 };
      this.ask();
    }
    zoom(factor, px = this.width / 2, py = this.height / 2) {
      const { x, y, scale } = this.view;
      const least = Math.min(this.width / this.scopes[0].w, this.height / this.scopes[0].h) / 3;
      const next = Math.max(least, Math.min(4, scale * factor));
      this.view = { scale: next, x: x + px / scale - px / next, y: y + py / scale - py / next };
      this.ask();
    }
    pan(dx, dy) {
      this.view.x -= dx / this.view.scale;
      this.view.y -= dy / this.view.scale;
      this.ask();
    }
    at(px, py) {
      const x = this.view.x + px / this.view.scale, y = this.view.y + py / this.view.scale;
      let scope = this.scopes[0];
      for (;;) {
        const slack = 6 / this.view.scale;
        const node = scope.nodes.find((one) => x >= one.left - slack && x <= one.left + NODE_W + slack && y >= one.top - slack && y <= one.top + NODE_H + slack);
        if (node) return { node, scope };
        const inner = scope.inner.find((one) => x >= one.x && x <= one.x + one.w && y >= one.y && y <= one.y + one.h);
        if (!inner) return { node: null, scope };
        scope = inner;
      }
    }

    // Drawing
    draw() {
      const begun = performance.now();
      const { context: c, ratio, view, colors } = this;
      if (!this.width) return;
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.fillStyle = colors.sunk;
      c.fillRect(0, 0, this.width, this.height);
      c.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, -view.x * view.scale * ratio, -view.y * view.scale * ratio);
      this.window = { left: view.x, top: view.y, right: view.x + this.width / view.scale, bottom: view.y + this.height / view.scale };
      const visible = [];
      this.drawScope(this.scopes[0], 0, visible);
      const wide = NODE_W * view.scale;
      if (wide >= FAR) this.drawEdges(false);
      this.drawNodes(visible, wide);
      if (this.casts) this.drawEdges(true);
      this.drawSelection();
      this.frames.push(performance.now() - begun);
      if (this.frames.length > 240) this.frames.shift();
    }
    seen(left, top, width, height) {
      const { window: w } = this;
      return left < w.right && left + width > w.left && top < w.bottom && top + height > w.top;
    }
    drawScope(scope, depth, visible) {
      if (depth && !this.seen(scope.x, scope.y, scope.w, scope.h)) return;
      const { context: c, view, colors } = this;
      const wide = scope.w * view.scale, high = scope.h * view.scale;
      if (depth) {
        c.fillStyle = depth % 2 ? colors.card : colors.sunk;
        c.strokeStyle = colors.line;
        c.lineWidth = 1 / view.scale;
        c.beginPath();
        if (wide > 40) c.roundRect(scope.x, scope.y, scope.w, scope.h, Math.min(10, 8 / view.scale)); else c.rect(scope.x, scope.y, scope.w, scope.h);
        c.fill();
        c.stroke();
        if (wide < FOLDED) {
          this.drawSums(scope);
          return;
        }
      }
      if (NODE_W * view.scale < 2.5 && scope.nodes.length > 3 && !scope.inner.length) this.drawSums(scope);
      else for (const node of scope.nodes) if (this.seen(node.left, node.top, NODE_W, NODE_H)) visible.push(node);
      for (const inner of scope.inner) this.drawScope(inner, depth + 1, visible);
      if (depth && wide > 46 && high > 20) this.label(scope, wide);
    }
    label(scope, wide) {
      const { context: c, view, colors } = this;
      const size = Math.min(15, Math.max(9.5, 22 * view.scale)) / view.scale;
      if (size > 26 && scope.h * view.scale < 60 && scope.inner.length + scope.nodes.length > 0) return;
      const room = wide - 12;
      c.font = `600 ${size}px ${this.fonts}`;
      c.textBaseline = "top";
      const text = this.fitted(scope.name, room / view.scale);
      if (!text) return;
      const width = c.measureText(text).width;
      if (size > 20) {
        c.globalAlpha = .82;
        c.fillStyle = colors.card;
        c.fillRect(scope.x + 4 / view.scale, scope.y + 3 / view.scale, width + 6 / view.scale, size * 1.25);
        c.globalAlpha = 1;
      }
      c.fillStyle = colors.soft;
      c.fillText(text, scope.x + 7 / view.scale, scope.y + 4 / view.scale);
    }
    fitted(text, room) {
      const { context: c } = this;
      if (c.measureText(text).width <= room) return text;
      let short = text;
      while (short.length > 1 && c.measureText(`${short}…`).width > room) short = short.slice(0, Math.max(1, Math.floor(short.length * .85)));
      return short.length > 1 ? `${short}…` : "";
    }
    drawSums(scope) {
      const { context: c, view } = this;
      const all = scope.sums.reduce((sum, [, count]) => sum + count, 0);
      const gap = Math.min(2 / view.scale, scope.w * .08);
      let x = scope.x + gap;
      for (const [dtype, count] of scope.sums) {
        const width = (scope.w - 2 * gap) * count / all;
        c.globalAlpha = this.hidden.has(dtype) ? .12 : .9;
        c.fillStyle = this.color(dtype);
        c.fillRect(x, scope.y + gap, width, scope.h - 2 * gap);
        x += width;
      }
      c.globalAlpha = 1;
    }
    drawNodes(visible, wide) {
      const { context: c, colors, view } = this;
      const groups = new Map();
      for (const node of visible) {
        if (!groups.has(node.d)) groups.set(node.d, []);
        groups.get(node.d).push(node);
      }
      for (const [dtype, nodes] of groups) {
        const dim = this.hidden.has(dtype);
        const color = this.color(dtype);
        c.globalAlpha = dim ? .14 : 1;
        c.beginPath();
        for (const node of nodes) {
          if (wide < FAR) c.rect(node.left, node.top, NODE_W, NODE_H); else c.roundRect(node.left, node.top, NODE_W, NODE_H, node.k ? NODE_H / 2 : 7);
        }
        if (wide < NEAR) {
          c.fillStyle = color;
          c.fill();
        } else {
          c.fillStyle = colors.card;
          c.fill();
          c.lineWidth = 1.2;
          c.strokeStyle = color;
          c.stroke();
          this.drawTexts(nodes, color);
        }
      }
      c.globalAlpha = 1;
      for (const node of visible) {
        if (!node.findings.length) continue;
        const radius = Math.max(5, 4 / view.scale);
        c.beginPath();
        c.arc(node.left + NODE_W, node.top, radius, 0, 2 * Math.PI);
        c.fillStyle = colors.bad;
        c.fill();
      }
    }
    drawTexts(nodes, color) {
      const { context: c, colors } = this;
      const small = NODE_W * this.view.scale < 1.35 * NEAR; // what nobody could read is not drawn
      c.textBaseline = "middle";
      for (const node of nodes) {
        c.fillStyle = color;
        c.beginPath();
        c.roundRect(node.left, node.top, 30, NODE_H, node.k ? [NODE_H / 2, 0, 0, NODE_H / 2] : [7, 0, 0, 7]);
        c.fill();
        const name = this.word(node.d);
        c.fillStyle = colors.card;
        c.font = `700 9px ${this.fonts}`;
        c.textAlign = "center";
        c.fillText(SHORT[name] ?? name.replace("uint", "u").replace("int", "i").slice(0, 4), node.left + 15, node.top + NODE_H / 2);
        c.textAlign = "left";
        c.fillStyle = colors.ink;
        c.font = `600 12px ${this.fonts}`;
        const title = node.k ? node.n : this.word(node.o).replace(/^aten\./, "").replace(/\.(default|Tensor)$/, "");
        c.fillText(this.fitted(title, NODE_W - 40), node.left + 36, node.top + (node.k || small ? NODE_H / 2 : 12));
        if (node.k || small) continue;
        c.fillStyle = colors.soft;
        c.font = `9px ${this.fonts}`;
        c.fillText(this.fitted(this.shape(node), NODE_W - 40), node.left + 36, node.top + 25);
      }
    }
    shape(node) {
      const out = this.tensors[node.u[0]];
      if (!out) return "";
      return out.s ? out.s.split(", ").map((size) => (size.length > 6 && !/^\d+$/.test(size) ? "…" : size)).join(" × ") : "scalar";
    }
    trace([source, target]) {
      const { context: c } = this;
      const a = this.nodes[source], b = this.nodes[target];
      if (b.top >= a.top + NODE_H) {
        const x1 = a.left + NODE_W / 2, y1 = a.top + NODE_H, x2 = b.left + NODE_W / 2, y2 = b.top;
        const bend = Math.min(60, (y2 - y1) / 2);
        c.moveTo(x1, y1);
        c.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2);
      } else {
        const right = b.left > a.left;
        const x1 = a.left + (right ? NODE_W : 0), y1 = a.top + NODE_H / 2, x2 = b.left + (right ? 0 : NODE_W), y2 = b.top + NODE_H / 2;
        const bend = Math.max(24, Math.min(90, Math.abs(x2 - x1) / 2)) * (right ? 1 : -1);
        c.moveTo(x1, y1);
        c.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      }
    }
    drawEdges(casts) {
      const { context: c, colors, view, window: w } = this;
      const wide = NODE_W * view.scale;
      c.beginPath();
      let any = false;
      for (const edge of this.edges) {
        if (this.isCast(edge) !== casts) continue;
        const a = this.nodes[edge[0]], b = this.nodes[edge[1]];
        if (Math.max(a.left, b.left) + NODE_W < w.left || Math.min(a.left, b.left) > w.right || Math.max(a.top, b.top) + NODE_H < w.top || Math.min(a.top, b.top) > w.bottom) continue;
        this.trace(edge);
        any = true;
      }
      if (!any) return;
      c.lineWidth = (casts ? Math.min(2.2, Math.max(.7, wide / 40)) : wide > NEAR ? 1.1 : .7) / view.scale;
      c.strokeStyle = casts ? colors.cast : colors["line-strong"];
      c.globalAlpha = casts ? (wide < FAR ? .5 : .9) : .8;
      if (casts && wide >= FAR) c.setLineDash([7 / view.scale, 4 / view.scale]);
      c.stroke();
      c.setLineDash([]);
      c.globalAlpha = 1;
      if (casts && wide >= NEAR) this.drawCastLabels();
    }
    drawCastLabels() {
      const { context: c, colors } = this;
      c.font = `700 8.5px ${this.fonts}`;
      c.textBaseline = "middle";
      c.textAlign = "center";
      for (const edge of this.edges) {
        if (!this.isCast(edge)) continue;
        const b = this.nodes[edge[1]];
        if (!this.seen(b.left, b.top - 20, NODE_W, NODE_H + 20)) continue;
        const text = `${SHORT[this.word(edge[2])] ?? this.word(edge[2])} → ${SHORT[this.word(edge[3])] ?? this.word(edge[3])}`;
        const a = this.nodes[edge[0]];
        const below = b.top >= a.top + NODE_H;
        const x = below ? b.left + NODE_W / 2 : b.left > a.left ? b.left - 4 : b.left + NODE_W + 4, y = below ? b.top - 7 : b.top + NODE_H / 2 - 12;
        const width = c.measureText(text).width + 8;
        c.fillStyle = colors.cast;
        c.beginPath();
        c.roundRect(x - width / 2, y - 6, width, 12, 6);
        c.fill();
        c.fillStyle = colors.card;
        c.fillText(text, x, y + .5);
      }
      c.textAlign = "left";
    }
    drawSelection() {
      const { context: c, colors, view, selected } = this;
      const thick = Math.max(2.5, 2 / view.scale);
      if (this.hovered && this.hovered !== selected) this.outline(this.hovered, colors["line-strong"], thick);
      if (!selected) return;
      c.strokeStyle = colors.accent;
      c.lineWidth = thick;
      c.beginPath();
      for (const at of [...this.ins[selected.id], ...this.outs[selected.id]]) this.trace(this.edges[at]);
      c.stroke();
      for (const at of this.ins[selected.id]) this.outline(this.nodes[this.edges[at][0]], colors.accent, thick / 2);
      for (const at of this.outs[selected.id]) this.outline(this.nodes[this.edges[at][1]], colors.accent, thick / 2);
      this.outline(selected, colors.accent, thick * 1.6);
    }
    outline(node, color, width) {
      const { context: c } = this;
      c.strokeStyle = color;
      c.lineWidth = width;
      c.beginPath();
      c.roundRect(node.left - width, node.top - width, NODE_W + 2 * width, NODE_H + 2 * width, 8);
      c.stroke();
    }

    // What is told
    select(node, { move = false } = {}) {
      this.selected = node;
      if (node && move) {
        const scale = Math.max(this.view.scale, Math.min(1, NEAR / NODE_W * 1.3));
        this.view = { scale, x: node.left + NODE_W / 2 - this.width / scale / 2, y: node.top + NODE_H / 2 - this.height / scale / 2 };
      }
      this.tell(node);
      this.ask();
    }
    step(by) {
      const count = this.nodes.length;
      let at = this.selected ? this.selected.id : by > 0 ? -1 : count;
      at = (at + by + count) % count;
      this.select(this.nodes[at], { move: true });
    }
    tell(node) {
      const make = (tag, text, kind) => { const one = document.createElement(tag); if (text !== undefined) one.textContent = text; if (kind) one.className = kind; return one; };
      if (!node) {
        this.detail.replaceChildren(this.welcome);
        return;
      }
      const parts = [make("h3", node.n)];
      const about = make("p", undefined, "soft");
      const chip = make("span", undefined, `chip d-${this.word(node.d)}`);
      about.append(chip, [this.word(node.d), this.word(node.o), node.l].filter(Boolean).join(" · "));
      parts.push(about);
      if (node.r !== undefined) parts.push(make("p", this.word(node.r), "reason"));
      else if (node.k === 0 && this.why) {
        const half = ["float16", "bfloat16"].includes(this.word(node.d));
        const text = this.why[half ? "half" : this.floats.has(node.d) ? "float" : "other"];
        if (text) parts.push(make("p", text, half ? "reason half" : "soft"));
      }
      if (node.p !== undefined) parts.push(make("p", `${node.p < .01 ? "< 0.01" : node.p.toFixed(2)}% of the model's work`, "soft"));
      if (node.findings.length) {
        parts.push(make("h4", "Findings"));
        const list = make("ul");
        for (const number of node.findings) {
          const card = document.getElementById(`finding-${number}`);
          const link = make("a", (card?.querySelector("h4") ?? card?.closest(".card")?.querySelector("h4"))?.textContent ?? `finding ${number + 1}`);
          link.href = `#finding-${number}`;
          const item = make("li");
          item.append(link);
          list.append(item);
        }
        parts.push(list);
      }
      for (const [title, tensors] of [["Reads", node.i], ["Weights", node.w], ["Gives", node.u]]) {
        if (!tensors.length) continue;
        parts.push(make("h4", title));
        const list = make("ul");
        tensors.forEach((number) => list.append(this.tensorItem(this.tensors[number], make)));
        parts.push(list);
      }
      for (const [title, edges, end] of [["Comes from", this.ins[node.id], 0], ["Goes to", this.outs[node.id], 1]]) {
        if (!edges.length) continue;
        parts.push(make("h4", title));
        const list = make("ul");
        for (const at of edges.slice(0, 40)) {
          const other = this.nodes[this.edges[at][end]];
          const item = make("li");
          const link = make("button", other.k ? other.n : `${this.word(other.o)} · ${other.n}`, "link");
          link.type = "button";
          link.addEventListener("click", () => this.select(other, { move: true }));
          item.append(link);
          if (this.isCast(this.edges[at])) item.append(make("span", `cast ${this.word(this.edges[at][2])} → ${this.word(this.edges[at][3])}`, "about"));
          list.append(item);
        }
        parts.push(list);
      }
      this.detail.replaceChildren(...parts);
      this.detail.scrollTop = 0;
    }
    tensorItem(tensor, make) {
      const item = make("li");
      item.append(make("span", tensor.n || "(a number)", "tensor"));
      const size = tensor.b === null ? "" : ` · ${this.bytes(tensor.b)}`;
      item.append(make("span", `${this.word(tensor.d)}[${tensor.s}]${size}`, "about"));
      if (tensor.r) {
        const [low, high] = tensor.r;
        const text = low === high ? `value ${low}` : low !== null && high !== null ? `values from ${low} to ${high}` : low !== null ? `values of at least ${low}` : `values of at most ${high}`;
        const largest = Math.max(Math.abs(low ?? 0), Math.abs(high ?? 0));
        item.append(make("span", largest > 65504 ? `${text}: beyond float16, which ends at 65504` : text, "about"));
      }
      if (tensor.m !== null && tensor.m !== undefined) item.append(...this.size(tensor.m, make));
      return item;
    }
    size(largest, make) {
      // From 2^-24, below which float16 is 0, over 2^-14, from which on it has all its digits, and 65504, where it ends, to 2^20.
      const text = make("span", largest < 0 ? "became infinite on the samples" : `up to ${largest} on the samples`, "about");
      if (largest <= 0 || this.wide) return [text];
      const bar = make("span", undefined, "range");
      const mark = make("i");
      mark.style.left = `${Math.max(0, Math.min(100, (Math.log2(largest) + 24) / 44 * 100))}%`;
      bar.append(mark);
      bar.title = "From what float16 rounds to 0 (left) to beyond its end at 65504 (right)";
      return [text, bar];
    }
    bytes(count) {
      for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
      return `${count} B`;
    }
    find(text) {
      const words = text.toLowerCase().split(/\s+/).filter(Boolean);
      if (!words.length) return [];
      return this.nodes.filter((node) => {
        const all = `${node.n} ${this.word(node.o)} ${this.word(node.d)} ${node.l}`.toLowerCase();
        return words.every((word) => all.includes(word));
      });
    }
    hover(px, py) {
      const { node, scope } = this.at(px, py);
      if (node !== this.hovered) {
        this.hovered = node;
        this.ask();
      }
      const names = [];
      for (let one = scope; one && one.parent >= 0; one = this.scopes[one.parent]) names.unshift(one.name);
      this.hint.textContent = node ? [...names, `${this.word(node.o)} ${node.n} (${this.word(node.d)})`].join(" › ") : names.join(" › ") || this.usual;
    }

    listen() {
      const { canvas, panel } = this;
      const pointers = new Map();
      let moved = 0;
      this.usual = this.hint.textContent;
      this.welcome = this.detail.firstElementChild;
      canvas.addEventListener("pointerdown", (event) => {
        canvas.setPointerCapture(event.pointerId);
        pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
        moved = 0;
        this.usual = "";
        canvas.classList.add("dragging");
      });
      canvas.addEventListener("pointermove", (event) => {
        const before = pointers.get(event.pointerId);
        if (!before) {
          this.hover(event.offsetX, event.offsetY);
          return;
        }
        const now = [event.offsetX, event.offsetY];
        const dx = now[0] - before[0], dy = now[1] - before[1];
        moved += Math.abs(dx) + Math.abs(dy);
        if (pointers.size === 1) this.pan(dx, dy);
        else {
          const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
          const far = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
          this.zoom(far(now, other) / Math.max(1, far(before, other)), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
          this.pan(dx / 2, dy / 2);
        }
        pointers.set(event.pointerId, now);
      });
      const release = (event) => {
        if (event.type === "pointerup" && moved < 6 && pointers.size === 1) this.select(this.at(event.offsetX, event.offsetY).node);
        pointers.delete(event.pointerId);
        if (!pointers.size) canvas.classList.remove("dragging");
      };
      canvas.addEventListener("pointerup", release);
      canvas.addEventListener("pointercancel", release);
      canvas.addEventListener("dblclick", (event) => this.zoom(2, event.offsetX, event.offsetY));
      canvas.addEventListener("wheel", (event) => {
        if (document.activeElement !== canvas && !event.ctrlKey && !panel.classList.contains("wide")) return; // the page scrolls on
        event.preventDefault();
        this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? .05 : .0016)), event.offsetX, event.offsetY);
      }, { passive: false });
      canvas.addEventListener("keydown", (event) => {
        const far = event.shiftKey ? 240 : 60;
        const keys = {
          ArrowLeft: () => this.pan(far, 0), ArrowRight: () => this.pan(-far, 0), ArrowUp: () => this.pan(0, far), ArrowDown: () => this.pan(0, -far),
          "+": () => this.zoom(1.4), "=": () => this.zoom(1.4), "-": () => this.zoom(1 / 1.4), 0: () => this.fit(),
          "]": () => this.step(1), "[": () => this.step(-1), Enter: () => this.selected && this.fit({ x: this.selected.left - 200, y: this.selected.top - 120, w: NODE_W + 400, h: NODE_H + 240 }),
          Escape: () => (panel.classList.contains("wide") ? this.widen(false) : this.select(null)),
        };
        if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
        event.preventDefault();
        keys[event.key]();
      });
      panel.querySelector("[data-zoom-in]").addEventListener("click", () => this.zoom(1.5));
      panel.querySelector("[data-zoom-out]").addEventListener("click", () => this.zoom(1 / 1.5));
      panel.querySelector("[data-zoom-fit]").addEventListener("click", () => this.fit());
      panel.querySelector("[data-widen]").addEventListener("click", () => this.widen(!panel.classList.contains("wide")));
      for (const key of panel.querySelectorAll("[data-dtype]")) {
        key.addEventListener("click", () => {
          const dtype = this.words.indexOf(key.dataset.dtype);
          const on = key.getAttribute("aria-pressed") !== "true";
          key.setAttribute("aria-pressed", String(on));
          if (on) this.hidden.delete(dtype); else this.hidden.add(dtype);
          this.ask();
        });
      }
      panel.querySelector("[data-casts]")?.addEventListener("click", (event) => {
        this.casts = !this.casts;
        event.currentTarget.setAttribute("aria-pressed", String(this.casts));
        this.ask();
      });
      const search = panel.querySelector("[data-map-search]");
      const told = panel.querySelector("[data-map-found]");
      let found = [], turn = 0;
      search.addEventListener("input", () => {
        found = this.find(search.value);
        turn = 0;
        told.textContent = search.value.trim() ? `${found.length} found` : "";
      });
      search.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || !found.length) return;
        event.preventDefault();
        this.select(found[turn % found.length], { move: true });
        turn += event.shiftKey ? found.length - 1 : 1;
        told.textContent = `${(turn - 1) % found.length + 1} of ${found.length}`;
      });
      new ResizeObserver(() => this.resize()).observe(canvas);
      document.addEventListener("themechange", () => this.recolor());
    }
    widen(on) {
      this.panel.classList.toggle("wide", on);
      this.panel.querySelector("[data-widen]").setAttribute("aria-pressed", String(on));
      this.resize();
      this.fit();
    }
    to(scope) {
      const box = this.scopes[scope];
      this.fit(box);
      this.canvas.focus();
    }
  }
  return (panel, data) => new Drawing(panel, data);
})();
(() => {
  const maps = {};
  document.querySelectorAll("[data-map]").forEach((panel) => {
    const data = page.data.maps[Number(panel.dataset.map)];
    if (!data) return;
    const made = drawMap(panel, data);
    made.why = panel.dataset.half ? { half: panel.dataset.half, float: panel.dataset.float } : null;
    maps[panel.dataset.map] = made;
  });
  page.maps = maps;
  document.querySelectorAll("[data-to-scope]").forEach((link) => link.addEventListener("click", () => {
    const map = maps[link.dataset.of];
    map.panel.scrollIntoView({ block: "nearest" });
    map.to(Number(link.dataset.toScope));
  }));
  document.querySelectorAll("[data-to-node]").forEach((link) => link.addEventListener("click", () => {
    const map = maps[link.dataset.of];
    const node = map?.nodes.find((one) => one.n === link.dataset.toNode);
    if (!node) return;
    map.panel.scrollIntoView({ block: "nearest" });
    map.select(node, { move: true });
    map.canvas.focus();
  }));
  const first = Object.values(maps)[0];
  if (!first) return;
  page.shortcut("m", "to the map", () => { first.panel.scrollIntoView({ block: "nearest" }); first.canvas.focus({ preventScroll: true }); });
  page.shortcut("s", "search the map", () => first.panel.querySelector("[data-map-search]").focus());
  const inMap = () => {};
  page.shortcut("arrows", "on the map: move (with Shift: further)", inMap, "← → ↑ ↓");
  page.shortcut("plusminus", "on the map: nearer, farther, all of it", inMap, "+ - 0");
  page.shortcut("brackets", "on the map: previous and next operation", inMap, "[ ]");
  page.shortcut("enter", "on the map: zoom to the chosen operation", inMap, "Enter");
})();
