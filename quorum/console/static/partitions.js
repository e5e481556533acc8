// All replicas as a heat map by broker, drawn on a canvas: only what is in sight is drawn.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./libraries.js";
import { openDialog } from "./actions.js";
import { Main } from "./parts.js";
import { address, asOf, get, hrefOf, mayAct, setParams, useView } from "./state.js";
import { count, counted, plain } from "./text.js";

const SIZE = 14, GAP = 2, STEP = SIZE + GAP, HEAD = 30;
const STATES = ["leader", "in sync", "lagging", "offline", "moving"];

export function Partitions() {
  const past = asOf();
  const view = useView(`partitions ${past}`, () => get("partitions", { as_of: past }), (path) => path.startsWith("/brokers/") || path.startsWith("/admin/"));
  const found = view.data;
  const sorted = useMemo(() => found && brokersOf(found), [found]);
  const some = sorted?.some(({ cells }) => cells.some((cell) => cell.attention));
  const show = address.value.params.show ?? (some ? "attention" : "all");
  const shown = useMemo(
    () => sorted?.map((each) => ({ ...each, cells: show === "all" ? each.cells : each.cells.filter((cell) => cell.attention) })).filter((each) => each.cells.length),
    [sorted, show],
  );
  const cells = shown?.reduce((sum, each) => sum + each.cells.length, 0) ?? 0;
  const state = view.state === "ready" && !cells ? "empty" : view.state;
  const elect = () => openDialog({ title: "Elect preferred", action: "elect-preferred", intro: "The first replica of each partition leads it, where it is in sync.", body: () => ({}) });
  return html`<${Main} page="partitions" title="Partitions" state=${state} problem=${view.problem}>
    <div class="head"><h1>Partitions</h1><span class="spring"></span>
      <label class="inline">Show <select value=${show} onChange=${(event) => setParams({ show: event.currentTarget.value }, { replace: true })}>
        <option value="attention">needs attention</option><option value="all">all</option></select></label>
      ${mayAct("elect-preferred") && html`<button onClick=${elect}>Elect preferred</button>`}</div>
    ${found && html`<${Skew} brokers=${sorted} />`}
    <p class="legend" aria-hidden="true">${STATES.map((each) => html`<span key=${each}><i class=${each.replace(" ", "-")}></i>${each}</span>`)}</p>
    ${state === "empty" && html`<p class="nothing">${found.partitions.length ? "No partition needs attention." : "There are no partitions."}</p>`}
    ${cells > 0 && html`<${HeatMap} brokers=${shown} cells=${cells} />`}
  <//>`;
}

/** The replicas of each broker: those that need attention first. */
function brokersOf({ topics, partitions }) {
  const brokers = new Map();
  for (const [topic, partition, replicas, leader, isr, moving] of partitions) {
    const led = leader !== null && leader >= 0;
    replicas.forEach((id, index) => {
      const state = !led ? 3 : moving ? 4 : leader === id ? 0 : isr.includes(id) ? 1 : 2;
      const attention = !led || moving || isr.length < replicas.length || (index === 0 && leader !== id);
      if (!brokers.has(id)) brokers.set(id, { id, cells: [], leads: 0, preferred: 0 });
      const broker = brokers.get(id);
      broker.leads += leader === id;
      broker.preferred += index === 0;
      broker.cells.push({ topic: topics[topic], partition, state, attention, broker: id });
    });
  }
  const all = [...brokers.values()].sort((one, other) => one.id - other.id);
  for (const each of all) each.cells = [...each.cells.filter((cell) => cell.attention), ...each.cells.filter((cell) => !cell.attention)];
  return all;
}

function Skew({ brokers }) {
  const total = brokers.reduce((sum, each) => sum + each.leads, 0);
  if (!total) return null;
  const even = total / brokers.length;
  return html`<section class="skew" aria-label="Leaders by broker">${brokers.map((each) => {
    const skew = Math.round((100 * (each.leads - even)) / even);
    return html`<div key=${each.id}><b>broker ${each.id}</b><meter min="0" max=${total} value=${each.leads} aria-label=${`Leaders of broker ${each.id}`}></meter>
      <span>leads ${count(each.leads)} of ${counted(each.cells.length, "replica")}</span><small>${skew > 0 ? "+" : ""}${skew} % from even</small></div>`;
  })}</section>`;
}

