// Topics with their lag beside them, and one topic: partitions, records, settings, groups.
import { html, useRef, useState } from "./libraries.js";
import { openDialog } from "./actions.js";
import { Chip, Formats, Main, Search, Tabs, Trend } from "./parts.js";
import { address, asOf, get, hrefOf, mayAct, session, setParams, useView } from "./state.js";
import { byteRateText, bytesOf, bytesText, count, counted, formatted, momentOf, plain, rateText, textOf, timeText, told, waitText } from "./text.js";

// Ends of logs are in no znode: they are asked for again and again.
const EVERY_MS = 2500;
const brokerPath = (path) => /^\/(brokers|consumers|config|admin)\//.test(path);

const COLUMNS = [
  ["name", "Topic", "ascending"], ["state", "State", "descending"], [null, "Partitions", "minor"], [null, "Records", "minor"],
  [null, "In", "minor"], [null, "Out", "minor"], ["size", "Size", "descending"], ["lag", "Lag", "descending"],
];

export function Topics() {
  const past = asOf();
  const { search = "", sort = "name" } = address.value.params;
  const [pages, setPages] = useState(1);
  const wanted = useRef(1);
  wanted.current = pages;
  const view = useView(`topics ${past} ${search} ${sort} ${pages}`, async () => {
    const all = { items: [], next: 0 };
    for (let page = 0; page < wanted.current && all.next !== null; page++) {
      const found = await get("topics", { search, sort, offset: all.next, as_of: past });
      Object.assign(all, found, { items: [...all.items, ...found.items] });
    }
    return all;
  }, brokerPath, EVERY_MS);
  const found = view.data;
  const state = view.state === "ready" && !found.items.length ? "empty" : view.state;
  return html`<${Main} page="topics" title="Topics" state=${state} problem=${view.problem}>
    <div class="head"><h1>Topics</h1><span class="spring"></span>${found && html`<small>${counted(found.total, "topic")}</small>`}</div>
    <div class="tools"><${Search} label="Search topics" value=${search} onSearch=${(word) => (setPages(1), setParams({ search: word }, { replace: true }))} /></div>
    ${found?.problem && html`<p class="caption">Brokers do not answer: sizes and lag are not known (${plain(found.problem)}).</p>`}
    ${state === "empty" && html`<p class="nothing">${search ? "No topic has that in its name." : "There are no topics."}</p>`}
    ${found?.items.length > 0 &&
    html`<section><div class="scroll" tabindex="0" role="region" aria-label="Topics"><table>
      <thead><tr>${COLUMNS.map(([key, label, order], at) => key
        ? html`<th key=${at} scope="col" class=${at > 1 ? "n" : ""} aria-sort=${sort === key ? order : "none"}>
            <button onClick=${() => setParams({ sort: key }, { replace: true })}>${label}</button></th>`
        : html`<th key=${at} scope="col" class="n ${order}">${label}</th>`)}</tr></thead>
      <tbody>${found.items.map((each) => html`<tr key=${each.name} data-testid="topic" data-name=${each.name} data-lag=${each.lag} data-status=${each.status}>
        <th scope="row"><a href=${hrefOf("topics", each.name)}>${plain(each.name)}</a></th>
        <td><${Chip} kind=${each.status}>${each.status}<//>${each.problem ? html` <small>${plain(each.problem)}</small>` : ""}</td>
        <td class="n minor">${count(each.partitions)}${each.replicas > 1 && html` <small>× ${each.replicas}</small>`}</td>
        <td class="n minor">${count(each.records)}</td>
        <td class="n minor" title=${`${rateText(each.rate?.records_in)} records`}>${byteRateText(each.rate?.bytes_in)}</td>
        <td class="n minor" title="Records that groups commit">${rateText(each.rate?.records_out)}</td>
        <td class="n">${each.bytes === null ? "unknown" : bytesText(each.bytes)}</td>
        <td class="n">${each.lag === "0" ? html`<span class="soft">0</span>` : html`<strong>${count(each.lag)}</strong>`}</td>
      </tr>`)}</tbody>
    </table></div>
    ${found.next !== null && html`<button class="more" onClick=${() => setPages(pages + 1)}>More</button>`}</section>`}
  <//>`;
}

