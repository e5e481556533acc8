// The tree: children by pages, one znode with its value, its history and its ACL, and what may be changed.
import { html, useEffect, useMemo, useRef, useState } from "./libraries.js";
import { openDialog } from "./actions.js";
import { Chip, Formats, Main, Search, Tabs } from "./parts.js";
import { address, asOf, get, hrefOf, mayAct, Problem, setParams, useView } from "./state.js";
import { agoText, base64Of, bytesOf, bytesText, count, formatted, plain, textOf, timeText } from "./text.js";

const parentOf = (path) => path.slice(0, path.lastIndexOf("/")) || "/";
const nameOf = (path) => path.slice(path.lastIndexOf("/") + 1);
const at = (path, more = {}) => hrefOf("znodes", null, { path, ...more });

export function Znodes() {
  const { params } = address.value;
  const path = params.path || "/";
  return html`<${Znode} key=${path} path=${path} tab=${params.tab || "data"} />`;
}

function Znode({ path, tab }) {
  const past = asOf();
  const view = useView(
    `${path} ${past}`,
    async () => {
      const [znode, history] = await Promise.all([get("znodes", { path, as_of: past }), get("znodes/history", { path, as_of: past })]);
      return { ...znode, history: history.items, first_zxid: history.first_zxid, more: history.more };
    },
    (changed) => changed === path || (parentOf(changed) === path && changed !== path),
  );
  const found = view.data;
  const absent = view.current && found && !found.found;
  const state = absent && view.state === "ready" ? "empty" : view.state;
  return html`<${Main} page="znodes" name=${path} title=${path === "/" ? "Znodes" : plain(nameOf(path))} state=${state} problem=${view.problem}>
    <h1 class="visually-hidden">Znodes</h1>
    <${Crumbs} path=${path} />
    <div class="panes">
      <${Children} path=${path} count=${found?.found && !found.deleted ? found.stat.children_count : null} />
      <section class="detail" aria-label="Znode">
        ${absent && html`<p class="nothing">There is no znode <code>${plain(path)}</code>${past === null ? "" : " at that time"}, and none is in the history that is kept.</p>`}
        ${found?.found && html`<${Detail} path=${path} found=${found} tab=${tab} />`}
      </section>
    </div>
  <//>`;
}

function Crumbs({ path }) {
  const parts = path === "/" ? [] : path.slice(1).split("/");
  return html`<nav class="crumbs" aria-label="Path"><a href=${at("/")}>/</a>
    ${parts.map((part, index) => {
      const to = "/" + parts.slice(0, index + 1).join("/");
      return html`<span key=${to}>${index > 0 && html`<i aria-hidden="true">/</i>`}<a href=${at(to)}
        aria-current=${to === path ? "page" : null}>${plain(part)}</a></span>`;
    })}
  </nav>`;
}

