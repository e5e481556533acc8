// What happened, from the change log: elections, brokers that came and went, leaders, ISRs, reassignments, settings.
import { html, useState } from "./libraries.js";
import { Main } from "./parts.js";
import { asOf, get, setParams, useView } from "./state.js";
import { agoText, counted, plain, timeText } from "./text.js";

const KINDS = ["election", "controller", "broker-up", "broker-down", "leader", "isr", "reassignment", "topic", "settings"];
const SHOWN = 100;

export function Timeline() {
  const past = asOf();
  const [chosen, setChosen] = useState(KINDS);
  const [shown, setShown] = useState(SHOWN);
  const kinds = chosen.join(",");
  const view = useView(`timeline ${past} ${kinds}`, () => get("timeline", { as_of: past, kinds: kinds || "none" }));
  const items = view.data?.items ?? [];
  const state = view.state === "ready" && !items.length ? "empty" : view.state;
  const toggle = (kind) => setChosen(chosen.includes(kind) ? chosen.filter((each) => each !== kind) : [...chosen, kind]);
  return html`<${Main} page="timeline" title="Timeline" state=${state} problem=${view.problem}>
    <div class="head"><h1>Timeline</h1></div>
    <div class="kinds" role="group" aria-label="Kinds">
      ${KINDS.map((kind) => html`<button key=${kind} class="kind ${kind}" aria-pressed=${chosen.includes(kind) ? "true" : "false"} onClick=${() => toggle(kind)}>${kind}</button>`)}
    </div>
    ${items.length > 1 && html`<${Density} items=${items} />`}
    ${view.data && !items.length && html`<p class="nothing">${chosen.length ? "Nothing of that kind happened in the history that is kept." : "Choose a kind."}</p>`}
    <ol class="events">
      ${items.slice(0, shown).map(
        (each, index) => html`<li key=${`${each.zxid} ${index}`} class=${each.kind} data-testid="event" data-zxid=${each.zxid} data-kind=${each.kind}>
          <time title=${timeText(each.ts_ms)}>${timeText(each.ts_ms)}</time>
          <span class="kind ${each.kind}">${each.kind}</span>
          <span class="what"><strong>${plain(each.subject)}</strong> ${plain(each.text)}${each.by ? html` <small class="by">by ${plain(each.by)}</small>` : ""}</span>
          <small>${agoText(each.ts_ms)}</small>
          <button class="quiet" onClick=${() => setParams({ as_of: each.zxid })} aria-label=${`Show everything as of zxid ${each.zxid}`}>zxid ${each.zxid}</button>
        </li>`,
      )}
    </ol>
    ${items.length > shown && html`<button class="more" onClick=${() => setShown(shown + SHOWN)}>More</button>`}
  <//>`;
}

const COLUMNS = 60;

/** How much happened when, as bars over the time that the list spans. */
function Density({ items }) {
  const last = items[0].ts_ms, first = items[items.length - 1].ts_ms;
  const span = Math.max(1, last - first);
  const bars = new Array(COLUMNS).fill(0);
  for (const each of items) bars[Math.min(COLUMNS - 1, Math.floor(((each.ts_ms - first) / span) * COLUMNS))]++;
  const most = Math.max(...bars);
  return html`<figure class="density">
    <svg viewBox="0 0 ${COLUMNS * 10} 40" preserveAspectRatio="none" role="img" aria-label=${`${counted(items.length, "event")} from ${timeText(first)} to ${timeText(last)}`}>
      ${bars.map((value, index) => value > 0 && html`<rect key=${index} x=${index * 10 + 1} width="8" y=${40 - Math.max(3, (36 * value) / most)} height=${Math.max(3, (36 * value) / most)} rx="2" />`)}
    </svg>
    <figcaption><span>${timeText(first)}</span><span>${timeText(last)}</span></figcaption>
  </figure>`;
}
