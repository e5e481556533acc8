// Consumer groups, and one of them: members, what they read, how far they are behind.
import { html, useState } from "./libraries.js";
import { openDialog } from "./actions.js";
import { Chip, Main, Search, Trend } from "./parts.js";
import { asOf, get, hrefOf, mayAct, useView } from "./state.js";
import { count, counted, momentOf, plain, waitText } from "./text.js";

const EVERY_MS = 2500;
const groupPath = (path) => path.startsWith("/consumers/");

const GOALS = [
  ["earliest", "the first record"], ["latest", "behind the last record"], ["offset", "an offset"],
  ["time", "the first record at or after a time"], ["shift", "some records on or back"],
];

export function Groups() {
  const [search, setSearch] = useState("");
  const past = asOf();
  const view = useView(`groups ${search} ${past}`, () => get("groups", { search, as_of: past }), groupPath, EVERY_MS);
  const found = view.data;
  const state = view.state === "ready" && !found.items.length ? "empty" : view.state;
  return html`<${Main} page="groups" title="Groups" state=${state} problem=${view.problem}>
    <div class="head"><h1>Groups</h1><span class="spring"></span>${found && html`<small>${counted(found.items.length, "group")}</small>`}</div>
    <div class="tools"><${Search} label="Search groups" value=${search} onSearch=${setSearch} /></div>
    ${found?.problem && html`<p class="caption">Lag is not known: ${plain(found.problem)}.</p>`}
    ${state === "empty" && html`<p class="nothing">${search ? "No group has that in its name." : "There are no groups."}</p>`}
    ${found?.items.length > 0 &&
    html`<section><div class="scroll" tabindex="0" role="region" aria-label="Groups"><table>
      <thead><tr><th scope="col">Group</th><th scope="col">State</th><th scope="col">Type</th><th scope="col" class="n">Members</th><th scope="col" class="n">Topics</th><th scope="col" class="n">Lag</th><th scope="col" class="n" title="The oldest record that is not committed waits at least so long">Waits</th><th scope="col">Trend</th></tr></thead>
      <tbody>${found.items.map((each) => html`<tr key=${each.name} data-testid="group" data-name=${each.name} data-lag=${each.lag} data-seconds=${each.seconds} data-trend=${each.trend} data-status=${each.status}>
        <th scope="row"><a href=${hrefOf("groups", each.name)}>${plain(each.name)}</a></th><td><${Chip} kind=${each.status}>${plain(each.status)}<//></td>
        <td>${plain(each.type ?? "unknown")}</td><td class="n">${each.member_count}</td><td class="n">${each.topics}</td><td class="n">${count(each.lag)}</td>
        <td class="n">${waitText(each.seconds)}</td><td><${Trend} trend=${each.trend} /></td>
      </tr>`)}</tbody></table></div></section>`}
  <//>`;
}

export function Group({ name }) {
  const past = asOf();
  const view = useView(`group ${name} ${past}`, () => get("group", { group: name, as_of: past }), groupPath, EVERY_MS);
  const found = view.data;
  const absent = found && !found.found;
  const topics = [...new Set((found?.offsets ?? []).map((each) => each.topic))];
  const reset = () =>
    openDialog({
      title: "Reset offsets",
      action: "reset-offsets",
      intro: html`Group <code>${plain(name)}</code>; it must have no members.`,
      fields: [
        { name: "topic", label: "Topic", kind: "select", value: "", options: [["", "all topics"], ...topics.map((each) => [each, each])] },
        { name: "partitions", label: "Partitions", hint: "Numbers by commas; empty: all.", when: (values) => values.topic !== "" },
        { name: "to", label: "To", kind: "select", value: "earliest", options: GOALS },
        { name: "offset", label: "Offset", when: (values) => values.to === "offset", hint: "Within the log of each partition." },
        { name: "time", label: "Time", when: (values) => values.to === "time", hint: "As 2026-01-31 12:00 (the time of this machine), with a zone, or ms since 1970." },
        { name: "shift", label: "Records", when: (values) => values.to === "shift", hint: "Back if negative, as -100." },
      ],
      body: (values) => ({
        group: name, topic: values.topic, partitions: values.topic && values.partitions.replace(/\s/g, ""), to: values.to,
        value: values.to === "time" ? momentOf(values.time) : (values[values.to] ?? "").trim(),
      }),
    });
  return html`<${Main} page="group" name=${name} title=${plain(name)} state=${absent && view.state === "ready" ? "empty" : view.state} problem=${view.problem}>
    <div class="head"><h1>${plain(name)}</h1>${found?.found && html`<${Chip} kind=${found.status}>${plain(found.status)}<//><${Trend} trend=${found.trend} />`}
      <span class="spring"></span>${found?.offsets?.length > 0 && mayAct("reset-offsets") && html`<button onClick=${reset}>Reset offsets</button>`}</div>
    ${absent && html`<p class="nothing">There is no group ${plain(name)}.</p>`}
    ${found?.problem && html`<p class="caption">Lag is not known: ${plain(found.problem)}.</p>`}
    ${found?.found && html`<${Members} found=${found} /><${Offsets} found=${found} />`}
  <//>`;
}

function Members({ found }) {
  return html`<section><h2>Members</h2>
    ${!found.members.length && html`<p class="nothing">It has no members now.</p>`}
    ${found.members.length > 0 &&
    html`<div class="scroll" tabindex="0" role="region" aria-label="Members"><table><thead><tr><th scope="col">Client</th><th scope="col">Host</th><th scope="col">Member</th><th scope="col">Reads</th></tr></thead>
      <tbody>${found.members.map((each) => html`<tr key=${each.member_id} data-testid="member"><th scope="row">${plain(each.client_id)}</th><td>${plain(each.client_host)}</td>
        <td><small>${plain(each.instance_id ?? each.member_id)}</small></td>
        <td>${each.assigned === null ? html`<small>not known</small>` : each.assigned.map(plain).join(", ") || "nothing"}</td></tr>`)}</tbody></table></div>`}
  </section>`;
}

function Offsets({ found }) {
  if (!found.offsets.length) return html`<section><h2>Offsets</h2><p class="nothing">It has committed nothing.</p></section>`;
  const most = Math.max(1, ...found.offsets.map((each) => Number(each.lag ?? 0)));
  return html`<section><h2>Offsets</h2><div class="scroll" tabindex="0" role="region" aria-label="Offsets"><table>
    <thead><tr><th scope="col">Topic</th><th scope="col" class="n">Partition</th><th scope="col" class="n">Committed</th><th scope="col" class="n">Log ends at</th><th scope="col" class="n">Lag</th><th scope="col" class="n">Waits</th><th scope="col"><span class="visually-hidden">Share</span></th></tr></thead>
    <tbody>${found.offsets.map((each) => html`<tr key=${`${each.topic} ${each.partition}`} data-testid="offset" data-topic=${each.topic} data-partition=${each.partition} data-lag=${each.lag} data-seconds=${each.seconds}>
      <th scope="row"><a href=${hrefOf("topics", each.topic)}>${plain(each.topic)}</a></th><td class="n">${each.partition}</td><td class="n">${count(each.offset)}</td><td class="n">${count(each.end)}</td>
      <td class="n">${count(each.lag)}</td><td class="n">${waitText(each.seconds)}</td><td class="share"><meter min="0" max=${most} value=${Number(each.lag ?? 0)} aria-label="Lag"></meter></td></tr>`)}</tbody></table></div></section>`;
}