function Children({ path, count: total }) {
  const past = asOf();
  const [search, setSearch] = useState("");
  const [deleted, setDeleted] = useState(false);
  const [pages, setPages] = useState(1);
  const wanted = useRef(1);
  wanted.current = pages;
  const view = useView(
    `${path} ${past} ${search} ${deleted} ${pages}`,
    async () => {
      const items = [];
      let after = "";
      for (let page = 0; page < wanted.current && after !== null; page++) {
        const found = await get("znodes/children", { path, after, search, as_of: past, deleted: deleted || undefined });
        items.push(...found.items);
        after = found.next_after;
      }
      return { items, more: after !== null };
    },
    (changed) => changed !== path && parentOf(changed) === path,
  );
  const items = view.data?.items ?? [];
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const links = [...event.currentTarget.querySelectorAll("a")];
    const next = links[links.indexOf(document.activeElement) + step];
    if (next) (event.preventDefault(), next.focus());
  };
  return html`<section class="children" aria-label="Children">
    <div class="tools">
      <${Search} label="Search children" value=${search} onSearch=${(word) => (setSearch(word), setPages(1))} />
      <label class="inline"><input type="checkbox" checked=${deleted} onChange=${(event) => setDeleted(event.currentTarget.checked)} /> Deleted nodes</label>
    </div>
    <p class="caption">${total === null ? "" : `${count(total)} ${total === 1 ? "child" : "children"}`}</p>
    <ul class="rows" onKeyDown=${move}>
      ${path !== "/" && html`<li key=".."><a href=${at(parentOf(path))}><span class="up" aria-hidden="true">↰</span> parent</a></li>`}
      ${items.map(
        (each) => html`<li key=${each.path} data-testid="znode" data-path=${each.path} data-deleted=${each.deleted}>
          <a href=${at(each.path)} class=${each.deleted ? "gone" : ""}>${plain(each.name)}</a>
          ${each.deleted && html`<small>deleted at ${each.deleted}</small>`}
        </li>`,
      )}
    </ul>
    ${view.data && !items.length && html`<p class="nothing">${search ? "No child has that in its name." : "It has no children."}</p>`}
    ${view.data?.more && html`<button class="more" onClick=${() => setPages(pages + 1)}>More</button>`}
  </section>`;
}

const TABS = [["data", "Value"], ["history", "History"], ["acl", "ACL"]];

