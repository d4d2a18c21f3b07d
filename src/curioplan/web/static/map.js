// Draws a map from above: rows downwards, columns to the right; positions are (row, column) minus an offset.

const RIM = 0.25; // of wall around the free cells
const BALL = 0.13;

export class MapView {
  constructor(canvas, map) {
    this.canvas = canvas;
    this.map = map;
    this.context = canvas.getContext("2d");
    const rows = map.free.map((row) => row.some(Boolean));
    const columns = map.free[0].map((_, j) => map.free.some((row) => row[j]));
    this.top = rows.indexOf(true) - RIM;
    this.left = columns.indexOf(true) - RIM;
    this.height = rows.lastIndexOf(true) + 1 + RIM - this.top;
    this.width = columns.lastIndexOf(true) + 1 + RIM - this.left;
    this.state = null;
    this.trail = [];
    this.landscape = null;
    this.graph = null;
    this.dragged = null;
    this.resize();
  }

  // As many pixels as are shown, so that lines are sharp.
  resize() {
    const shown = this.canvas.clientWidth || 640;
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    const width = Math.round(shown * ratio);
    if (width === this.canvas.width && this.scale) return;
    this.canvas.width = width; // which clears it, so it is painted at once
    this.canvas.height = Math.round((width * this.height) / this.width);
    this.scale = width / this.width;
    this.pen = Math.min(this.scale, 110 * ratio); // lines need not grow with small maps
    this.paint();
  }

  // From a position to pixels of the canvas, and from a pointer on the page to a position.
  pixel([x, y]) {
    const { offset } = this.map;
    return [(y + offset + 0.5 - this.left) * this.scale, (x + offset + 0.5 - this.top) * this.scale];
  }

  position(event) {
    const box = this.canvas.getBoundingClientRect();
    const { offset } = this.map;
    const across = ((event.clientX - box.left) / box.width) * this.width + this.left;
    const down = ((event.clientY - box.top) / box.height) * this.height + this.top;
    return [down - offset - 0.5, across - offset - 0.5];
  }

  isOnBall(place) {
    if (!this.state) return false;
    const [x, y] = this.state.observation;
    return Math.hypot(place[0] - x, place[1] - y) < 0.25;
  }

  // Drawing happens once per frame of the screen, however many steps there were.
  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.paint();
    });
  }

  paint() {
    const { context, canvas, map, scale } = this;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    context.lineJoin = context.lineCap = "round";
    context.fillStyle = colour("floor");
    context.fillRect(0, 0, canvas.width, canvas.height);
    if (this.landscape) {
      context.imageSmoothingEnabled = true;
      const [x, y] = [-this.left * scale, -this.top * scale];
      context.drawImage(this.landscape, x, y, map.free[0].length * scale, map.free.length * scale);
    }
    context.fillStyle = colour("wall");
    map.free.forEach((row, i) =>
      row.forEach((free, j) => {
        if (!free) {
          context.fillRect((j - this.left) * scale - 0.5, (i - this.top) * scale - 0.5, scale + 1, scale + 1);
        }
      }),
    );
    this.paintZones(colour);
    if (this.graph) this.paintGraph(colour);
    if (this.state) this.paintAgent(colour);
  }

  paintZones(colour) {
    const { context, scale } = this;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.font = `${scale * 0.3}px system-ui, sans-serif`;
    for (const [name, [xLow, yLow, xHigh, yHigh]] of Object.entries(this.map.zones)) {
      const wanted = this.state?.goal?.includes(Number(name));
      const [left, top] = this.pixel([xLow, yLow]);
      const [right, bottom] = this.pixel([xHigh, yHigh]);
      context.strokeStyle = context.fillStyle = colour(wanted ? "goal" : "zone");
      context.lineWidth = this.pen * (wanted ? 0.04 : 0.015);
      context.strokeRect(left, top, right - left, bottom - top);
      context.fillText(name, (left + right) / 2, (top + bottom) / 2);
    }
  }

  paintGraph(colour) {
    const { context, pen, graph } = this;
    const places = graph.vertices.map((vertex) => this.pixel(vertex));
    context.strokeStyle = context.fillStyle = this.landscape ? "#fff" : colour("edge");
    context.globalAlpha = 0.5;
    context.lineWidth = Math.max(1, pen * 0.01);
    context.beginPath();
    for (const [from, to] of graph.edges) {
      context.moveTo(...places[from]);
      context.lineTo(...places[to]);
    }
    context.stroke();
    context.globalAlpha = 1;
    for (const place of places) this.disc(place, 0.03, this.pen);
    if (!this.state?.goal) return;
    const way = graph.path.map((vertex) => places[vertex]);
    const ends = this.map.goal_is_place ? [this.pixel(this.state.goal)] : [];
    context.strokeStyle = context.fillStyle = colour("path");
    this.line([this.pixel(this.state.observation), ...way, ...ends], 0.045);
    for (const place of way) this.disc(place, 0.05, this.pen);
  }

  paintAgent(colour) {
    const { context, scale, pen, state } = this;
    if (state.goal && this.map.goal_is_place) {
      const place = this.pixel(state.goal);
      context.strokeStyle = context.fillStyle = colour("goal");
      this.disc(place, 0.09);
      context.beginPath();
      context.arc(...place, (this.map.radius ?? 0.2) * scale, 0, 7);
      context.lineWidth = pen * 0.03;
      context.setLineDash([pen * 0.1, pen * 0.07]);
      context.stroke();
      context.setLineDash([]);
    }
    this.cased(this.trail.map((place) => this.pixel(place)), 0.035, colour("trail"), colour("floor"));
    for (const plan of state.plans) {
      context.strokeStyle = colour("plan");
      this.line(plan.map((place) => this.pixel(place)), 0.022);
    }
    const [x, y, vx = 0, vy = 0] = state.observation;
    const shown = this.dragged ?? [x, y];
    if (!this.dragged) {
      this.cased([this.pixel([x, y]), this.pixel([x + 0.15 * vx, y + 0.15 * vy])], 0.03, colour("ball"), colour("floor"));
    }
    context.fillStyle = colour("ball");
    context.strokeStyle = colour("panel");
    context.lineWidth = pen * 0.03;
    this.disc(this.pixel(shown), BALL);
    context.stroke();
  }

  line(pixels, width) {
    const { context } = this;
    if (pixels.length < 2) return;
    context.lineWidth = this.pen * width;
    context.beginPath();
    for (const pixel of pixels) context.lineTo(...pixel);
    context.stroke();
  }

  // A line that is seen on any ground.
  cased(pixels, width, colour, casing) {
    this.context.strokeStyle = casing;
    this.line(pixels, 2 * width);
    this.context.strokeStyle = colour;
    this.line(pixels, width);
  }

  disc(place, radius, unit = this.scale) {
    this.context.beginPath();
    this.context.arc(...place, radius * unit, 0, 7);
    this.context.fill();
  }
}
