// What every page shares: the address, the event stream, requests to the server, and the life of a view.
import { signal, useEffect, useRef, useState } from "./libraries.js";

// -- address ---------------------------------------------------------------------------------------------

function readAddress() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page, name] = path.split("/", 2);
  const params = Object.fromEntries(new URLSearchParams(query));
  return { page: page || "overview", name: name === undefined ? null : decoded(name), params };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

export const address = signal(readAddress());
addEventListener("hashchange", () => (address.value = readAddress()));

/** The address of a page; the time that is looked at goes along. */
export function hrefOf(page, name = null, params = {}) {
  const asOf = address.value.params.as_of;
  const all = { ...params, ...(asOf !== undefined && !("as_of" in params) ? { as_of: asOf } : {}) };
  const given = Object.entries(all).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = given.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  return `#/${page}${name === null ? "" : "/" + encodeURIComponent(name)}${query && "?" + query}`;
}

/** Change parameters of this address; replace: the one before is not kept. */
export function setParams(changed, { replace = false } = {}) {
  const { page, name, params } = address.value;
  const to = hrefOf(page, name, { ...params, ...changed });
  if (replace) {
    history.replaceState(null, "", to);
    address.value = readAddress();
  } else location.hash = to;
}

export const asOf = () => address.value.params.as_of ?? null;

// -- server ----------------------------------------------------------------------------------------------

export const session = signal(null);
export const live = signal({ connected: true, zxid: "0", first_zxid: "0", number: 0, source: null, verdict: null });

export class Problem extends Error {
  constructor(status, fields) {
    super(fields.detail ?? `HTTP ${status}`);
    Object.assign(this, { status, fields, remedy: fields.remedy ?? "" });
  }
}

// A user's own token for the admin ports, for as long as the tab is open; the console passes it on.
const KEPT = "quorate-authorization";
export const refused = signal(false);

export function signIn(token) {
  if (token) sessionStorage.setItem(KEPT, `Bearer ${token}`);
  else sessionStorage.removeItem(KEPT);
  location.reload();
}

async function ask(path, { headers = {}, ...options } = {}) {
  const kept = sessionStorage.getItem(KEPT);
  let response;
  try {
    response = await fetch(path, { ...options, headers: kept ? { ...headers, Authorization: kept } : headers });
  } catch {
    throw new Problem(0, { detail: "the console does not answer", remedy: "see whether `quorate console` runs" });
  }
  const fields = await response.json().catch(() => ({}));
  if (response.status === 401 || response.status === 403) refused.value = true;
  if (!response.ok) throw new Problem(response.status, fields);
  return fields;
}

export function get(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = given.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  return ask(`api/${path}${text && "?" + text}`);
}

export async function act(name, fields) {
  const send = () =>
    ask(`api/actions/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "Quorate-Token": session.value.token },
      body: JSON.stringify(fields),
    });
  try {
    return await send();
  } catch (problem) {
    if (problem.status !== 403) throw problem;
    // The console was started again: its token is another one.
    const token = session.value.token;
    session.value = await get("session");
    if (session.value.token === token) throw problem;
    return send();
  }
}

export const mayAct = (name) => asOf() === null && (session.value?.actions.includes(name) ?? false);

// -- events ----------------------------------------------------------------------------------------------

const watchers = new Set();

function heard(message) {
  const { paths, ...rest } = message;
  const before = live.value;
  live.value = { ...before, ...rest };
  const looked = rest.number !== before.number;
  for (const watcher of watchers) watcher(paths, looked);
}

async function begin() {
  try {
    session.value = await get("session");
  } catch {
    setTimeout(begin, 1000);
  }
}

export function listen() {
  begin();
  if (typeof SharedWorker === "function") {
    const worker = new SharedWorker("worker.js", { name: "quorate-events" });
    worker.port.onmessage = (event) => heard(event.data);
    worker.port.start();
    addEventListener("pagehide", () => worker.port.postMessage("close"));
    addEventListener("pageshow", (event) => event.persisted && location.reload());
    return;
  }
  const stream = new EventSource("api/events");
  stream.onmessage = (event) => heard({ connected: true, ...JSON.parse(event.data) });
  stream.onerror = () => heard({ ...live.value, connected: false, paths: [] });
}

// -- views -----------------------------------------------------------------------------------------------

const AGAIN_MS = 200;
const PAUSE_MAX_MS = 2000;
const RETRY_MS = 3000;

/**
 * Load something, and again when it may have changed.
 * key: what is wanted, as a text; load: () → promise; concerns: (path) → whether its change matters, or null: every
 * look at the cluster does, too; everyMs: how often it is loaded again whatever happens, for what is in no event.
 * Returns {data, problem, state, reload}; data stays while something is loaded again.
 */
export function useView(key, load, concerns = null, everyMs = 0) {
  const [view, setView] = useState({ key: null, data: null, problem: null });
  const now = useRef({});
  now.current = { key, load, concerns, problem: view.problem };
  const reload = useRef(null);
  useEffect(() => {
    let running = false, wanted = false, gone = false;
    async function run() {
      if (running) {
        wanted = true;
        return;
      }
      running = true;
      wanted = false;
      const asked = now.current, begun = performance.now();
      try {
        const data = await asked.load();
        if (!gone) setView({ key: asked.key, data, problem: null });
      } catch (problem) {
        if (!(problem instanceof Problem)) console.error(problem);
        if (!gone) setView((before) => ({ ...before, problem, failed: asked.key }));
        setTimeout(() => !gone && run(), RETRY_MS);
      }
      // What is long to load is not loaded all the time.
      await new Promise((done) => setTimeout(done, Math.min(PAUSE_MAX_MS, Math.max(AGAIN_MS, 3 * (performance.now() - begun)))));
      running = false;
      if (!gone && (wanted || now.current.key !== asked.key)) run();
    }
    reload.current = run;
    run();
    const watcher = (paths, looked) => {
      if (asOf() !== null && !now.current.problem) return;
      const { concerns } = now.current;
      if (live.value.source === "gone" || !live.value.connected) return;
      if (paths === null || (concerns ? paths.some(concerns) : looked || paths.length)) run();
    };
    watchers.add(watcher);
    const timer = everyMs && setInterval(() => document.visibilityState === "visible" && watcher(null, true), everyMs);
    return () => {
      gone = true;
      clearInterval(timer);
      watchers.delete(watcher);
    };
  }, []);
  useEffect(() => void reload.current(), [key]);
  return { ...view, current: view.key === key, state: stateOf(view, key), reload: () => reload.current() };
}

function stateOf(view, key) {
  const { connected, source } = live.value;
  const has = view.key === key;
  if (!connected || source === "gone") return has ? "stale" : source === null && connected ? "loading" : "error";
  if (view.problem && (view.failed === key || has)) return has ? "stale" : "error";
  // Not before the cluster was looked at: until then nothing is known of now.
  if (!has || source === null) return "loading";
  return source === "no-quorum" && asOf() === null ? "no-quorum" : "ready";
}