function Detail({ path, found, tab }) {
  const selected = TABS.some(([id]) => id === tab) ? tab : "data";
  return html`<div class="head">
      <h2>${plain(path === "/" ? "/" : nameOf(path))}</h2>
      ${found.deleted
        ? html`<${Chip} kind="error"><span data-testid="deleted" data-zxid=${found.deleted}>deleted at zxid ${found.deleted}</span><//>`
        : html`<${Chip} kind="role">version <span data-testid="version">${found.stat.version}</span><//>`}
      ${found.stat.ephemeral_owner !== "0" && html`<${Chip} kind="info">ephemeral<//>`}
      <span class="spring"></span>
      <${Buttons} path=${path} found=${found} tab=${selected} />
    </div>
    <${Tabs} label="Znode" tabs=${TABS} selected=${selected} onSelect=${(id) => setParams({ tab: id === "data" ? undefined : id }, { replace: true })} />
    <div role="tabpanel" aria-labelledby=${`tab-${selected}`} tabindex="0">
      ${selected === "data" && html`<${Data} found=${found} />`}
      ${selected === "history" && html`<${History} path=${path} found=${found} />`}
      ${selected === "acl" && html`<${Acl} found=${found} />`}
    </div>`;
}

function Buttons({ path, found, tab }) {
  if (found.deleted) return tab === "data" && mayAct("create-znode") && html`<button onClick=${() => recreate(path, found.data)}>Put back</button>`;
  return html`<div class="buttons">
    ${mayAct("set-znode") && html`<button onClick=${() => edit(path, found)}>Edit</button>`}
    ${mayAct("create-znode") && html`<button onClick=${() => create(path)}>Create</button>`}
    ${mayAct("delete-znode") && path !== "/" && html`<button class="danger" onClick=${() => remove(path, found)}>Delete</button>`}
  </div>`;
}

// -- changes ---------------------------------------------------------------------------------------------

/** A value as a field has it, and back: hex where it is no text. */
function editable(bytes) {
  const text = bytes === null ? "" : textOf(bytes);
  // A text area turns CR into LF.
  if (text !== null && !text.includes("\r")) return { value: text, read: (typed) => base64Of(new TextEncoder().encode(typed)) };
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const read = (typed) => {
    const digits = typed.replace(/\s/g, "");
    if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Problem(400, { detail: "The data are not two hex digits a byte", remedy: "Write them as 00 ff." });
    return base64Of(Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16)));
  };
  return { value: hex, read, hint: "It is no plain text: two hex digits a byte." };
}

function edit(path, found, given = found.data, title = "Edit") {
  const bytes = bytesOf(given);
  const field = editable(bytes);
  let version = found.stat.version;
  openDialog({
    title,
    action: "set-znode",
    intro: html`<code>${plain(path)}</code>, read at version ${version}`,
    fields: [{ name: "data", label: "Data", kind: "textarea", value: field.value, hint: field.hint }],
    body: (values) => ({ path, version, data: field.read(values.data) }),
    rebase: (current) => (version = current.version),
  });
}

function create(path) {
  openDialog({
    title: "Create",
    action: "create-znode",
    intro: html`Below <code>${plain(path)}</code>`,
    fields: [{ name: "name", label: "Name" }, { name: "data", label: "Data", kind: "textarea" }],
    body: (values) => ({ path: `${path === "/" ? "" : path}/${values.name}`, data: base64Of(new TextEncoder().encode(values.data)) }),
    onDone: (answer) => (location.hash = at(answer.path)),
  });
}

function recreate(path, data) {
  const field = editable(bytesOf(data));
  openDialog({
    title: "Put back",
    action: "create-znode",
    intro: html`<code>${plain(path)}</code> is created again with this value.`,
    fields: [{ name: "data", label: "Data", kind: "textarea", value: field.value, hint: field.hint }],
    body: (values) => ({ path, data: field.read(values.data) }),
  });
}

function remove(path, found) {
  openDialog({
    title: "Delete",
    action: "delete-znode",
    danger: true,
    intro: html`<code>${plain(path)}</code> at version ${found.stat.version}. Its history stays for as long as the change log is kept.`,
    confirmName: [nameOf(path), path],
    body: () => ({ path, version: found.stat.version }),
  });
}

// -- tabs ------------------------------------------------------------------------------------------------

const STAT = [
  ["czxid", "created by zxid"], ["mzxid", "changed by zxid"], ["pzxid", "children changed by zxid"],
  ["ctime_ms", "created"], ["mtime_ms", "changed"], ["cversion", "changes of children"],
  ["children_count", "children"], ["data_length", "bytes"], ["ephemeral_owner", "session"],
];

function Data({ found }) {
  const bytes = useMemo(() => bytesOf(found.data), [found.data]);
  const [chosen, setChosen] = useState(null);
  const format = chosen ?? (bytes && textOf(bytes) === null ? "hex" : "text");
  return html`<div class="tools"><${Formats} value=${format} onChange=${setChosen} /><small>${bytes ? bytesText(bytes.length) : "no value"}</small></div>
    <pre class="data" data-testid="data" role="group" tabindex="0" aria-label="Value">${formatted(bytes, format)}</pre>
    <dl class="stat">
      ${STAT.filter(([key]) => found.stat[key] !== undefined).map(
        ([key, label]) => html`<div key=${key}><dt>${label}</dt><dd>${statText(key, found.stat[key])}</dd></div>`,
      )}
    </dl>`;
}

function statText(key, value) {
  if (key.endsWith("_ms")) return timeText(value);
  if (key === "ephemeral_owner") return value === "0" ? "none" : `0x${BigInt.asUintN(64, BigInt(value)).toString(16)}`;
  return String(value);
}

const OPS = { c: "created", u: "set", d: "deleted" };

const readAt = (path, zxid) =>
  get("znodes", { path, as_of: zxid }).then((each) => (each.found && !each.deleted ? each.data : null), () => null);
const before = (zxid) => String(BigInt(zxid) - 1n);

/** Put the value of a change back: the one before a deletion, else the one that it made. */
async function putBack(path, found, change) {
  const data = await readAt(path, change.op === "d" ? before(change.zxid) : change.zxid);
  if (found.deleted) recreate(path, data);
  else edit(path, found, data, "Put back");
}

function History({ path, found }) {
  const [chosen, setChosen] = useState(null);
  if (!found.history.length) return html`<p class="nothing">The history that is kept (from zxid ${found.first_zxid}) has no change of it.</p>`;
  const may = found.deleted ? mayAct("create-znode") : mayAct("set-znode");
  const offers = (each, index) => may && (chosen === null || chosen === each.zxid) && (found.deleted || index > 0);
  return html`<ol class="history">
      ${found.history.map(
        (each, index) => html`<li key=${each.zxid} data-testid="history" data-zxid=${each.zxid} data-op=${each.op} class=${chosen === each.zxid ? "chosen" : ""}>
          <div class="line"><button class="row" aria-expanded=${chosen === each.zxid ? "true" : "false"} onClick=${() => setChosen(chosen === each.zxid ? null : each.zxid)}>
            <span class="op ${each.op}">${OPS[each.op]}</span>
            <span>version ${each.version}</span><span>${bytesText(each.size)}</span>
            <span>zxid ${each.zxid}</span><time title=${timeText(each.ts_ms)}>${agoText(each.ts_ms)}</time>
            ${each.session_id && html`<small>session ${each.session_id}</small>`}
          </button>
          ${offers(each, index) && html`<button onClick=${() => putBack(path, found, each)}>Put back</button>`}</div>
          ${chosen === each.zxid && html`<${Version} path=${path} change=${each} />`}
        </li>`,
      )}
    </ol>
    ${found.more && html`<p class="caption">Older changes are not shown.</p>`}`;
}

/** One version beside the one before. */
function Version({ path, change }) {
  const [texts, setTexts] = useState(null);
  useEffect(() => {
    Promise.all([readAt(path, before(change.zxid)), change.op === "d" ? null : readAt(path, change.zxid)]).then(([was, is]) => setTexts({ was, is }));
  }, [change.zxid]);
  if (!texts) return html`<p class="loading">Loading…</p>`;
  return html`<${Difference} before=${texts.was} after=${texts.is} />
    <a class="button" href=${hrefOf("znodes", null, { path, as_of: change.zxid })}>See all at that time</a>`;
}

/** Lines that went and came; those that stay are kept where they are. */
function Difference({ before, after }) {
  const [was, is] = [before, after].map((each) => formatted(bytesOf(each), "json").split("\n"));
  if (before === null) was.length = 0;
  if (after === null) is.length = 0;
  const rows = differing(was, is);
  return html`<pre class="difference" role="group" tabindex="0" aria-label="Difference to the version before">${rows.map(
    ([mark, line], index) => html`<span key=${index} class=${{ "+": "came", "-": "went" }[mark] ?? ""}>${mark} ${line}${"\n"}</span>`,
  )}</pre>`;
}

const LINES_MAX = 400;

function differing(was, is) {
  if (was.length > LINES_MAX || is.length > LINES_MAX) return [...was.map((line) => ["-", line]), ...is.map((line) => ["+", line])];
  const common = Array.from({ length: was.length + 1 }, () => new Uint16Array(is.length + 1));
  for (let i = was.length - 1; i >= 0; i--)
    for (let j = is.length - 1; j >= 0; j--)
      common[i][j] = was[i] === is[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const rows = [];
  let i = 0, j = 0;
  while (i < was.length || j < is.length) {
    if (i < was.length && j < is.length && was[i] === is[j]) (rows.push([" ", was[i]]), i++, j++);
    else if (i < was.length && (j === is.length || common[i + 1][j] >= common[i][j + 1])) rows.push(["-", was[i++]]);
    else rows.push(["+", is[j++]]);
  }
  return rows;
}

function Acl({ found }) {
  if (!found.acl) return html`<p class="nothing">The history keeps no access lists.</p>`;
  return html`<table><thead><tr><th scope="col">Scheme</th><th scope="col">Identity</th><th scope="col">May</th></tr></thead>
    <tbody>${found.acl.map(
      (each, index) => html`<tr key=${index} data-testid="acl"><td>${plain(each.scheme)}</td><td>${plain(each.id)}</td><td>${plain(each.perms)}</td></tr>`,
    )}</tbody></table>`;
}