function HeatMap({ brokers, cells }) {
  const box = useRef(null), canvas = useRef(null), drawn = useRef(0);
  const [width, setWidth] = useState(0);
  const [at, setAt] = useState(null);
  const columns = Math.max(1, Math.floor((width - 8) / STEP));
  const bands = useMemo(() => {
    let top = 0, first = 0;
    return brokers.map((each) => {
      const band = { ...each, top, first, rows: Math.ceil(each.cells.length / columns) };
      top += HEAD + band.rows * STEP + 10;
      first += each.cells.length;
      return band;
    });
  }, [brokers, columns]);
  const last = bands[bands.length - 1];
  const height = last ? last.top + HEAD + last.rows * STEP + 10 : 0;
  const placed = (index) => {
    const band = bands.findLast((each) => each.first <= index);
    const inside = index - band.first;
    return { band, cell: band.cells[inside], x: 4 + (inside % columns) * STEP, y: band.top + HEAD + Math.floor(inside / columns) * STEP };
  };
  const found = (x, y) => {
    const band = bands.findLast((each) => each.top <= y);
    const row = Math.floor((y - (band?.top ?? 0) - HEAD) / STEP), column = Math.floor((x - 4) / STEP);
    if (!band || row < 0 || row >= band.rows || column < 0 || column >= columns) return null;
    const inside = row * columns + column;
    return inside < band.cells.length ? band.first + inside : null;
  };
  const draw = () => {
    const view = box.current, surface = canvas.current;
    if (!view || !width) return;
    const tall = view.clientHeight, ratio = devicePixelRatio || 1, top = view.scrollTop;
    if (surface.width !== Math.round(width * ratio) || surface.height !== Math.round(tall * ratio)) {
      surface.width = Math.round(width * ratio);
      surface.height = Math.round(tall * ratio);
      surface.style.width = `${width}px`;
      surface.style.height = `${tall}px`;
    }
    const style = getComputedStyle(view);
    const colours = ["leader", "sync", "lagging", "offline", "moving"].map((name) => style.getPropertyValue(`--cell-${name}`).trim());
    const context = surface.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, tall);
    context.font = "600 13px system-ui, sans-serif";
    for (const band of bands) {
      if (band.top > top + tall || band.top + HEAD + band.rows * STEP < top) continue;
      context.fillStyle = style.color;
      context.fillText(`broker ${band.id}`, 4, band.top - top + 20);
      const from = Math.max(0, Math.floor((top - band.top - HEAD) / STEP)), to = Math.min(band.rows, Math.ceil((top + tall - band.top - HEAD) / STEP));
      for (let inside = from * columns; inside < Math.min(band.cells.length, to * columns); inside++) {
        context.fillStyle = colours[band.cells[inside].state];
        context.fillRect(4 + (inside % columns) * STEP, band.top - top + HEAD + Math.floor(inside / columns) * STEP, SIZE, SIZE);
      }
    }
    if (at !== null && at < cells) {
      const { x, y } = placed(at);
      context.strokeStyle = style.color;
      context.lineWidth = 2;
      context.strokeRect(x - 1, y - top - 1, SIZE + 2, SIZE + 2);
    }
  };
  const soon = () => {
    cancelAnimationFrame(drawn.current);
    drawn.current = requestAnimationFrame(draw);
  };
  useEffect(() => {
    const watcher = new ResizeObserver(() => box.current && setWidth(box.current.clientWidth));
    watcher.observe(box.current);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", draw);
    return () => (watcher.disconnect(), scheme.removeEventListener("change", draw));
  }, []);
  useLayoutEffect(() => {
    if (!width) setWidth(box.current.clientWidth);
    draw();
  });
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -cells, End: cells }[event.key];
    if (event.key === "Enter" && at !== null) return void (location.hash = hrefOf("topics", placed(at).cell.topic));
    if (!step) return;
    event.preventDefault();
    const next = at === null ? 0 : Math.min(cells - 1, Math.max(0, at + step));
    setAt(next);
    const { y } = placed(next), view = box.current;
    if (y < view.scrollTop + 4) view.scrollTop = y - HEAD;
    else if (y + STEP > view.scrollTop + view.clientHeight) view.scrollTop = y + STEP - view.clientHeight + 4;
  };
  const under = (event) => {
    const place = canvas.current.getBoundingClientRect();
    return found(event.clientX - place.left, event.clientY - place.top + box.current.scrollTop);
  };
  const cell = at !== null && at < cells ? placed(at).cell : null;
  return html`<div class="heatmap" data-testid="heatmap" data-cells=${cells} ref=${box} style=${{ maxHeight: `${height + 2}px` }} onScroll=${soon}>
      <canvas ref=${canvas} tabindex="0" role="application" aria-label=${`Heat map of ${counted(cells, "replica")}: arrow keys move, Enter opens the topic`} onKeyDown=${move}
        onPointerMove=${(event) => setAt(under(event))} onClick=${(event) => { const index = under(event); if (index !== null) location.hash = hrefOf("topics", placed(index).cell.topic); }}
        onFocus=${() => at === null && setAt(0)}></canvas>
      <div class="extent" style=${{ height: `${height}px` }}></div>
    </div>
    <p class="cell" data-testid="cell" aria-live="polite">${cell ? `${plain(cell.topic)} partition ${cell.partition}, broker ${cell.broker}: ${STATES[cell.state]}` : "Point at a cell, or use the arrow keys."}</p>`;
}
