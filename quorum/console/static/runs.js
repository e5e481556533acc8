// Results: chaos runs (what was struck when, and what the checkers concluded) and answers of Spark jobs.
import { html, useState } from "./libraries.js";
import { Chip, Main } from "./parts.js";
import { get, useView } from "./state.js";
import { count, counted, plain, timeText } from "./text.js";

export function Runs() {
  const view = useView("runs", () => get("runs"), () => false, 10000);
  const found = view.data;
  const [open, setOpen] = useState(null);
  const first = found?.items.findIndex((each) => !each.problem);
  const state = view.state === "ready" && !found.items.length ? "empty" : view.state;
  return html`<${Main} page="runs" title="Runs" state=${state} problem=${view.problem}>
    <div class="head"><h1>Runs</h1><span class="spring"></span>${found?.folder && html`<small>${plain(found.folder)}</small>`}</div>
    ${state === "empty" && html`<p class="nothing">${found.folder ? "The folder holds no results." : html`Start the console with <code>--results chaos-results</code> to see what <code>make chaos</code> and jobs with <code>--out</code> wrote.`}</p>`}
    ${found?.items.map((each, index) => {
      const shown = open === each.name || (open === null && index === first);
      return html`<section key=${each.name} class="run" data-testid="run" data-name=${each.name} data-kind=${each.kind}>
        <button class="row" aria-expanded=${shown ? "true" : "false"} onClick=${() => setOpen(shown ? "" : each.name)}>
          <strong>${plain(each.name)}</strong>
          ${each.problem ? html`<${Chip} kind="warning">${plain(each.problem)}<//>` : each.kind === "job" ? html`<${JobLine} run=${each} />` : html`<${ChaosLine} run=${each} />`}
        </button>
        ${shown && !each.problem && (each.kind === "job" ? html`<${Job} run=${each} />` : html`<${Verdicts} run=${each} /><${Faults} run=${each} />`)}
      </section>`;
    })}
  <//>`;
}

const ChaosLine = ({ run }) => html`${run.verdicts === null ? html`<${Chip}>no verdicts<//>` : html`<${Chip} kind=${run.verdicts.failed ? "error" : "ok"}>${run.verdicts.failed ? "failed" : "passed"}<//>`}
  <span>seed ${run.seed}</span><span>${run.seconds} s</span><span>${counted(run.faults.length, "fault")}</span><small>${run.workloads.map(plain).join(", ")}</small>`;

const JobLine = ({ run }) => html`<${Chip} kind=${run.finding ? "warning" : "ok"}>${run.finding ? "a finding" : "no finding"}<//>
  <span>${plain(run.job)}</span><span>${counted(run.rows, "row")}</span><span>${run.seconds} s</span><small>${timeText(run.began_ms)}</small>`;

const KINDS = { ok: "ok", bad: "error", unknown: "warning" };

function Verdicts({ run }) {
  if (run.verdicts === null) return html`<p class="caption">No verdicts: <code>make chaos-check HISTORY=${plain(run.name)}</code> judges the run again.</p>`;
  return html`<table><thead><tr><th scope="col">Check</th><th scope="col">Verdict</th><th scope="col" class="n">Judged</th><th scope="col">Problems</th></tr></thead>
    <tbody>${run.verdicts.checks.map((each, index) => html`<tr key=${index} data-testid="check" data-name=${each.check} data-state=${each.state}>
      <th scope="row">${plain(each.check)}</th><td><${Chip} kind=${KINDS[each.state] ?? ""}>${plain(each.state)}<//></td><td class="n">${count(each.judged)}</td>
      <td>${each.problems.map((problem, at) => html`<div key=${at}>${plain(problem)}</div>`)}</td></tr>`)}</tbody></table>
    ${run.verdicts.missing.map((what, index) => html`<p key=${index} class="notice error">It does not count: ${plain(what)}.</p>`)}`;
}

/** Bars over time, one line each. parts: [[class, begin, end]] from 0 to `whole`. */
function Span({ label, parts, whole }) {
  const share = (at) => `${Math.max(0, Math.min(100, (100 * at) / whole))}%`;
  return html`<svg class="span" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="whole" width="100%" height="10" rx="5" y="5" />
    ${parts.map(([kind, begin, end], index) => html`<rect key=${index} class=${kind} x=${share(begin)} width=${share(Math.max(end - begin, whole / 200))} height="10" y="5" rx="3" />`)}
  </svg>`;
}

function Faults({ run }) {
  return html`<ol class="faults">${run.faults.map((each, index) => {
    const ended = each.ready ?? each.stopped ?? run.seconds;
    return html`<li key=${index}>
      <span class="what"><b>${plain(each.nemesis)}</b> <small>${plain(each.target)}</small></span>
      <${Span} label=${`From ${each.started} s to ${ended} s of ${run.seconds} s`} whole=${run.seconds}
        parts=${[["mending", each.started, ended], ["fault", each.started, each.stopped ?? ended]]} />
      <small>${each.started} s${each.bite && ` · ${plain(each.bite)}`}</small></li>`;
  })}</ol>
  <p class="legend" aria-hidden="true"><span><i class="offline"></i>struck</span><span><i class="lagging"></i>until ready again</span></p>`;
}

function Job({ run }) {
  const first = Math.min(...run.bars.map((each) => each.from_ms));
  const whole = Math.max(1, ...run.bars.map((each) => each.until_ms - first));
  const lanes = [...new Set(run.bars.map((each) => each.lane))];
  return html`${lanes.length > 0 && html`<ol class="faults" data-testid="bars">${lanes.map((lane) => {
      const bars = run.bars.filter((each) => each.lane === lane);
      return html`<li key=${lane}><span class="what"><b>${plain(lane)}</b></span>
        <${Span} label=${bars.slice(0, 5).map((each) => `${plain(each.kind)} at ${timeText(each.from_ms)}: ${plain(each.label)}`).join("; ")} whole=${whole}
          parts=${bars.map((each) => [each.kind === "offline" || each.kind === "unclean" ? "fault" : "mending", each.from_ms - first, each.until_ms - first])} />
        <small>${counted(bars.length, "time")}</small></li>`;
    })}</ol>
    <p class="caption">${timeText(first)} to ${timeText(first + whole)}</p>`}
    <div class="scroll" tabindex="0" role="region" aria-label="Answer"><table>
      <thead><tr>${run.columns.map((each) => html`<th key=${each} scope="col">${plain(each)}</th>`)}</tr></thead>
      <tbody>${run.first_rows.map((row, at) => html`<tr key=${at} data-testid="row">${row.map((cell, column) => html`<td key=${column}>${cell === null ? "–" : plain(cell)}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${run.rows > run.first_rows.length && html`<p class="caption">The first ${count(run.first_rows.length)} of ${counted(run.rows, "row")}.</p>`}`;
}
