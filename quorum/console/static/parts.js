// Small parts that several pages have.
import { html, useEffect, useRef, useState } from "./libraries.js";
import { address, asOf } from "./state.js";
import { plain, prose, told } from "./text.js";

/** The view of a page: its state is set together with its content. */
export function Main({ page, name = null, state, title, problem = null, children }) {
  useEffect(() => {
    document.title = `${title} · Quorate`;
  }, [title]);
  return html`<main
    id="main"
    tabindex="-1"
    data-page=${page}
    data-name=${name}
    data-state=${state}
    data-as-of=${asOf()}
    aria-busy=${state === "loading" ? "true" : "false"}
  >
    <${Notice} state=${state} problem=${problem} />
    ${children}
  </main>`;
}

const NOTICES = {
  stale: "No node answers: this is what was seen last.",
  error: "This cannot be shown now.",
  "no-quorum": "The nodes that answer have no leader: nothing can be written, and what is shown may be old.",
};

function Notice({ state, problem }) {
  if (state === "loading") return html`<p class="loading" aria-live="polite">Loading…</p>`;
  if (!NOTICES[state]) return null;
  return html`<div class="notice ${state}"><strong>${NOTICES[state]}</strong> ${problem && told(problem)}</div>`;
}

export function Tabs({ label, tabs, selected, onSelect }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex(([id]) => id === selected);
    const [next] = tabs[(at + step + tabs.length) % tabs.length];
    onSelect(next);
    event.currentTarget.querySelector(`#tab-${next}`)?.focus();
  };
  return html`<div role="tablist" aria-label=${label} class="tabs" onKeyDown=${move}>
    ${tabs.map(
      ([id, text]) => html`<button
        key=${id}
        role="tab"
        id=${`tab-${id}`}
        aria-selected=${id === selected ? "true" : "false"}
        tabindex=${id === selected ? 0 : -1}
        onClick=${() => onSelect(id)}
      >
        ${text}
      </button>`,
    )}
  </div>`;
}

/** A search box whose word goes into the address a moment after the last key. */
export function Search({ label, value, onSearch }) {
  const [typed, setTyped] = useState(value);
  const timer = useRef(null);
  const sent = useRef(value);
  useEffect(() => {
    if (value !== sent.current) {
      sent.current = value;
      setTyped(value);
    }
  }, [value]);
  const type = (event) => {
    const text = event.currentTarget.value;
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      sent.current = text;
      onSearch(text);
    }, 150);
  };
  return html`<input type="search" aria-label=${label} placeholder=${label} value=${typed} onInput=${type} />`;
}

export function Formats({ value, onChange, id = "format" }) {
  return html`<label class="inline" for=${id}>Format
    <select id=${id} value=${value} onChange=${(event) => onChange(event.currentTarget.value)}>
      ${["text", "json", "hex"].map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
    </select>
  </label>`;
}

/** A sentence of ours; what stands in backticks is to be typed. */
export const Prose = ({ text }) => prose(text).split("`").map((part, at) => (at % 2 ? html`<code>${part}</code>` : part));

export const Chip = ({ kind, children }) => html`<span class="chip ${kind}">${children}</span>`;

const TRENDS = { growing: ["↗ growing", "error"], shrinking: ["↘ shrinking", "ok"], steady: ["→ steady", ""] };

/** What becomes of a lag. */
export function Trend({ trend }) {
  const [text, kind] = TRENDS[trend] ?? ["", ""];
  return text && html`<span class="chip ${kind}">${text}</span>`;
}

/** Close enough to "what changed lately": values that were seen while the page is open. */
export function Sparkline({ values, label }) {
  const most = Math.max(1, ...values);
  const step = 120 / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(27 - (25 * value) / most).toFixed(1)}`).join(" ");
  return html`<svg class="sparkline" viewBox="0 0 120 28" role="img" aria-label=${label} preserveAspectRatio="none">
    <polyline points=${points} />
  </svg>`;
}

export const here = () => address.value;
