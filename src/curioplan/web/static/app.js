// The page of the playground: sends what is clicked and typed, and shows what it is told.
import { MapView } from "./map.js";

const LONGEST_TRAIL = 1500;
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const DESCRIPTIONS = {
  actor: "the policy alone",
  mbp: "planning towards V̂",
  "mbp+graph": "planning towards V̄",
};

const find = (id) => document.getElementById(id);
const canvas = find("world");
const say = (text) => {
  const status = find("status");
  if (status.textContent !== text) status.textContent = text;
};
const numbers = (list) => list.map((x) => Number(x.toFixed(2))).join(", ");

let socket = null;
let hello = null;
let state = null;
let view = null; // of the map, where there is one
let pressed = null; // the pointer that is down on the map
let sent = 0; // messages
let waiting = 0; // of them, for answers
let delay = 500; // ms before connecting again
let away = false; // on another page, while this one is kept to come back to

function connect() {
  const own = new WebSocket(new URL("socket", location.href.replace(/^http/, "ws")));
  socket = own;
  socket.binaryType = "blob";
  socket.onmessage = ({ data }) => (typeof data === "string" ? receive(JSON.parse(data)) : showFrame(data));
  socket.onclose = ({ code }) => {
    if (away || socket !== own) return;
    sent = waiting = 0;
    say(code === 1013 ? "No place left." : "The connection is lost. Trying again…");
    setTimeout(connect, delay);
    delay = Math.min(2 * delay, 8000);
  };
}

function send(message) {
  if (socket.readyState !== WebSocket.OPEN) return;
  showError("");
  sent += 1;
  waiting += 1;
  setTimeout(() => waiting && say("Working on it…"), 400);
  socket.send(JSON.stringify(message));
}

function receive(message) {
  if (message.type === "hello") welcome(message);
  else if (message.type === "state") update(message);
  else if (message.type === "landscape") showLandscape(message);
  else if (message.type === "graph") showGraph(message);
  else if (message.type === "error") showError(message.text);
}

// The first message: what there is.
function welcome(message) {
  hello = message;
  delay = 500;
  state = null;
  find("task").textContent = hello.task;
  document.title = `${hello.task} · curioplan playground`;
  fill(find("pace"), hello.paces.map((pace) => [pace, String(pace)]));
  fill(find("cases"), [["", "choose…"], ...hello.cases.map(({ name }) => [name, name])]);
  find("cases-row").hidden = !hello.cases.length;
  const group = find("controllers");
  group.replaceChildren(group.firstElementChild, ...hello.controllers.map(radio));
  find("drawn").hidden = !hello.map;
  find("numbers").placeholder = hello.goal_dim === 2 ? "1.8, 2.8" : `${hello.goal_dim} numbers`;
  view = hello.map && new MapView(canvas, hello.map);
  find("hint").textContent = hint();
  describe();
}

function hint() {
  if (!hello.map) return "Choose a goal. Arrow keys or the buttons below push the agent off course.";
  const goal = hello.map.goal_is_place ? "Click the floor to set a goal." : "Click zones to set the goal, the last one last.";
  return `${goal} Drag the ball, or press arrow keys here, to push the agent off course.`;
}

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
}

function radio(name) {
  const label = document.createElement("label");
  const input = document.createElement("input");
  Object.assign(input, { type: "radio", name: "controller", value: name });
  input.addEventListener("change", () => send({ type: "controller", name }));
  label.append(input, ` ${name}: ${DESCRIPTIONS[name] ?? ""}`);
  return label;
}

// How things are.
function update(message) {
  const before = state;
  state = message;
  waiting = sent - state.answered;
  if (view) {
    if (before?.episode !== state.episode || String(before?.goal) !== String(state.goal)) view.trail = [];
    view.trail.push(state.observation.slice(0, 2));
    if (view.trail.length > LONGEST_TRAIL) view.trail.shift();
    view.state = state;
    if (state.show.landscape === "none") view.landscape = null;
    if (!state.show.graph) view.graph = null;
    view.draw();
  }
  find("steps").textContent = state.steps;
  find("rate").textContent = state.rate === null ? "–" : `${state.rate} Hz`;
  find("achieved").textContent = numbers(state.achieved);
  find("goal").textContent = state.goal ? numbers(state.goal) : "–";
  find("play").textContent = state.paused ? "Play" : state.phase === "late" ? "Go on" : "Pause";
  find("pace").value = state.pace;
  find("plans").checked = state.show.plans;
  find("graph").checked = state.show.graph;
  find("scale").hidden = state.show.landscape === "none" || !view?.landscape;
  find("about-graph").hidden = !state.show.graph;
  check("landscape", state.show.landscape);
  check("controller", state.controller);
  describe();
}