const TABS = [["partitions", "Partitions"], ["records", "Records"], ["settings", "Settings"], ["groups", "Groups"]];

export function Topic({ name }) {
  const past = asOf();
  const view = useView(`topic ${name} ${past}`, () => get("topic", { name, as_of: past }), brokerPath, EVERY_MS);
  const found = view.data;
  const absent = found && !found.found;
  const tab = TABS.some(([id]) => id === address.value.params.tab) ? address.value.params.tab : "partitions";
  const state = absent && view.state === "ready" ? "empty" : view.state;
  return html`<${Main} page="topic" name=${name} title=${plain(name)} state=${state} problem=${view.problem}>
    <div class="head"><h1>${plain(name)}</h1>${found?.found && html`<${Chip} kind=${found.status}>${found.status}<//>`}
      ${found?.rate && html`<small>${rateText(found.rate.records_in)} records in (${byteRateText(found.rate.bytes_in)}), ${rateText(found.rate.records_out)} committed</small>`}
      <span class="spring"></span>${found?.found && html`<${TopicButtons} name=${name} found=${found} />`}</div>
    ${absent && html`<p class="nothing">There is no topic ${plain(name)}${past === null ? "" : " at that time"}.</p>`}
    ${found?.problem && html`<p class="caption">${plain(found.problem)}</p>`}
    ${found?.found &&
    html`<section><${Tabs} label="Topic" tabs=${TABS} selected=${tab} onSelect=${(id) => setParams({ tab: id }, { replace: true })} />
      <div role="tabpanel" aria-labelledby=${`tab-${tab}`} tabindex="0">
        ${tab === "partitions" && html`<${Partitions} found=${found} />`}
        ${tab === "records" && html`<${Records} name=${name} found=${found} />`}
        ${tab === "settings" && html`<${Settings} name=${name} found=${found} />`}
        ${tab === "groups" && html`<${InGroups} found=${found} />`}
      </div></section>`}
  <//>`;
}

function TopicButtons({ name, found }) {
  const skewed = found.partitions.some((each) => each.leader !== each.replicas[0]);
  const elect = () => openDialog({ title: "Elect preferred", action: "elect-preferred", intro: "The first replica of each partition leads it, where it is in sync.", body: () => ({ name }) });
  const remove = () =>
    openDialog({ title: "Delete", action: "delete-topic", danger: true, confirmName: [name], intro: html`Topic <code>${plain(name)}</code> and all its records. This cannot be undone.`,
      body: () => ({ name }), onDone: () => (location.hash = hrefOf("topics")) });
  const moving = found.partitions.some((each) => each.moving);
  const reassign = () =>
    openDialog({ title: "Reassign", action: "reassign", intro: html`The replicas of one partition of <code>${plain(name)}</code> move; the first one is to lead it.`,
      fields: [
        { name: "partition", label: "Partition", kind: "select", value: "0", options: found.partitions.map((each) => [String(each.id), `${each.id}: now on ${each.replicas.join(", ")}`]),
          fills: (id) => ({ replicas: found.partitions.find((each) => String(each.id) === id).replicas.join(",") }) },
        { name: "replicas", label: "Brokers", value: found.partitions[0]?.replicas.join(",") ?? "", hint: "Ids by commas, as 2,3,1." },
        { name: "throttle", label: "Throttle", kind: "number", value: "0", hint: "Bytes a second of each broker; 0: none." },
      ],
      body: (values) => ({ name, partition: Number(values.partition), replicas: values.replicas, throttle: Number(values.throttle) }) });
  const cancel = () => openDialog({ title: "Cancel reassignment", action: "cancel-reassignment", intro: html`Replicas of <code>${plain(name)}</code> stay where they were.`, body: () => ({ name }) });
  return html`<div class="buttons">
    ${mayAct("reassign") && html`<button onClick=${reassign}>Reassign</button>`}
    ${moving && mayAct("cancel-reassignment") && html`<button onClick=${cancel}>Cancel reassignment</button>`}
    ${skewed && mayAct("elect-preferred") && html`<button onClick=${elect}>Elect preferred</button>`}
    ${mayAct("delete-topic") && html`<button class="danger" onClick=${remove}>Delete</button>`}
  </div>`;
}

