// The overview: how the cluster is, what is wrong with it, nodes, brokers, partitions.
import { html, useEffect, useRef, useState } from "./libraries.js";
import { openDialog } from "./actions.js";
import { Chip, Main, Prose, Sparkline } from "./parts.js";
import { asOf, get, hrefOf, live, mayAct, useView } from "./state.js";
import { byteRateText, count, plain, rateText } from "./text.js";

export function Overview() {
  const past = asOf();
  const view = useView(`overview ${past}`, () => get("overview", { as_of: past }));
  const found = view.data;
  return html`<${Main} page="overview" title="Overview" state=${view.state} problem=${view.problem}>
    <h1>Overview</h1>
    ${found &&
    html`<${Numbers} found=${found} />
      ${past === null && html`<${Findings} found=${found.findings} />`}
      ${past === null && html`<${Nodes} nodes=${found.nodes} />`}
      <${Brokers} found=${found} />
      <${Busiest} topics=${found.busiest} />`}
  <//>`;
}

function Numbers({ found }) {
  const attention = hrefOf("partitions", null, { show: "attention" });
  const number = (id, label, value, tone) => html`<a class="number ${value ? tone : ""}" href=${attention} data-testid=${id} data-value=${value}>
    <b>${count(value)}</b><span>${label}</span>
  </a>`;
  return html`<section class="numbers" aria-label="Partitions">
    <a class="number" href=${hrefOf("topics")}><b>${count(found.topics)}</b><span>topics</span></a>
    <a class="number" href=${hrefOf("partitions", null, { show: "all" })}><b>${count(found.partitions)}</b><span>partitions</span></a>
    ${number("offline", "offline", found.offline, "bad")}
    ${number("under-replicated", "under-replicated", found.under_replicated, "warn")}
    ${number("not-preferred", "not led by the preferred", found.not_preferred, "warn")}
    ${found.rates && html`<${Rates} rates=${found.rates} />`}
    <${Rate} />
  </section>`;
}

const IN_TITLE = "How far the ends of logs moved between two looks, and how much the largest replicas grew";
const OUT_TITLE = "How far committed offsets of groups moved between two looks";

const Rates = ({ rates }) => html`
  <a class="number" href=${hrefOf("topics")} title=${IN_TITLE} data-testid="records-in" data-value=${rates.records_in}><b>${rateText(rates.records_in)}</b><span>records in · ${byteRateText(rates.bytes_in)}</span></a>
  <a class="number" href=${hrefOf("groups")} title=${OUT_TITLE} data-testid="records-out" data-value=${rates.records_out}><b>${rateText(rates.records_out)}</b><span>records committed</span></a>`;

function Busiest({ topics }) {
  if (!topics?.length) return null;
  return html`<section><h2 id="busiest">Busiest topics</h2>
    <div class="scroll" tabindex="0" role="region" aria-labelledby="busiest"><table>
      <thead><tr><th scope="col">Topic</th><th scope="col" class="n">Bytes in</th><th scope="col" class="n">Records in</th><th scope="col" class="n">Records committed</th></tr></thead>
      <tbody>${topics.map((each) => html`<tr key=${each.name} data-testid="busy" data-name=${each.name}><th scope="row"><a href=${hrefOf("topics", each.name)}>${plain(each.name)}</a></th>
        <td class="n">${byteRateText(each.bytes_in)}</td><td class="n">${rateText(each.records_in)}</td><td class="n">${rateText(each.records_out)}</td></tr>`)}</tbody>
    </table></div>
    <p class="caption">Measured between the console's looks: ends and sizes of logs, and offsets that groups committed.</p></section>`;
}

const SECONDS = 60;

function Rate() {
  const [rates, setRates] = useState([]);
  const last = useRef(null);
  useEffect(() => {
    const timer = setInterval(() => {
      const zxid = BigInt(live.peek().zxid);
      if (last.current !== null) {
        const made = Number(zxid - last.current);
        setRates((before) => [...before.slice(1 - SECONDS), Math.max(0, made)]);
      }
      last.current = zxid;
    }, 1000);
    return () => clearInterval(timer);
  }, []);
  if (asOf() !== null) return null;
  const newest = rates.slice(-5);
  const mean = newest.length ? newest.reduce((sum, each) => sum + each, 0) / newest.length : 0;
  return html`<div class="number"><b>${mean.toFixed(mean < 10 ? 1 : 0)}</b><span>transactions a second</span>
    <${Sparkline} values=${rates} label=${`Transactions a second, last minute: ${mean.toFixed(1)} now`} />
  </div>`;
}

// Of each check, and of all together: a broker that is down is found in each of its partitions.
const OF_A_CHECK = 3, FINDINGS_SHOWN = 6, FOLDED_MAX = 100;

function folded(found) {
  const seen = {};
  const heads = found.filter((each) => (seen[each.check] = (seen[each.check] ?? 0) + 1) <= OF_A_CHECK).slice(0, FINDINGS_SHOWN);
  return [heads, found.filter((each) => !heads.includes(each))];
}