function check(name, value) {
  const input = document.querySelector(`input[name="${name}"][value="${CSS.escape(value)}"]`);
  if (input) input.checked = true;
}

function describe() {
  if (!state || waiting) return;
  const goal = state.goal ? `(${numbers(state.goal)})` : "";
  const texts = {
    idle: hello.map ? "Where to? Choose a goal." : "Choose a goal.",
    going: state.paused ? "Paused." : state.pushed ? "Pushed!" : `On the way to ${goal}.`,
    reached: `Reached ${goal} in ${state.steps} steps.`,
    late: `Not there after ${state.steps} steps.`,
    over: "The environment ended the episode.",
  };
  say(texts[state.phase] ?? "");
  find("status").className = state.phase;
  canvas.setAttribute("aria-label", `${hello.task}: ${texts[state.phase] ?? ""}`);
}

async function showLandscape({ kind, png, nearest, farthest }) {
  const bytes = Uint8Array.from(atob(png), (character) => character.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  if (!view || state.show.landscape !== kind) return;
  view.landscape = image;
  find("scale").hidden = false;
  find("nearest").textContent = Math.round(nearest);
  find("farthest").textContent = Math.round(farthest);
  view.draw();
}

function showGraph(graph) {
  if (!view || !state.show.graph) return;
  view.graph = graph;
  const limit = graph.threshold === null ? "none" : graph.threshold.toFixed(1);
  find("about-graph").textContent =
    `${graph.vertices.length} vertices, ${graph.within} edges within the threshold of ${limit} steps, ` +
    `${graph.path.length} on the path`;
  view.draw();
}

async function showFrame(blob) {
  const image = await createImageBitmap(blob);
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.getContext("2d").drawImage(image, 0, 0);
}

function showError(text) {
  find("error").textContent = text;
  find("error").hidden = !text;
}

// What people do.
function show() {
  const landscape = document.querySelector('input[name="landscape"]:checked').value;
  send({ type: "show", landscape, graph: find("graph").checked, plans: find("plans").checked });
}

find("play").addEventListener("click", () => send({ type: state?.paused || state?.phase === "late" ? "play" : "pause" }));
find("step").addEventListener("click", () => send({ type: "step" }));
find("reset").addEventListener("click", () => send({ type: "reset" }));
find("pace").addEventListener("change", ({ target }) => send({ type: "pace", rate: Number(target.value) }));
find("cases").addEventListener("change", ({ target }) => target.value && send({ type: "case", name: target.value }));
find("landscapes").addEventListener("change", show);
find("plans").addEventListener("change", show);
find("graph").addEventListener("change", show);
find("typed").addEventListener("submit", (event) => {
  event.preventDefault();
  const goal = find("numbers").value.split(/[\s,;()[\]]+/).filter(Boolean).map(Number);
  if (goal.every(Number.isFinite)) send({ type: "goal", goal });
  else showError("A goal is typed as numbers with commas between them.");
});
find("pad").addEventListener("click", ({ target }) => {
  if (target.dataset.by) send({ type: "push", by: target.dataset.by.split(" ").map(Number) });
});
canvas.addEventListener("keydown", (event) => {
  if (!(event.key in ARROWS) || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  send({ type: "push", by: ARROWS[event.key] });
});
canvas.addEventListener("pointerdown", (event) => {
  if (!view || event.button !== 0) return;
  const place = view.position(event);
  pressed = { id: event.pointerId, drags: view.isOnBall(place) };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (pressed?.id !== event.pointerId || !pressed.drags) return;
  pressed.moved = true;
  view.dragged = view.position(event);
  view.draw();
});
canvas.addEventListener("pointerup", (event) => {
  if (pressed?.id !== event.pointerId) return;
  if (pressed.moved) send({ type: "move", to: view.position(event) });
  else send({ type: "click", at: view.position(event) });
  release();
});
canvas.addEventListener("pointercancel", release);

function release() {
  pressed = null;
  if (view) view.dragged = null;
  view?.draw();
}

new ResizeObserver(() => view?.resize()).observe(canvas.parentElement);
// Browsers may keep the page with its connection open, which holds a place that others want.
addEventListener("pagehide", () => {
  away = true;
  sent = waiting = 0;
  say("Connecting again…"); // what one comes back to
  socket.close();
});
addEventListener("pageshow", () => {
  if (away) connect();
  away = false;
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => view?.draw());
connect();