function Partitions({ found }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Partitions"><table>
    <thead><tr><th scope="col">Partition</th><th scope="col">State</th><th scope="col" class="n">Leader</th><th scope="col">Replicas</th>
      <th scope="col" class="n">Begins at</th><th scope="col" class="n">Ends at</th><th scope="col" class="n">Size</th></tr></thead>
    <tbody>${found.partitions.map((each) => html`<tr key=${each.id} data-testid="partition" data-id=${each.id} data-leader=${each.leader ?? -1} data-isr=${[...each.isr].sort((one, other) => one - other).join(",")}>
      <th scope="row">${each.id}</th><td><${Chip} kind=${each.status}>${each.status}<//></td>
      <td class="n">${each.leader === null || each.leader < 0 ? "nobody" : each.leader}${each.leader === each.replicas[0] ? "" : html` <small>not preferred</small>`}</td>
      <td>${each.replicas.map((id) => html`<span key=${id} class=${each.isr.includes(id) ? "replica" : "replica out"} title=${each.isr.includes(id) ? "in sync" : "not in sync"}>${id}${each.isr.includes(id) ? "" : " out"}</span>`)}</td>
      <td class="n">${count(each.start)}</td><td class="n">${count(each.end)}</td><td class="n">${each.bytes === null || each.bytes === undefined ? "unknown" : bytesText(each.bytes)}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

const HELD_MAX = 2000;

function Records({ name, found }) {
  const { params } = address.value;
  const [partition, setPartition] = useState(params.partition ?? "0");
  const [offset, setOffset] = useState(params.offset ?? "");
  const [time, setTime] = useState("");
  const [filter, setFilter] = useState("");
  const [format, setFormat] = useState("text");
  const [read, setRead] = useState({ items: [], told: "", reading: false });
  const running = useRef(null);
  const began = useRef(false);
  if (asOf() !== null) return html`<p class="nothing">Records are read as they are now: their past is in no znode.</p>`;
  if (!session.value?.records) return html`<p class="nothing">This console reads no records: it was started for other machines, without --records.</p>`;
  const go = async (from) => {
    const mine = {};
    running.current = mine;
    let next = from, looked = 0;
    const items = [];
    setRead({ items, told: "Reading…", reading: true });
    try {
      while (running.current === mine && items.length < HELD_MAX) {
        // Where it begins by a time, or at the first record, is the server's to say.
        const page = await get("records", { topic: name, partition, offset: next, time: next ? "" : momentOf(time), filter });
        if (running.current !== mine) return;
        if (!items.length && !looked) setParams({ partition, offset: page.offset }, { replace: true });
        items.push(...page.items);
        next = page.next_offset;
        looked += page.looked_at;
        const done = page.ended || (!filter && items.length >= 100);
        const told = `${counted(items.length, "record")}${filter ? ` of ${count(looked)} that were looked at` : ""}${page.ended ? ", up to the end of the log" : ""}`;
        setRead({ items: [...items], told, reading: !done, next: page.ended ? null : next });
        if (done) break;
      }
    } catch (problem) {
      setRead({ items, told: told(problem), reading: false, failed: true });
    }
    if (running.current === mine) running.current = null;
  };
  const stop = () => {
    running.current = null;
    setRead((before) => ({ ...before, reading: false, told: `${before.told}; stopped` }));
  };
  if (!began.current && params.offset !== undefined && params.partition !== undefined) {
    began.current = true;
    setTimeout(() => go(params.offset));
  }
  return html`<form class="tools" onSubmit=${(event) => (event.preventDefault(), go(offset))}>
      <label class="inline">Partition <select value=${partition} onChange=${(event) => setPartition(event.currentTarget.value)}>
        ${found.partitions.map((each) => html`<option key=${each.id} value=${String(each.id)}>${each.id}</option>`)}</select></label>
      <label class="inline">From offset <input type="text" inputmode="numeric" pattern="[0-9]*" size="9" value=${offset} placeholder="first" onInput=${(event) => (setOffset(event.currentTarget.value), setTime(""))} /></label>
      <label class="inline">From time <input type="text" size="16" value=${time} placeholder="2026-01-31 12:00" title="The time of this machine, with a zone, or ms since 1970" onInput=${(event) => (setTime(event.currentTarget.value), setOffset(""))} /></label>
      <label class="inline">Filter <input type="text" size="14" value=${filter} placeholder="in key or value" onInput=${(event) => setFilter(event.currentTarget.value)} /></label>
      <${Formats} value=${format} onChange=${setFormat} />
      <button class="primary">Read</button>
      <button type="button" disabled=${!read.reading} onClick=${stop}>Stop</button>
    </form>
    <p class=${read.failed ? "notice error" : "caption"} aria-live="polite">${plain(read.told)}</p>
    <ol class="records">${read.items.map((each) => html`<li key=${each.offset} data-testid="record" data-partition=${partition} data-offset=${each.offset}>
      <div class="place"><b>${each.offset}</b><time>${timeText(each.timestamp_ms)}</time></div>
      <div><small>key</small> <span class="mono" data-testid="key">${shown(each.key, format)}</span>${each.headers.map(([key, value]) => html`<small class="header" key=${key}>${plain(key)}: ${shown(value, "text")}</small>`)}
        <pre data-testid="value">${shown(each.value, format)}${each.value_size > 65536 ? html`<small>… ${bytesText(each.value_size)}</small>` : ""}</pre></div>
    </li>`)}</ol>
    ${read.next && !read.reading && html`<button class="more" onClick=${() => go(read.next)}>Go on from ${read.next}</button>`}`;
}

function shown(base64, format) {
  if (base64 === null) return "null";
  const bytes = bytesOf(base64);
  return formatted(bytes, format === "text" && textOf(bytes) === null ? "hex" : format);
}

function Settings({ name, found }) {
  const [search, setSearch] = useState("");
  if (asOf() !== null) return html`<p class="nothing">Settings that are in force are known of now alone.</p>`;
  const change = (row) =>
    openDialog({
      title: "Change settings",
      action: "change-settings",
      intro: html`Topic <code>${plain(name)}</code>`,
      fields: [
        { name: "setting", label: "Setting", kind: "select", value: row?.name ?? found.settings[0]?.name, options: found.settings.map((each) => [each.name, each.name]),
          fills: (chosen) => ({ value: found.settings.find((each) => each.name === chosen).value ?? "" }) },
        { name: "value", label: "Value", value: row?.value ?? "", hint: "Empty: back to the default." },
      ],
      body: (values) => ({ name, setting: values.setting, value: values.value }),
    });
  return html`<div class="tools"><${Search} label="Search settings" value=${search} onSearch=${setSearch} />
      ${mayAct("change-settings") && found.settings.length > 0 && html`<button onClick=${() => change(found.settings.find((each) => each.changed))}>Change settings</button>`}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="Settings"><table><thead><tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th></tr></thead>
    <tbody>${found.settings.filter((each) => each.name.includes(search)).map((each) => html`<tr key=${each.name} data-testid="setting" data-name=${each.name} data-changed=${String(each.changed)}>
      <th scope="row">${plain(each.name)}</th><td class="mono">${each.value === null ? "–" : plain(each.value)}</td>
      <td>${each.changed ? html`<${Chip} kind="role">this topic<//>` : html`<small>default</small>`}</td>
    </tr>`)}</tbody></table></div>`;
}

function InGroups({ found }) {
  if (!found.groups.length) return html`<p class="nothing">No group has committed an offset of it.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Groups"><table><thead><tr><th scope="col">Group</th><th scope="col">State</th><th scope="col" class="n">Partitions</th><th scope="col" class="n">Lag</th><th scope="col" class="n" title="The oldest record that is not committed waits at least so long">Waits</th><th scope="col" title="Of all that the group reads">Trend</th></tr></thead>
    <tbody>${found.groups.map((each) => html`<tr key=${each.name} data-testid="group" data-name=${each.name} data-lag=${each.lag} data-seconds=${each.seconds} data-trend=${each.trend} data-status=${each.state}>
      <th scope="row"><a href=${hrefOf("groups", each.name)}>${plain(each.name)}</a></th><td><${Chip} kind=${each.state}>${plain(each.state ?? "unknown")}<//></td>
      <td class="n">${each.partitions}</td><td class="n">${count(each.lag)}</td><td class="n">${waitText(each.seconds)}</td><td><${Trend} trend=${each.trend} /></td></tr>`)}</tbody></table></div>`;
}