function Findings({ found }) {
  if (!found.length) return html`<p class="good">Every check that could be made found nothing.</p>`;
  const [heads, rest] = folded(found);
  const throttled = mayAct("remove-throttle") && found.some((each) => each.check === "throttle-stale");
  return html`<section><div class="head"><h2 id="findings">Findings</h2>
    <span class="spring"></span>${throttled && html`<button onClick=${unthrottle}>Remove throttle</button>`}</div>
    <ul class="findings">
      ${heads.map(
        (each, at) => html`<li key=${at} class=${each.severity}>
          <${Chip} kind=${each.severity}>${each.severity}<//>
          <div><strong>${plain(each.what)}</strong><p><${Prose} text=${each.why} /> <${Prose} text=${each.remedy} /></p>
            ${each.command && html`<code>${plain(each.command)}</code>`}</div>
        </li>`,
      )}
    </ul>
    ${rest.length > 0 &&
    html`<details class="rest" data-testid="folded" data-count=${rest.length}><summary>${count(rest.length)} more</summary>
      <ul>${rest.slice(0, FOLDED_MAX).map((each, at) => html`<li key=${at}>${plain(each.what)} <small>${each.check}</small></li>`)}</ul>
      ${rest.length > FOLDED_MAX && html`<p>… and ${count(rest.length - FOLDED_MAX)} more: <code>quorate doctor --json</code> has all.</p>`}
    </details>`}
  </section>`;
}

const unthrottle = () =>
  openDialog({ title: "Remove throttle", action: "remove-throttle", intro: "Replicas are copied as fast as they can be.", body: () => ({}) });

function transfer(nodes) {
  const others = nodes.filter((each) => each.voter && each.role === "follower");
  openDialog({
    title: "Transfer leadership",
    action: "transfer-leadership",
    intro: "The node that leads hands over to another voter; clients notice a pause of some milliseconds.",
    fields: [{ name: "node_id", label: "To", kind: "select", value: String(others[0]?.id ?? ""), options: others.map((each) => [String(each.id), `node ${each.id}`]) }],
    body: (values) => ({ node_id: Number(values.node_id) }),
  });
}

const snapshot = () =>
  openDialog({ title: "Take snapshot", action: "take-snapshot", intro: "A node writes its state to a file and drops the part of its journal before it.", body: () => ({}) });

function Nodes({ nodes }) {
  const may = mayAct("transfer-leadership") && nodes.some((each) => each.role === "follower" && each.voter);
  return html`<section><div class="head"><h2 id="nodes">Nodes</h2>
    <span class="spring"></span>${mayAct("take-snapshot") && html`<button onClick=${snapshot}>Take snapshot</button>`}
    ${may && html`<button onClick=${() => transfer(nodes)}>Transfer leadership</button>`}</div>
    <div class="scroll" tabindex="0" role="region" aria-labelledby="nodes"><table>
      <thead><tr><th scope="col">Node</th><th scope="col">Role</th><th scope="col" class="n">Term</th><th scope="col" class="n">Commit</th>
        <th scope="col" class="n">Behind</th><th scope="col" class="n">zxid</th><th scope="col">Admin port</th></tr></thead>
      <tbody>${nodes.map(
        (each) => html`<tr key=${each.id} data-testid="node" data-id=${each.id} data-role=${each.role}>
          <th scope="row">${each.id}</th>
          <td><${Chip} kind=${each.role}>${each.role}<//>${each.problem ? html` <small>${plain(each.problem)}</small>` : ""}</td>
          <td class="n">${each.term ?? "–"}</td><td class="n">${each.commit_index ?? "–"}</td>
          <td class="n">${each.lag ?? "–"}</td><td class="n">${each.zxid ?? "–"}</td>
          <td><small>${each.url ? plain(each.url) : "not known"}</small></td>
        </tr>`,
      )}</tbody>
    </table></div></section>`;
}

function Brokers({ found }) {
  if (!found.brokers.length) return null;
  return html`<section><h2 id="brokers">Brokers</h2>
    <div class="scroll" tabindex="0" role="region" aria-labelledby="brokers"><table>
      <thead><tr><th scope="col">Broker</th><th scope="col">Status</th><th scope="col">Clients</th><th scope="col" class="n">Leads</th><th scope="col" class="n">Replicas</th><th scope="col">Rack</th></tr></thead>
      <tbody>${found.brokers.map(
        (each) => html`<tr key=${each.id} data-testid="broker" data-id=${each.id} data-status=${each.status}>
          <th scope="row">${each.id}</th>
          <td><${Chip} kind=${each.status}>${each.status}<//>${each.id === found.controller ? html` <${Chip} kind="role">controller<//>` : ""}${each.id === found.coordinator ? html` <${Chip} kind="role">coordinator<//>` : ""}</td>
          <td><small>${plain(each.clients ?? "")}</small></td>
          <td class="n">${each.leads ?? "–"}</td><td class="n">${each.replicas ?? "–"}</td>
          <td>${plain(each.rack ?? "–")}</td>
        </tr>`,
      )}</tbody>
    </table></div></section>`;
}
