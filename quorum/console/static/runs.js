// Recorded chaos runs: what was struck when, and how long the cluster took to be ready again.
import { html, useState } from "./libraries.js";
import { Chip, Main } from "./parts.js";
import { get, useView } from "./state.js";
import { counted, plain } from "./text.js";

export function Runs() {
  const view = useView("runs", () => get("runs"), () => false, 10000);
  const found = view.data;
  const [open, setOpen] = useState(null);
  const first = found?.items.findIndex((each) => !each.problem);
  const state = view.state === "ready" && !found.items.length ? "empty" : view.state;
  return html`<${Main} page="runs" title="Runs" state=${state} problem=${view.problem}>
    <div class="head"><h1>Runs</h1><span class="spring"></span>${found?.folder && html`<small>${plain(found.folder)}</small>`}</div>
    ${state === "empty" && html`<p class="nothing">${found.folder ? "The folder holds no results." : html`Start the console with <code>--results chaos-results</code> to see what <code>make chaos</code> wrote.`}</p>`}
    ${found?.items.map((each, index) => {
      const shown = open === each.name || (open === null && index === first);
      return html`<section key=${each.name} class="run" data-testid="run" data-name=${each.name}>
        <button class="row" aria-expanded=${shown ? "true" : "false"} onClick=${() => setOpen(shown ? "" : each.name)}>
          <strong>${plain(each.name)}</strong>
          ${each.problem ? html`<${Chip} kind="warning">${plain(each.problem)}<//>` : html`<span>seed ${each.seed}</span><span>${each.seconds} s</span><span>${counted(each.faults.length, "fault")}</span><small>${each.workloads.map(plain).join(", ")}</small>`}
          ${Object.entries(each.verdicts ?? {}).map(([name, verdict]) => html`<${Chip} key=${name} kind=${verdict === "good" ? "ok" : "error"}>${plain(name)}: ${plain(verdict)}<//>`)}
        </button>
        ${shown && !each.problem && html`<${Faults} run=${each} />`}
      </section>`;
    })}
  <//>`;
}

function Faults({ run }) {
  const share = (seconds) => `${Math.max(0, Math.min(100, (100 * (seconds ?? run.seconds)) / run.seconds))}%`;
  return html`<ol class="faults">${run.faults.map((each, index) => {
    const ended = each.ready ?? each.stopped ?? run.seconds;
    return html`<li key=${index}>
      <span class="what"><b>${plain(each.nemesis)}</b> <small>${plain(each.target)}</small></span>
      <svg class="span" preserveAspectRatio="none" role="img" aria-label=${`From ${each.started} s to ${ended} s of ${run.seconds} s`}>
        <rect class="whole" width="100%" height="10" rx="5" y="5" />
        <rect class="mending" x=${share(each.started)} width=${share(ended - each.started)} height="10" y="5" rx="3" />
        <rect class="fault" x=${share(each.started)} width=${share((each.stopped ?? ended) - each.started)} height="10" y="5" rx="3" />
      </svg>
      <small>${each.started} s${each.bite && ` · ${plain(each.bite)}`}</small></li>`;
  })}</ol>
  <p class="legend" aria-hidden="true"><span><i class="offline"></i>struck</span><span><i class="lagging"></i>until ready again</span></p>`;
}
